// Heuristics and the product itself: plain loops in double, each output element one chain over ascending k.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "describe.hpp"
#include "standin_cublaslt.hpp"
#include "standin_faults.hpp"
#include "standin_runtime.hpp"

namespace standin {
namespace {

using lt::Algo;
using lt::Desc;
using lt::Layout;
using lt::load;
using lt::Preference;
using lt::refuse;
using lt::store;

constexpr std::uint64_t kMagic = 0x616c676f72697468ULL;
constexpr std::uint32_t kWorkspace = 4096;
constexpr std::uint32_t kWorkspaceAlignment = 16;
// Rows of one call beyond which the "uneven" library sums in another order.
constexpr std::uint64_t kEvenRows = 64;

std::string& word() {
  static auto* held = new std::string(
      std::getenv("DIFFUSE_STANDIN_CUBLASLT") == nullptr ? "" : std::getenv("DIFFUSE_STANDIN_CUBLASLT"));
  return *held;
}

std::size_t size_of(std::uint32_t type) {
  return type == CUDA_R_32F ? 4 : 2;
}

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  return (hash ^ value) * 0x9e3779b97f4a7c15ULL + (hash >> 29);
}

struct Problem {
  Desc desc;
  Layout a, b, c, d;

  bool transposed_a() const { return desc.trans_a == CUBLAS_OP_T; }
  bool transposed_b() const { return desc.trans_b == CUBLAS_OP_T; }
  std::uint64_t m() const { return transposed_a() ? a.cols : a.rows; }
  std::uint64_t k() const { return transposed_a() ? a.rows : a.cols; }
  std::uint64_t n() const { return transposed_b() ? b.rows : b.cols; }
  // The number of columns is left out: an algorithm may serve them all, and AlgoCheck says so.
  std::uint64_t hash() const {
    std::uint64_t hash = 1;
    for (const std::uint64_t value :
         {m(), k(), std::uint64_t{a.type}, std::uint64_t{b.type}, std::uint64_t{d.type},
          static_cast<std::uint64_t>(a.order), static_cast<std::uint64_t>(b.order),
          static_cast<std::uint64_t>(d.order), static_cast<std::uint64_t>(desc.compute),
          static_cast<std::uint64_t>(desc.trans_a), static_cast<std::uint64_t>(desc.trans_b),
          std::uint64_t{desc.epilogue}})
      hash = mix(hash, value);
    return hash;
  }
};

bool good_layout(const Layout& layout) {
  const bool column = layout.order == CUBLASLT_ORDER_COL;
  if (!column && layout.order != CUBLASLT_ORDER_ROW) return false;
  return layout.rows > 0 && layout.cols > 0 && layout.batch == 1 &&
         layout.ld >= static_cast<std::int64_t>(column ? layout.rows : layout.cols);
}

// Fills in the problem, or says what is wrong with its description.
cublasStatus_t describe(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                        cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                        Problem& problem) {
  if (!is_registered(handle, "cuBLASLt handle"))
    return refuse(CUBLAS_STATUS_NOT_INITIALIZED, "a handle that is not alive");
  if (!is_registered(desc, "matmul descriptor"))
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "a matmul descriptor that is not alive");
  for (auto* layout : {a, b, c, d}) {
    if (!is_registered(layout, "matrix layout"))
      return refuse(CUBLAS_STATUS_INVALID_VALUE, "a matrix layout that is not alive");
    if (!good_layout(load<Layout>(layout)))
      return refuse(CUBLAS_STATUS_INVALID_VALUE,
                    "a matrix layout of no size, a short ld or an unknown order");
  }
  problem = {load<Desc>(desc), load<Layout>(a), load<Layout>(b), load<Layout>(c), load<Layout>(d)};
  const auto k_of_b = problem.transposed_b() ? problem.b.cols : problem.b.rows;
  const auto same_shape = [&](const Layout& layout) {
    return layout.rows == problem.m() && layout.cols == problem.n();
  };
  if (problem.k() != k_of_b || !same_shape(problem.c) || !same_shape(problem.d))
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "matrices of shapes that do not fit");
  if (problem.desc.compute != CUBLAS_COMPUTE_32F || problem.desc.scale != CUDA_R_32F)
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "compute and scale are to be f32");
  const bool narrow = problem.a.type == CUDA_R_16BF && problem.b.type == CUDA_R_16BF;
  const bool wide = problem.a.type == CUDA_R_32F && problem.b.type == CUDA_R_32F;
  if ((!narrow && !wide) || problem.d.type != CUDA_R_32F || problem.c.type != CUDA_R_32F)
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "types other than bf16 x bf16 or f32 x f32 into f32");
  switch (problem.desc.epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_RELU:
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_RELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
      break;
    default:
      return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "an epilogue that is not modelled");
  }
  if (problem.desc.bias_type != -1 && problem.desc.bias_type != CUDA_R_32F)
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "a bias that is not f32");
  return CUBLAS_STATUS_SUCCESS;
}

