// The cuBLASLt stand-in computes what the descriptors say, and refuses what they may not say.

#include <cublasLt.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "standin_cublaslt.hpp"
#include "standin_faults.hpp"
#include "standin_runtime.hpp"

namespace {

constexpr std::size_t kWorkspaceBytes = 1 << 16;

// D [outputs, columns] = op(A) B, A stored as [depth, outputs] and transposed, all column by column.
struct Product {
  Product(std::uint64_t outputs, std::uint64_t columns, std::uint64_t depth, cudaDataType type = CUDA_R_32F,
          std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT) {
    cublasLtCreate(&handle);
    cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    const std::int32_t transposed = CUBLAS_OP_T;
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    const auto ld = static_cast<std::int64_t>(depth);
    const auto out_ld = static_cast<std::int64_t>(outputs);
    cublasLtMatrixLayoutCreate(&a, type, depth, outputs, ld);
    cublasLtMatrixLayoutCreate(&b, type, depth, columns, ld);
    cublasLtMatrixLayoutCreate(&d, CUDA_R_32F, outputs, columns, out_ld);
    cublasLtMatmulPreferenceCreate(&preference);
    const std::uint64_t most = kWorkspaceBytes;
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most,
                                         sizeof most);
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaMalloc(&a_data, depth * outputs * 4);
    cudaMalloc(&b_data, depth * columns * 4);
    cudaMalloc(&d_data, outputs * columns * 4);
    cudaMalloc(&bias, outputs * 4);
    cudaMalloc(&workspace, kWorkspaceBytes);
  }
  ~Product() {
    for (auto* memory : {a_data, b_data, d_data, bias, workspace}) cudaFree(memory);
    cudaStreamDestroy(stream);
    for (auto* layout : {a, b, d}) cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulPreferenceDestroy(preference);
    cublasLtMatmulDescDestroy(desc);
    cublasLtDestroy(handle);
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  std::vector<cublasLtMatmulHeuristicResult_t> offers() {
    std::vector<cublasLtMatmulHeuristicResult_t> results(16);
    int count = 0;
    status = cublasLtMatmulAlgoGetHeuristic(handle, desc, a, b, d, d, preference,
                                            static_cast<int>(results.size()), results.data(), &count);
    results.resize(static_cast<std::size_t>(count));
    return results;
  }

  cublasStatus_t run(const cublasLtMatmulAlgo_t& algo, std::size_t workspace_bytes = kWorkspaceBytes) {
    const float one = 1;
    const float zero = 0;
    return cublasLtMatmul(handle, desc, &one, a_data, a, b_data, b, &zero, d_data, d, d_data, d, &algo,
                          workspace, workspace_bytes, stream);
  }

  static void put(void* to, const std::vector<float>& values) {
    cudaMemcpy(to, values.data(), values.size() * 4, cudaMemcpyHostToDevice);
  }
  std::vector<float> result(std::size_t count) {
    std::vector<float> values(count);
    cudaStreamSynchronize(stream);
    cudaMemcpy(values.data(), d_data, count * 4, cudaMemcpyDeviceToHost);
    return values;
  }

  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  cudaStream_t stream = nullptr;
  void *a_data = nullptr, *b_data = nullptr, *d_data = nullptr, *bias = nullptr, *workspace = nullptr;
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
};

class StandinCublasLt : public testing::Test {
 protected:
  void TearDown() override {
    standin::set_cublaslt("");
    standin::inject("");
    EXPECT_EQ(standin::live_objects(), before_);
  }
  std::size_t before_ = standin::live_objects();
};

TEST_F(StandinCublasLt, MultipliesWithBiasAndActivation) {
  for (const std::uint32_t epilogue : {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS,
                                       CUBLASLT_EPILOGUE_RELU_BIAS, CUBLASLT_EPILOGUE_GELU_BIAS}) {
    Product product(12, 5, 8, CUDA_R_32F, epilogue);
    std::vector<float> a(96), b(40), bias(12);
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 7) - 3.0F;
    for (std::size_t i = 0; i < b.size(); ++i) b[i] = 0.25F * static_cast<float>(i % 5) - 0.4F;
    for (std::size_t i = 0; i < bias.size(); ++i) bias[i] = 0.1F * static_cast<float>(i);
    Product::put(product.a_data, a);
    Product::put(product.b_data, b);
    Product::put(product.bias, bias);
    cublasLtMatmulDescSetAttribute(product.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &product.bias,
                                   sizeof product.bias);
    ASSERT_EQ(product.run(product.offers().back().algo), CUBLAS_STATUS_SUCCESS);
    const auto found = product.result(60);
    for (std::size_t col = 0; col < 5; ++col) {
      for (std::size_t row = 0; row < 12; ++row) {
        double sum = 0;
        for (std::size_t k = 0; k < 8; ++k) sum += a[row * 8 + k] * b[col * 8 + k];
        if (epilogue != CUBLASLT_EPILOGUE_DEFAULT) sum += bias[row];
        if (epilogue == CUBLASLT_EPILOGUE_RELU_BIAS) sum = std::max(sum, 0.0);
        if (epilogue == CUBLASLT_EPILOGUE_GELU_BIAS)
          sum = sum / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (sum + 0.044715 * sum * sum * sum)));
        EXPECT_NEAR(found[col * 12 + row], sum, 1e-5) << epilogue;
      }
    }
  }
}

