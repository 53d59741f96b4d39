// What is the CUDA backend's own: its choice of products, copies, and what happens when a library fails. Runs
// over the stand-ins.

#include "harness.hpp"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <numeric>

#include "core/error.hpp"
#include "standin_cublaslt.hpp"
#include "standin_faults.hpp"
#include "standin_runtime.hpp"

namespace diffuse::test {
namespace {

class CudaStandin : public ::testing::Test {
 protected:
  void TearDown() override {
    standin::inject("");
    standin::set_cublaslt("");
    standin::reset_device();
    EXPECT_EQ(standin::live_objects(), before_) << "something was not freed";
  }
  std::size_t before_ = standin::live_objects();
};

std::string error_of(const std::function<void()>& run, ExitCode code) {
  try {
    run();
  } catch (const Error& problem) {
    EXPECT_EQ(problem.code(), code) << problem.what();
    return problem.what();
  }
  return {};
}

// One product of f32 weights [outputs, 32].
void multiply(std::int64_t outputs) {
  auto backend = make({kCuda, Compute::f32});
  const Stored weight(Table::random(outputs, 32, 1), DType::f32);
  const HostMatrix parts[] = {weight.view()};
  const Table x = Table::random(3, 32, 2);
  Table y(3, outputs);
  backend->matmul(x.view(), *backend->pack(parts), y.view(), {});
}

TEST_F(CudaStandin, RefusesALibraryThatBreaksTheAgreementOfRows) {
  standin::set_cublaslt("uneven");
  const auto message = error_of([] { multiply(24); }, ExitCode::refused);
  EXPECT_NE(message.find(
                "gives a row other bits alone than among 64 others in products of 32 inputs by 24 outputs"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("cuBLASLt 13.0.0"), std::string::npos) << message;
  EXPECT_NE(message.find("Stand-in"), std::string::npos) << message;
}

TEST_F(CudaStandin, RefusesWhereEveryAlgorithmSplitsTheSum) {
  for (const auto* word : {"split-only", "none"}) {
    standin::set_cublaslt(word);
    const auto message = error_of([] { multiply(24); }, ExitCode::refused);
    EXPECT_NE(message.find("offers no algorithm for products of 32 inputs by 24 outputs in f32"),
              std::string::npos)
        << message;
  }
}

// Rows that fill their tiles are stored where they belong, others by way of a padded place.
TEST_F(CudaStandin, EveryWayOfAProductGivesTheSameBits) {
  for (const auto compute : {Compute::f32, Compute::bf16}) {
    auto backend = make({kCuda, compute});
    const Stored weight(Table::random(72, 48, 3), DType::bf16);
    const HostMatrix parts[] = {weight.view()};
    const auto packed = backend->pack(parts);
    const Table x = Table::random(128, 48, 4);
    const Table crooked_x = [&] {
      Table copy(128, 48, 1);
      for (std::int64_t r = 0; r < 128; ++r)
        for (std::int64_t c = 0; c < 48; ++c) copy.at(r, c) = x.at(r, c);
      return copy;
    }();
    const Table bias = Table::random(1, 72, 5);
    for (const auto* with : {static_cast<const float*>(nullptr), bias.row(0)}) {
      for (const auto kind : {Activation::none, Activation::silu, Activation::gelu_erf, Activation::gelu_tanh,
                              Activation::quick_gelu, Activation::relu, Activation::relu_squared}) {
        for (const float scale : {1.0F, 0.5F}) {
          const Epilogue epilogue{.bias = with, .activation = kind, .scale = scale};
          Table direct(128, 72);
          backend->matmul(x.view(), *packed, direct.view(), epilogue);
          Table crooked(128, 72, 3);
          backend->matmul(crooked_x.view(), *packed, crooked.view(), epilogue);
          EXPECT_TRUE(same_bits(direct, crooked));
          Table alone(128, 72);
          for (const std::int64_t r : {0, 5, 127})
            backend->matmul(x.view(r, 1), *packed, alone.view(r, 1), epilogue);
          for (const std::int64_t r : {0, 5, 127})
            EXPECT_TRUE(same_bits(direct.row(r), alone.row(r), 72)) << r;
          Table added = direct;
          Epilogue accumulated = epilogue;
          accumulated.accumulate = true;
          backend->matmul(x.view(), *packed, added.view(), accumulated);
          Difference difference;
          for (std::int64_t r = 0; r < 128; ++r) {
            for (std::int64_t c = 0; c < 72; ++c) difference.see(2.0 * direct.at(r, c), added.at(r, c));
          }
          EXPECT_LT(difference.relative(), allowed(DeviceOp::product, compute))
              << "a fused epilogue is not what ours is";
        }
      }
    }
  }
}

TEST_F(CudaStandin, UploadsTakeTheirBytesAtTheCall) {
  auto backend = make_cuda_backend({.device = 0, .compute = Compute::f32});
  // More than the ring of pinned memory holds, in pieces of odd sizes.
  constexpr std::size_t kCount = (std::size_t{40} << 20) + 12;
  const auto buffer = backend->allocate(kCount);
  std::vector<std::byte> sent(kCount);
  for (std::size_t i = 0; i < kCount; ++i) sent[i] = static_cast<std::byte>(i * 7 + i / 1000);
  std::size_t at = 0;
  for (std::size_t size = 1; at < kCount; size = size * 3 + 1) {
    size = std::min(size, kCount - at);
    auto piece = std::vector<std::byte>(sent.begin() + static_cast<std::ptrdiff_t>(at),
                                        sent.begin() + static_cast<std::ptrdiff_t>(at + size));
    backend->upload(buffer.data() + at, piece);
    std::fill(piece.begin(), piece.end(), std::byte{0});
    at += size;
  }
  std::vector<std::byte> received(kCount);
  backend->download(received, buffer.data());
  EXPECT_TRUE(sent == received);
}

TEST_F(CudaStandin, MemoryOutlivesItsBackend) {
  Buffer buffer;
  {
    auto backend = make_cuda_backend({.device = 0, .compute = Compute::bf16});
    buffer = backend->allocate(100);
    EXPECT_GT(standin::live_objects(), before_);
  }
  EXPECT_GT(standin::live_objects(), before_);
}

TEST_F(CudaStandin, SaysWhatItRunsOn) {
  auto backend = make_cuda_backend({.device = 0, .compute = Compute::bf16});
  EXPECT_EQ(backend->target(), "sm_90 Stand-in, cuBLASLt 13.0.0");
  const auto facts = backend->device();
  EXPECT_EQ(facts.name, "Stand-in");
  EXPECT_EQ(facts.id, "GPU-5d5d5d5d-5d5d-5d5d-5d5d-5d5d5d5d5d00");
  EXPECT_GT(facts.free_bytes, 0U);
  EXPECT_NE(facts.stream, nullptr);
  EXPECT_FALSE(backend->host_addressable());
}

// Everything that a backend does, in a small size. `released` is to be called afterwards.
void work(std::function<void()>* released = nullptr) {
  auto backend = make({kCuda, Compute::bf16});
  if (released != nullptr) *released = backend->released();
  const Stored weight(Table::random(40, 24, 6), DType::bf16);
  const Stored odd(Table::random(13, 23, 7), DType::f16);
  const HostMatrix parts[] = {weight.view()};
  const HostMatrix odd_parts[] = {odd.view()};
  const auto packed = backend->pack(parts);
  const auto packed_odd = backend->pack(odd_parts);
  const Table bias = Table::random(1, 40, 8);
  Table x = Table::random(5, 24, 9);
  Table y(5, 40);
  backend->matmul(x.view(), *packed, y.view(), {.bias = bias.row(0), .activation = Activation::relu});
  const std::vector<std::int32_t> ids{3, 0, 39, 7, 7};
  backend->embed(*packed, ids, 1.0F, x.view());
  Table narrow(5, 23);
  const std::vector<std::int32_t> few{3, 0, 12, 7, 7};
  backend->embed(*packed_odd, few, 1.0F, narrow.view());
  backend->norm({.x = x.view(), .y = x.view(), .eps = 1e-6F});
  backend->softcap(x.view(), 3.0F);

  KvPool pool{{2, 4, 4}, {}};
  pool.memory = backend->allocate(2 * backend->kv_page_bytes(pool.spec));
  const std::vector<std::int32_t> pages{1, 0};
  const std::vector<Segment> segments{{0, 5, 62, pages}};
  const Table kv = Table::random(5, 8, 10);
  backend->kv_write(pool, kv.view(), kv.view(), segments);
  Table out(5, 16);
  const Table q = Table::random(5, 16, 11);
  backend->attend({.q = q.view(), .out = out.view(), .kv = &pool, .segments = segments, .heads = 4});

  const Stored up(Table::random(16, 24, 12), DType::bf16);
  const Stored down(Table::random(24, 8, 13), DType::bf16);
  const Stored router(Table::random(2, 24, 14), DType::bf16);
  const HostMatrix up_parts[] = {up.view()};
  const HostMatrix down_parts[] = {down.view()};
  const HostMatrix router_parts[] = {router.view()};
  const ExpertWeights expert{.gate_up = backend->pack(up_parts), .down = backend->pack(down_parts)};
  const std::vector<ExpertWeights> experts{expert, expert};
  const auto packed_router = backend->pack(router_parts, WeightUse::router);
  Table mixed(5, 24);
  backend->experts(
      {.x = x.view(), .out = mixed.view(), .router = packed_router.get(), .experts = experts, .top_k = 1});
  std::vector<std::int32_t> best(5);
  backend->argmax(mixed.view(), best);
  backend->synchronize();
  backend->device();
}

TEST_F(CudaStandin, AFaultAtAnyCallIsAnErrorThatNamesIt) {
  standin::inject("");
  work();
  const auto counts = standin::call_counts();
  EXPECT_GE(counts.size(), 35U);
  int faults = 0;
  for (const auto& [function, count] : counts) {
    for (int call = 1; call <= count; ++call, ++faults) {
      standin::inject(function + ":" + std::to_string(call));
      std::string message;
      std::function<void()> released;
      try {
        work(&released);
        released();
      } catch (const Error& problem) {
        message = problem.what();
      }
      EXPECT_TRUE(standin::fault_happened()) << function << " " << call;
      const auto named = function == "kernel"             ? std::string("an illegal memory access")
                         : function == "cudaLaunchKernel" ? std::string("a kernel's launch")
                                                          : function;
      EXPECT_NE(message.find(named), std::string::npos) << function << " " << call << ": " << message;
      EXPECT_EQ(message.find('\n'), std::string::npos);
      standin::inject("");
      standin::reset_device();
      ASSERT_EQ(standin::live_objects(), before_) << function << " " << call;
    }
  }
  EXPECT_GT(faults, 300);
  RecordProperty("faults", faults);
}

TEST_F(CudaStandin, AFailedWaitIsAnErrorWhereItsResultIsNeeded) {
  auto backend = make_cuda_backend({.device = 0, .compute = Compute::f32});
  const auto buffer = backend->allocate(16);
  std::vector<std::byte> bytes(16);
  standin::inject("cudaStreamSynchronize:1");
  EXPECT_NE(
      error_of([&] { backend->download(bytes, buffer.data()); }, ExitCode::io).find("copying from the card"),
      std::string::npos);
  standin::inject("cudaStreamSynchronize:1");
  EXPECT_NE(error_of([&] { backend->synchronize(); }, ExitCode::io).find("running the queued operations"),
            std::string::npos);
}

// What a process in other surroundings says, and its exit code.
void try_to_start(const std::string& name, const std::string& value, int device) {
  setenv(name.c_str(), value.c_str(), 1);
  try {
    auto backend = make_cuda_backend({.device = device, .compute = Compute::f32});
    backend->allocate(std::size_t{1} << 30);
  } catch (const Error& problem) {
    std::fprintf(stderr, "%s\n", problem.what());
    std::exit(static_cast<int>(problem.code()));
  }
  std::exit(0);
}

using CudaStandinDeathTest = CudaStandin;

TEST_F(CudaStandinDeathTest, SaysWhatIsMissing) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto code = [](ExitCode exit) { return testing::ExitedWithCode(static_cast<int>(exit)); };
  EXPECT_EXIT(
      try_to_start("DIFFUSE_STANDIN_DRIVER", "none", 0), code(ExitCode::refused),
      "no NVIDIA driver that fits is installed here; this build runs CUDA 13.0, and the driver here knows "
      "none: install or update the driver");
  EXPECT_EXIT(try_to_start("CUDA_VISIBLE_DEVICES", "", 0), code(ExitCode::refused),
              "no CUDA card is visible here");
  EXPECT_EXIT(try_to_start("DIFFUSE_STANDIN_DEVICES", "2", 2), code(ExitCode::refused),
              "CUDA device 2 is not there: 2 are visible here");
  EXPECT_EXIT(try_to_start("DIFFUSE_STANDIN_DEVICES", "2", 1), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(
      try_to_start("DIFFUSE_STANDIN_MEMORY", "1000000000", 0), code(ExitCode::io),
      "CUDA device 0: cudaMalloc failed while taking 1.0 GiB for rows, keys and values: out of memory");
}

}  // namespace
}  // namespace diffuse::test