struct Offer {
  std::int32_t split_k;
  std::uint32_t reduction;
  bool supported;
};

double element(const void* data, const Layout& layout, std::uint64_t row, std::uint64_t col) {
  const auto ld = static_cast<std::uint64_t>(layout.ld);
  const auto index = layout.order == CUBLASLT_ORDER_COL ? col * ld + row : row * ld + col;
  if (layout.type == CUDA_R_32F) return static_cast<const float*>(data)[index];
  const std::uint32_t bits = static_cast<std::uint32_t>(static_cast<const std::uint16_t*>(data)[index]) << 16;
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

double gelu_tanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

double finished(double value, const Desc& desc, const float* bias, std::uint64_t row) {
  if ((desc.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0) value += bias[row];
  if ((desc.epilogue & CUBLASLT_EPILOGUE_RELU) != 0) value = value < 0 ? 0 : value;
  if ((desc.epilogue & CUBLASLT_EPILOGUE_GELU) != 0) value = gelu_tanh(value);
  return value;
}

struct Call {
  Desc desc;
  Layout a, b, c, d;
  bool transposed_a, transposed_b;
  std::uint64_t m, n, k;
  double alpha, beta;
  const void* a_data;
  const void* b_data;
  const float* c_data;
  float* d_data;
  bool uneven;
  bool wrong;
};

constexpr std::uint64_t kBlock = 8;

// What the products of the "wrong" library are too large by.
constexpr double kWrong = 1 + 1.0 / 64;

// Row `lane` of the block [k][kBlock] times a column, in another order and precision: as of a library that
// looks at the number of rows.
double backwards(const std::vector<double>& block, std::uint64_t lane, const double* column,
                 std::uint64_t depth) {
  float sum = 0;
  for (std::uint64_t k = depth; k-- > 0;)
    sum += static_cast<float>(block[k * kBlock + lane]) * static_cast<float>(column[k]);
  return sum;
}

float& output_at(float* data, const Layout& layout, std::uint64_t row, std::uint64_t col) {
  const auto ld = static_cast<std::uint64_t>(layout.ld);
  return data[layout.order == CUBLASLT_ORDER_COL ? col * ld + row : row * ld + col];
}

void multiply(const Call& call) {
  // Columns of op(B), one after the other; those of zeros are what pads a product, and need no sum.
  std::vector<double> columns(call.n * call.k);
  std::vector<bool> empty(call.n, true);
  for (std::uint64_t col = 0; col < call.n; ++col) {
    for (std::uint64_t k = 0; k < call.k; ++k) {
      const double value =
          call.transposed_b ? element(call.b_data, call.b, col, k) : element(call.b_data, call.b, k, col);
      columns[col * call.k + k] = value;
      empty[col] = empty[col] && value == 0;
    }
  }
  std::vector<double> block(call.k * kBlock);
  for (std::uint64_t first = 0; first < call.m; first += kBlock) {
    const std::uint64_t count = std::min(kBlock, call.m - first);
    for (std::uint64_t i = 0; i < count; ++i) {
      for (std::uint64_t k = 0; k < call.k; ++k)
        block[k * kBlock + i] = call.transposed_a ? element(call.a_data, call.a, k, first + i)
                                                  : element(call.a_data, call.a, first + i, k);
    }
    for (std::uint64_t col = 0; col < call.n; ++col) {
      const double* column = columns.data() + col * call.k;
      double sums[kBlock] = {};
      if (call.uneven && call.n > kEvenRows) {
        for (std::uint64_t i = 0; i < count; ++i) sums[i] = backwards(block, i, column, call.k);
      } else if (!empty[col]) {
        for (std::uint64_t k = 0; k < call.k; ++k)
          for (std::uint64_t i = 0; i < kBlock; ++i) sums[i] += block[k * kBlock + i] * column[k];
      }
      for (std::uint64_t i = 0; i < count; ++i) {
        double value = call.alpha * sums[i] * (call.wrong ? kWrong : 1);
        if (call.beta != 0)
          value += call.beta * output_at(const_cast<float*>(call.c_data), call.c, first + i, col);
        output_at(call.d_data, call.d, first + i, col) = static_cast<float>(
            finished(value, call.desc, static_cast<const float*>(call.desc.bias), first + i));
      }
    }
  }
}

Range range_of(const void* data, const Layout& layout) {
  const bool column = layout.order == CUBLASLT_ORDER_COL;
  const auto runs = column ? layout.cols : layout.rows;
  const auto length = column ? layout.rows : layout.cols;
  return {data, ((runs - 1) * static_cast<std::uint64_t>(layout.ld) + length) * size_of(layout.type)};
}

bool aligned(const void* data, std::uint32_t alignment) {
  return reinterpret_cast<std::uintptr_t>(data) % alignment == 0;
}

cublasStatus_t check_algo(const Problem& problem, const Algo& algo) {
  if (algo.magic != kMagic)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "an algorithm that was never given out");
  if (algo.problem != problem.hash())
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "an algorithm that was given out for another problem");
  if (algo.supported == 0)
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "an algorithm that is not supported here");
  for (const auto* layout : {&problem.a, &problem.b, &problem.d}) {
    const auto step = static_cast<std::uint64_t>(layout->ld) * size_of(layout->type);
    if (step % 16 != 0) return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "columns that do not start at 16 bytes");
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t begin_call(const char* function) {
  const auto code = injected(function, CUBLAS_STATUS_EXECUTION_FAILED);
  return code ? static_cast<cublasStatus_t>(*code) : CUBLAS_STATUS_SUCCESS;
}

}  // namespace

