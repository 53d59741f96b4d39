#pragma once
// The functions of this SIMD target, for its table. Each source below simd/ defines some of them.

#include "kernels/simd/vectors-inl.hpp"

namespace diffuse::kernels::HWY_NAMESPACE {

void matmul_f32(const PanelProduct& args);
void matmul_bf16(const PanelProduct& args);
void store_panel(const PanelStore& args);

void expand_f16(const std::uint16_t* x, float* y, std::int64_t count);

void round_bf16(const float* x, float* y, std::int64_t count);
void narrow_bf16(const float* x, std::uint16_t* y, std::int64_t count, std::int64_t padded);
void rope(const RopeRow& args);
void activate(Activation kind, const float* x, float* y, std::int64_t count);
void gate(Activation kind, const float* gated, const float* up, float* y, std::int64_t count);
void add_scaled(const float* x, float* y, float factor, std::int64_t count);
void add_gated(const float* x, const float* gates, float* y, std::int64_t count);
void extrapolate_f32(const float* x, float* y, float weight, std::int64_t count);
void extrapolate_bf16(const std::uint16_t* x, std::uint16_t* y, float weight, std::int64_t count);
void scale(float* y, float factor, std::int64_t count);
void softcap(float* y, float cap, std::int64_t count);

void norm(const NormRow& args);
void softmax(float* x, std::int64_t count);
void sigmoid_all(float* x, std::int64_t count);
std::int64_t argmax(const float* x, std::int64_t count);

void attend_f32(const AttentionTile& args);
void attend_bf16(const AttentionTile& args);
void merge(const AttentionState& into, const AttentionState& from, std::int64_t queries,
           std::int64_t value_stride);
void finish(const AttentionState& state, std::int64_t query, std::int64_t value_stride, float* out,
            std::int64_t value_dim);

}  // namespace diffuse::kernels::HWY_NAMESPACE
