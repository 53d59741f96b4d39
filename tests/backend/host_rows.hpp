#pragma once
// A backend whose operations take rows in host memory: each call copies them to the device that the wrapped
// backend works on, gaps between rows and all, and copies what was written back. So one test serves every
// backend. Memory of allocate() stays on the device.

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "backend/backend.hpp"

namespace diffuse::test {

class HostRows : public Backend {
 public:
  explicit HostRows(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}

  std::string name() const override { return inner_->name(); }
  std::string target() const override { return inner_->target(); }
  Compute compute() const override { return inner_->compute(); }
  DeviceFacts device() const override { return inner_->device(); }
  std::function<void()> released() const override { return inner_->released(); }
  bool host_addressable() const override { return inner_->host_addressable(); }
  void synchronize() override { inner_->synchronize(); }
  void expect(const ExpectedSteps& steps) override { inner_->expect(steps); }
  std::size_t kv_page_bytes(const KvSpec& spec) const override { return inner_->kv_page_bytes(spec); }

  Buffer allocate(std::size_t bytes) override {
    auto buffer = inner_->allocate(bytes);
    owned_.emplace_back(buffer.data(), bytes);
    return buffer;
  }
  void upload(std::byte* to, std::span<const std::byte> from) override { inner_->upload(to, from); }
  void download(std::span<std::byte> to, const std::byte* from) override { inner_->download(to, from); }

  using Backend::pack;
  std::shared_ptr<const PackedMatrix> pack(std::span<const HostMatrix> parts, WeightUse use) override {
    return inner_->pack(parts, use);
  }

  void copy(ConstRows from, Rows to) override {
    Call call(*this);
    const Rows y = call.written(to);
    inner_->copy(call.read(from), y);
  }
  void embed(const PackedMatrix& table, std::span<const std::int32_t> ids, float scale, Rows out) override {
    Call call(*this);
    inner_->embed(table, ids, scale, call.written(out));
  }
  void add_positions(const float* table, std::span<const std::int32_t> rows, Rows out) override {
    Call call(*this);
    std::int64_t count = 0;
    for (const auto row : rows) count = std::max<std::int64_t>(count, row + 1);
    inner_->add_positions(call.read(table, count * out.cols), rows, call.written(out));
  }
  void norm(const NormArgs& args) override {
    Call call(*this);
    NormArgs moved = args;
    moved.y = call.written(args.y);
    moved.x = call.read(args.x);
    moved.weight = call.read(args.weight, args.x.cols / args.groups);
    moved.bias = call.read(args.bias, args.x.cols / args.groups);
    inner_->norm(moved);
  }
  void matmul(ConstRows x, const PackedMatrix& weight, Rows y, const Epilogue& epilogue) override {
    Call call(*this);
    Epilogue moved = epilogue;
    moved.bias = call.read(epilogue.bias, y.cols);
    const Rows to = call.written(y);
    inner_->matmul(call.read(x), weight, to, moved);
  }
  void gate(ConstRows x, Rows y, Activation activation) override {
    Call call(*this);
    const Rows to = call.written(y);
    inner_->gate(call.read(x), to, activation);
  }
  void activate(ConstRows x, Rows y, Activation activation) override {
    Call call(*this);
    const Rows to = call.written(y);
    inner_->activate(call.read(x), to, activation);
  }
  void add(ConstRows x, Rows y, float scale) override {
    Call call(*this);
    const Rows to = call.written(y);
    inner_->add(call.read(x), to, scale);
  }
  void add_gated(ConstRows x, const float* gate, Rows y) override {
    Call call(*this);
    const Rows to = call.written(y);
    inner_->add_gated(call.read(x), call.read(gate, y.cols), to);
  }
  void scale(Rows y, float factor) override {
    Call call(*this);
    inner_->scale(call.written(y), factor);
  }
  void softcap(Rows y, float cap) override {
    Call call(*this);
    inner_->softcap(call.written(y), cap);
  }
  void unfold(const UnfoldArgs& args) override {
    Call call(*this);
    UnfoldArgs moved = args;
    moved.out = call.written(args.out);
    moved.x = call.read(args.x);
    inner_->unfold(moved);
  }
  void rope(const RopeArgs& args) override {
    Call call(*this);
    RopeArgs moved = args;
    moved.x = call.written(args.x);
    moved.cos = call.read(args.cos, args.x.rows * args.pairs);
    moved.sin = call.read(args.sin, args.x.rows * args.pairs);
    inner_->rope(moved);
  }
  void kv_write(const KvPool& pool, ConstRows k, ConstRows v, std::span<const Segment> segments) override {
    Call call(*this);
    inner_->kv_write(pool, call.read(k), call.read(v), segments);
  }
  void extrapolate(const KvPool& pool, std::span<const std::int32_t> from, std::span<const std::int32_t> to,
                   float weight) override {
    inner_->extrapolate(pool, from, to, weight);
  }
  void attend(const AttentionArgs& args) override {
    Call call(*this);
    AttentionArgs moved = args;
    moved.out = call.written(args.out);
    moved.q = call.read(args.q);
    moved.alibi_slopes = call.read(args.alibi_slopes, args.heads);
    moved.position_bias = call.read(args.position_bias, args.heads * (2 * args.bias_reach + 1));
    inner_->attend(moved);
  }
  void attention_weights(const AttentionWeightsArgs& args) override {
    Call call(*this);
    AttentionWeightsArgs moved = args;
    moved.out = call.written(args.out);
    moved.q = call.read(args.q);
    inner_->attention_weights(moved);
  }
  void experts(const ExpertsArgs& args) override {
    Call call(*this);
    ExpertsArgs moved = args;
    moved.out = call.written(args.out);
    moved.x = call.read(args.x);
    inner_->experts(moved);
  }
  void argmax(ConstRows logits, std::span<std::int32_t> ids) override {
    Call call(*this);
    inner_->argmax(call.read(logits), ids);
  }