TEST_F(StandinCublasLt, OffersBadAlgorithmsFirstAndRefusesThemAtWork) {
  Product product(16, 64, 16);
  const auto offers = product.offers();
  ASSERT_EQ(offers.size(), 5U);
  for (std::size_t i = 0; i < 4; ++i) {
    std::int32_t split = 0;
    std::uint32_t reduction = 0;
    cublasLtMatmulAlgoConfigGetAttribute(&offers[i].algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split, 4,
                                         nullptr);
    cublasLtMatmulAlgoConfigGetAttribute(&offers[i].algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &reduction,
                                         4, nullptr);
    EXPECT_TRUE(split != 1 || reduction != 0 || offers[i].state != CUBLAS_STATUS_SUCCESS) << i;
    EXPECT_EQ(product.run(offers[i].algo), CUBLAS_STATUS_NOT_SUPPORTED) << i;
  }
  standin::set_cublaslt("split-only");
  EXPECT_EQ(product.offers().size(), 3U);
  standin::set_cublaslt("none");
  EXPECT_TRUE(product.offers().empty());
  EXPECT_EQ(product.status, CUBLAS_STATUS_NOT_SUPPORTED);
}

TEST_F(StandinCublasLt, ChecksDescriptorsPointersAndWorkspace) {
  Product product(16, 64, 16);
  Product other(16, 64, 32);
  Product longer(16, 128, 16);
  const auto algo = product.offers().back().algo;
  EXPECT_EQ(product.run(algo, 100), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(standin::cublaslt_problem(), "a workspace that is too small or not aligned");
  EXPECT_EQ(other.run(algo), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(standin::cublaslt_problem(), "an algorithm that was given out for another problem");
  EXPECT_EQ(longer.run(algo), CUBLAS_STATUS_SUCCESS) << "another number of columns";
  cudaStreamSynchronize(longer.stream);

  EXPECT_EQ(product.run(cublasLtMatmulAlgo_t{}), CUBLAS_STATUS_INVALID_VALUE);
  const std::int64_t short_ld = 8;
  EXPECT_EQ(cublasLtMatrixLayoutSetAttribute(product.d, CUBLASLT_MATRIX_LAYOUT_LD, &short_ld, 4),
            CUBLAS_STATUS_INVALID_VALUE)
      << "a value of another size";
  cublasLtMatrixLayoutSetAttribute(product.d, CUBLASLT_MATRIX_LAYOUT_LD, &short_ld, 8);
  EXPECT_EQ(product.run(algo), CUBLAS_STATUS_INVALID_VALUE);
  const std::int64_t ld = 16;
  cublasLtMatrixLayoutSetAttribute(product.d, CUBLASLT_MATRIX_LAYOUT_LD, &ld, 8);

  auto* whole = product.b_data;
  product.b_data = static_cast<char*>(whole) + 64;
  EXPECT_EQ(product.run(algo), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(standin::cublaslt_problem(), "a matrix is less aligned than the algorithm was asked for");
  product.b_data = whole;

  const std::uint32_t biased = CUBLASLT_EPILOGUE_BIAS;
  cublasLtMatmulDescSetAttribute(product.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &biased, 4);
  EXPECT_EQ(product.run(algo), CUBLAS_STATUS_INVALID_VALUE) << "chosen for another epilogue";
  EXPECT_EQ(product.run(product.offers().back().algo), CUBLAS_STATUS_INVALID_VALUE) << "no bias";
  standin::inject("cublasLtMatmul:1");
  EXPECT_EQ(product.run(algo), CUBLAS_STATUS_EXECUTION_FAILED);
}

TEST_F(StandinCublasLt, RunsInStreamOrderAndCanBreakTheAgreementOfRows) {
  Product few(16, 64, 100);
  Product many(16, 128, 100);
  const auto run = [](Product& product, std::uint64_t columns) {
    std::vector<float> a(1600), b(100 * columns);
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = std::sin(static_cast<float>(i));
    for (std::size_t i = 0; i < b.size(); ++i) b[i] = std::cos(static_cast<float>(i));
    Product::put(product.a_data, a);
    Product::put(product.b_data, b);
    EXPECT_EQ(product.run(product.offers().back().algo), CUBLAS_STATUS_SUCCESS);
    return product.result(16);
  };
  EXPECT_EQ(run(few, 64), run(many, 128));
  standin::set_cublaslt("uneven");
  EXPECT_NE(run(few, 64), run(many, 128));
}

}  // namespace
