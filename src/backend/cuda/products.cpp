#include "backend/cuda/products.hpp"

#include <array>
#include <cstring>
#include <vector>

#include "core/dtype.hpp"
#include "core/error.hpp"

namespace diffuse::cuda {
namespace {

// Algorithms that do not split or reduce need little of it.
constexpr std::size_t kWorkspaceBytes = std::size_t{4} << 20;
constexpr std::uint32_t kAlignment = 16;
constexpr int kOffers = 64;
// Numbers of other rows that a row is checked among.
constexpr std::array<std::int64_t, 3> kCompany = {2, 7, 64};

cudaDataType type_of(bool bf16) {
  return bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

std::uint32_t epilogue_of(const Fused& fused) {
  const bool bias = fused.bias != nullptr;
  switch (fused.activation) {
    case Activation::none:
      return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    case Activation::relu:
      return bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    case Activation::gelu_tanh:
      return bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    default:
      throw_internal("CUDA backend: cuBLASLt has no epilogue for this activation");
  }
}

// A row of inputs for the check: plain numbers in [-1, 1) that bf16 holds.
std::vector<float> trial_row(std::int64_t cols, std::uint32_t seed) {
  std::vector<float> row(static_cast<std::size_t>(cols));
  std::uint32_t state = seed * 2654435761U + 1;
  for (auto& value : row) {
    state = state * 1664525U + 1013904223U;
    value = static_cast<float>(static_cast<std::int32_t>(state >> 24) - 128) / 128.0F;
  }
  return row;
}

}  // namespace

Products::Products(std::shared_ptr<Device> device, Staging& staging)
    : device_(std::move(device)), staging_(staging) {
  cublasLtHandle_t handle = nullptr;
  device_->check(cublasLtCreate(&handle), "cublasLtCreate", "starting cuBLASLt");
  handle_ = LtHandle(handle, device_->releases());
  workspace_ = device_->allocate(kWorkspaceBytes, "cuBLASLt's workspace");
}

std::string Products::describe(const Shape& shape) const {
  return "products of " + std::to_string(shape.inputs) + " inputs by " + std::to_string(shape.outputs) +
         " outputs in " + (shape.bf16 ? "bf16" : "f32");
}

void Products::check(cublasStatus_t status, const char* call, const Shape& shape) const {
  if (status != CUBLAS_STATUS_SUCCESS) device_->check(status, call, "preparing " + describe(shape));
}

Products::Shape Products::shape_of(const Matrix& weight, const Fused& fused) const {
  return {weight.padded_rows(), weight.padded_cols(), weight.bf16(), epilogue_of(fused)};
}

void Products::set_bias(const Plan& plan, const Fused& fused) const {
  if (fused.bias == nullptr) return;
  const void* bias = fused.bias;
  check(
      cublasLtMatmulDescSetAttribute(plan.desc.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias),
      "cublasLtMatmulDescSetAttribute", plan.shape);
}

// Matrices are column by column to cuBLASLt, so that our row-major weights are read as their transpose, and
// rows of inputs and results are columns.
void Products::set_rows(Plan& plan, std::int64_t rows, std::int64_t x_stride, std::int64_t y_stride) {
  const auto set = [&](const LtLayout& layout, std::int64_t stride) {
    const auto cols = static_cast<std::uint64_t>(rows);
    check(cublasLtMatrixLayoutSetAttribute(layout.get(), CUBLASLT_MATRIX_LAYOUT_COLS, &cols, sizeof cols),
          "cublasLtMatrixLayoutSetAttribute", plan.shape);
    check(cublasLtMatrixLayoutSetAttribute(layout.get(), CUBLASLT_MATRIX_LAYOUT_LD, &stride, sizeof stride),
          "cublasLtMatrixLayoutSetAttribute", plan.shape);
  };
  set(plan.inputs, x_stride);
  set(plan.results, y_stride);
}

bool Products::usable(const Plan& plan, const cublasLtMatmulHeuristicResult_t& offer) const {
  if (offer.state != CUBLAS_STATUS_SUCCESS || offer.workspaceSize > kWorkspaceBytes) return false;
  std::int32_t split = 0;
  std::uint32_t reduction = 0;
  check(cublasLtMatmulAlgoConfigGetAttribute(&offer.algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split,
                                             sizeof split, nullptr),
        "cublasLtMatmulAlgoConfigGetAttribute", plan.shape);
  check(cublasLtMatmulAlgoConfigGetAttribute(&offer.algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &reduction,
                                             sizeof reduction, nullptr),
        "cublasLtMatmulAlgoConfigGetAttribute", plan.shape);
  return split == 1 && reduction == CUBLASLT_REDUCTION_SCHEME_NONE;
}

std::optional<Products::Plan> Products::choose(const Shape& shape, const Fused& fused) {
  Plan plan;
  plan.shape = shape;
  cublasLtMatmulDesc_t desc = nullptr;
  // f32 inputs are multiplied as f32: TF32 would be a compute type of its own.
  check(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate", shape);
  plan.desc = LtDesc(desc, device_->releases());
  const std::int32_t transposed = CUBLAS_OP_T;
  check(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed),
        "cublasLtMatmulDescSetAttribute", shape);
  check(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &shape.epilogue,
                                       sizeof shape.epilogue),
        "cublasLtMatmulDescSetAttribute", shape);
  set_bias(plan, fused);