 private:
  // The device's copies of one call's host memory; what may have been written goes back when the call ends.
  class Call {
   public:
    explicit Call(HostRows& outer) : outer_(outer) {}
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    // A failure of the operation itself is on its way already; one of the copies is told from here.
    ~Call() noexcept(false) {
      if (std::uncaught_exceptions() > 0) return;
      for (const auto& mirror : mirrors_) {
        if (!mirror.written) continue;
        outer_.inner_->download({mirror.host, mirror.bytes}, mirror.device);
      }
    }

    const float* read(const float* values, std::int64_t count) {
      return values == nullptr ? nullptr : place(values, count, false);
    }
    ConstRows read(ConstRows rows) {
      return {place(rows.data, span_of(rows), false), rows.rows, rows.cols, rows.stride};
    }
    Rows written(Rows rows) {
      return {place(rows.data, span_of(rows), true), rows.rows, rows.cols, rows.stride};
    }

   private:
    struct Mirror {
      std::byte* host;
      std::size_t bytes;
      std::byte* device;
      Buffer memory;
      bool written;
    };

    static std::int64_t span_of(ConstRows rows) {
      return rows.rows == 0 || rows.cols == 0 ? 0 : (rows.rows - 1) * rows.stride + rows.cols;
    }

    // As far from a border of 64 bytes as on the host, so that tests of odd addresses stay that.
    float* place(const float* values, std::int64_t count, bool written) {
      auto* host = reinterpret_cast<std::byte*>(const_cast<float*>(values));
      if (outer_.on_device(host) || count == 0) return const_cast<float*>(values);
      const auto bytes = static_cast<std::size_t>(count) * sizeof(float);
      for (const auto& mirror : mirrors_) {
        if (host >= mirror.host && host + bytes <= mirror.host + mirror.bytes)
          return reinterpret_cast<float*>(mirror.device + (host - mirror.host));
      }
      const std::size_t shift = reinterpret_cast<std::uintptr_t>(host) % 64;
      auto memory = outer_.inner_->allocate(bytes + shift);
      auto* device = memory.data() + shift;
      outer_.inner_->upload(device, {host, bytes});
      mirrors_.push_back({host, bytes, device, std::move(memory), written});
      return reinterpret_cast<float*>(device);
    }

    HostRows& outer_;
    std::vector<Mirror> mirrors_;
  };

  bool on_device(const std::byte* data) const {
    for (const auto& [begin, bytes] : owned_) {
      if (data >= begin && data < begin + bytes) return true;
    }
    return false;
  }

  std::unique_ptr<Backend> inner_;
  std::vector<std::pair<const std::byte*, std::size_t>> owned_;
};

}  // namespace diffuse::test