void set_cublaslt(const std::string& text) {
  word() = text;
}

}  // namespace standin

using namespace standin;  // NOLINT(google-build-using-namespace): the interface is in C

extern "C" {

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t* results, int* returned) {
  if (const auto fault = begin_call("cublasLtMatmulAlgoGetHeuristic"); fault != CUBLAS_STATUS_SUCCESS)
    return fault;
  Problem problem;
  if (const auto status = describe(handle, desc, a, b, c, d, problem); status != CUBLAS_STATUS_SUCCESS)
    return status;
  if (!is_registered(preference, "matmul preference") || requested < 1 || results == nullptr ||
      returned == nullptr)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "heuristics without a preference or room for results");
  const auto wanted = load<Preference>(preference);
  std::vector<Offer> offers = {{4, CUBLASLT_REDUCTION_SCHEME_INPLACE, true},
                               {3, CUBLASLT_REDUCTION_SCHEME_NONE, true},
                               {1, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, true},
                               {1, CUBLASLT_REDUCTION_SCHEME_NONE, false},
                               {1, CUBLASLT_REDUCTION_SCHEME_NONE, true}};
  if (word() == "split-only") offers.resize(3);
  if (word() == "none" || wanted.workspace < kWorkspace) offers.clear();
  *returned = static_cast<int>(std::min<std::size_t>(offers.size(), static_cast<std::size_t>(requested)));
  for (int i = 0; i < *returned; ++i) {
    const auto& offer = offers[static_cast<std::size_t>(i)];
    auto& result = results[i];
    result = {};
    Algo algo{kMagic,          problem.hash(), i + 1, offer.split_k,
              offer.reduction, kWorkspace,     {},    offer.supported ? 1U : 0U};
    std::copy_n(wanted.alignment, 4, algo.alignment);
    store(&result.algo, algo);
    result.workspaceSize = kWorkspace;
    result.state = offer.supported ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return *returned == 0 ? refuse(CUBLAS_STATUS_NOT_SUPPORTED, "no algorithm") : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algo,
                                       cublasLtMatmulHeuristicResult_t* result) {
  if (const auto fault = begin_call("cublasLtMatmulAlgoCheck"); fault != CUBLAS_STATUS_SUCCESS) return fault;
  Problem problem;
  if (const auto status = describe(handle, desc, a, b, c, d, problem); status != CUBLAS_STATUS_SUCCESS)
    return status;
  if (algo == nullptr || result == nullptr)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "no algorithm to check");
  const auto held = load<Algo>(algo);
  if (const auto status = check_algo(problem, held); status != CUBLAS_STATUS_SUCCESS) return status;
  *result = {};
  result->algo = *algo;
  result->workspaceSize = held.workspace;
  result->state = CUBLAS_STATUS_SUCCESS;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algo, void* workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
  if (const auto fault = begin_call("cublasLtMatmul"); fault != CUBLAS_STATUS_SUCCESS) return fault;
  Problem problem;
  if (const auto status = describe(handle, desc, a_layout, b_layout, c_layout, d_layout, problem);
      status != CUBLAS_STATUS_SUCCESS)
    return status;
  if (algo == nullptr)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "an algorithm chosen by the library itself");
  const auto held = load<Algo>(algo);
  if (const auto status = check_algo(problem, held); status != CUBLAS_STATUS_SUCCESS) return status;
  if (held.split_k != 1 || held.reduction != CUBLASLT_REDUCTION_SCHEME_NONE)
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "an algorithm that splits the sum or reduces");
  if (workspace_bytes < held.workspace || workspace == nullptr || !aligned(workspace, kWorkspaceAlignment))
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "a workspace that is too small or not aligned");
  if (!aligned(a, held.alignment[0]) || !aligned(b, held.alignment[1]) || !aligned(c, held.alignment[2]) ||
      !aligned(d, held.alignment[3]))
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "a matrix is less aligned than the algorithm was asked for");
  const auto device = device_of_stream(stream);
  if (device != handle->device)
    return refuse(CUBLAS_STATUS_ARCH_MISMATCH, "a stream of another device than the handle's");
  const bool with_bias = (problem.desc.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
  if (with_bias && problem.desc.bias == nullptr)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "an epilogue with a bias that is null");
  Call call{.desc = problem.desc,
            .a = problem.a,
            .b = problem.b,
            .c = problem.c,
            .d = problem.d,
            .transposed_a = problem.transposed_a(),
            .transposed_b = problem.transposed_b(),
            .m = problem.m(),
            .n = problem.n(),
            .k = problem.k(),
            .alpha = *static_cast<const float*>(alpha),
            .beta = *static_cast<const float*>(beta),
            .a_data = a,
            .b_data = b,
            .c_data = static_cast<const float*>(c),
            .d_data = static_cast<float*>(d),
            .uneven = word() == "uneven",
            .wrong = word() == "wrong"};
  std::vector<Range> ranges = {
      range_of(a, call.a), range_of(b, call.b), range_of(d, call.d), {workspace, held.workspace}};
  if (call.beta != 0) ranges.push_back(range_of(c, call.c));
  if (with_bias) ranges.push_back({call.desc.bias, call.m * sizeof(float)});
  call.a_data = reach(a);
  call.b_data = reach(b);
  call.c_data = static_cast<const float*>(reach(c));
  call.d_data = static_cast<float*>(reach(d));
  if (with_bias) call.desc.bias = reach(call.desc.bias);
  const auto queued = enqueue_library(
      stream, [call] { multiply(call); }, ranges);
  return queued == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