  const auto layout = [&](cudaDataType type, std::int64_t rows, std::int64_t cols) {
    cublasLtMatrixLayout_t made = nullptr;
    check(cublasLtMatrixLayoutCreate(&made, type, static_cast<std::uint64_t>(rows),
                                     static_cast<std::uint64_t>(cols), rows),
          "cublasLtMatrixLayoutCreate", shape);
    return LtLayout(made, device_->releases());
  };
  plan.weights = layout(type_of(shape.bf16), shape.inputs, shape.outputs);
  plan.inputs = layout(type_of(shape.bf16), shape.inputs, kRowTile);
  plan.results = layout(CUDA_R_32F, shape.outputs, kRowTile);

  cublasLtMatmulPreference_t made = nullptr;
  check(cublasLtMatmulPreferenceCreate(&made), "cublasLtMatmulPreferenceCreate", shape);
  const LtPreference preference(made, device_->releases());
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    check(cublasLtMatmulPreferenceSetAttribute(made, attribute, &value, sizeof value),
          "cublasLtMatmulPreferenceSetAttribute", shape);
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(kWorkspaceBytes));
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE));
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    prefer(attribute, kAlignment);

  std::array<cublasLtMatmulHeuristicResult_t, kOffers> offers{};
  int count = 0;
  const auto status = cublasLtMatmulAlgoGetHeuristic(
      handle_.get(), desc, plan.weights.get(), plan.inputs.get(), plan.results.get(), plan.results.get(),
      made, kOffers, offers.data(), &count);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return std::nullopt;
  check(status, "cublasLtMatmulAlgoGetHeuristic", shape);
  for (int i = 0; i < count; ++i) {
    const auto& offer = offers[static_cast<std::size_t>(i)];
    if (!usable(plan, offer)) continue;
    plan.algo = offer.algo;
    return plan;
  }
  return std::nullopt;
}

Products::Plan* Products::find(const Matrix& weight, const Fused& fused) {
  const auto shape = shape_of(weight, fused);
  auto found = plans_.find(shape);
  if (found == plans_.end()) {
    auto plan = choose(shape, fused);
    if (plan) check_agreement(*plan, weight, fused);
    found = plans_.emplace(shape, std::move(plan)).first;
  }
  return found->second ? &*found->second : nullptr;
}

bool Products::serves(const Matrix& weight, const Fused& fused) {
  return find(weight, fused) != nullptr;
}

void Products::run(const Matrix& weight, const StagedRows& x, float* y, std::int64_t y_stride,
                   const Fused& fused) {
  auto* plan = find(weight, fused);
  if (plan == nullptr) {
    throw_refused("CUDA device " + std::to_string(device_->index()) + " (" + device_->name() +
                  "): cuBLASLt " + cublaslt_version() + " offers no algorithm for " +
                  describe(shape_of(weight, fused)) +
                  " that neither splits nor reduces the sum, so rows could not keep their bits: try another "
                  "version of cuBLAS, or --device cpu");
  }
  run(*plan, weight, x, y, y_stride, fused);
}

void Products::run(Plan& plan, const Matrix& weight, const StagedRows& x, float* y, std::int64_t y_stride,
                   const Fused& fused) {
  set_rows(plan, x.rows, x.stride, y_stride);
  set_bias(plan, fused);
  if (plan.seen.insert({x.rows, x.stride, y_stride}).second) {
    cublasLtMatmulHeuristicResult_t result{};
    const auto status =
        cublasLtMatmulAlgoCheck(handle_.get(), plan.desc.get(), plan.weights.get(), plan.inputs.get(),
                                plan.results.get(), plan.results.get(), &plan.algo, &result);
    if (status != CUBLAS_STATUS_SUCCESS) plan.seen.erase({x.rows, x.stride, y_stride});
    check(status, "cublasLtMatmulAlgoCheck", plan.shape);
  }
  const float one = 1;
  const float zero = 0;
  const auto status =
      cublasLtMatmul(handle_.get(), plan.desc.get(), &one, weight.data(), plan.weights.get(), x.data,
                     plan.inputs.get(), &zero, y, plan.results.get(), y, plan.results.get(), &plan.algo,
                     workspace_.data(), kWorkspaceBytes, device_->stream());
  if (status != CUBLAS_STATUS_SUCCESS)
    device_->check(status, "cublasLtMatmul", "running " + describe(plan.shape));
}

void Products::check_agreement(Plan& plan, const Matrix& weight, const Fused& fused) {
  const std::int64_t inputs = plan.shape.inputs;
  const std::int64_t outputs = plan.shape.outputs;
  Scratch trial_inputs;
  Scratch trial_results;
  // The row that is looked at comes last.
  const auto result_of = [&](std::int64_t others) {
    const std::int64_t rows = padded_rows_of(others + 1);
    std::vector<float> values(static_cast<std::size_t>(rows * inputs));
    for (std::int64_t row = 0; row <= others; ++row) {
      const auto content = trial_row(inputs, row == others ? 0U : static_cast<std::uint32_t>(row + 1));
      std::copy(content.begin(), content.end(), values.begin() + row * inputs);
    }
    auto* x = trial_inputs.get<std::byte>(*device_, rows * inputs * weight.element());
    if (plan.shape.bf16) {
      std::vector<std::uint16_t> narrow(values.size());
      for (std::size_t i = 0; i < values.size(); ++i) narrow[i] = f32_to_bf16(values[i]);
      staging_.upload(x, std::as_bytes(std::span(narrow)));
    } else {
      staging_.upload(x, std::as_bytes(std::span(values)));
    }
    auto* y = trial_results.get<float>(*device_, rows * outputs);
    run(plan, weight, {x, rows, inputs}, y, outputs, fused);
    std::vector<float> row(static_cast<std::size_t>(outputs));
    staging_.download(std::as_writable_bytes(std::span(row)),
                      reinterpret_cast<const std::byte*>(y + others * outputs));
    return row;
  };
  const auto alone = result_of(0);
  for (const auto others : kCompany) {
    const auto among = result_of(others);
    if (std::memcmp(alone.data(), among.data(), alone.size() * sizeof(float)) == 0) continue;
    throw_refused(
        "CUDA device " + std::to_string(device_->index()) + " (" + device_->name() + "): cuBLASLt " +
        cublaslt_version() + " gives a row other bits alone than among " + std::to_string(others) +
        " others in " + describe(plan.shape) +
        ", so splitting and grouping would change what the model says: use another version of cuBLAS, "
        "or --device cpu");
  }
}

}  // namespace diffuse::cuda
