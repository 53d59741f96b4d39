// Speed of the CPU backend on the shapes of Qwen2.5-0.5B: GB/s of weights and GFLOP/s. A pass goes over all
// layers' weights, so that they come from memory as in a real run. Random weights.
//
// Names: Pass/<mode>/<threads>/<rows>, Prefill attention: Attend/<mode>/<threads>/<tokens>, and so on; filter
// with
// --benchmark_filter.

#include <benchmark/benchmark.h>

#include <cstring>
#include <map>
#include <random>

#include "backend/backend.hpp"

namespace diffuse {
namespace {

constexpr std::int64_t kHidden = 896;
constexpr std::int64_t kInner = 4864;
constexpr std::int64_t kHeads = 14;
constexpr std::int64_t kKvHeads = 2;
constexpr std::int64_t kHeadDim = 64;
constexpr std::int64_t kVocabulary = 151936;
constexpr int kLayers = 24;

struct Options {
  std::string simd;
  Compute compute = Compute::bf16;
  int threads = 1;
};

std::string name_of(const Options& options) {
  return options.simd + (options.compute == Compute::f32 ? "/f32" : "/bf16") +
         "/threads:" + std::to_string(options.threads);
}

struct Layer {
  std::shared_ptr<const PackedMatrix> qkv, output, gate_up, down;
};

struct Model {
  explicit Model(const Options& options)
      : backend(make_cpu_backend(
            {.threads = options.threads, .compute = options.compute, .simd = options.simd})) {
    for (int layer = 0; layer < kLayers; ++layer) {
      layers.push_back({random(kHidden + 2 * kKvHeads * kHeadDim, kHidden), random(kHidden, kHidden),
                        random(2 * kInner, kHidden), random(kHidden, kInner)});
    }
    head = random(kVocabulary, kHidden);
  }

  std::shared_ptr<const PackedMatrix> random(std::int64_t outputs, std::int64_t depth) {
    std::vector<std::uint16_t> bits(static_cast<std::size_t>(outputs * depth));
    std::uint32_t state = 1;
    for (auto& value : bits) {
      state = state * 1664525U + 1013904223U;
      value = static_cast<std::uint16_t>(0x3c00U + (state >> 25) + (state >> 31 << 15));
    }
    const HostMatrix part[] = {
        {reinterpret_cast<const std::byte*>(bits.data()), DType::bf16, outputs, depth}};
    return backend->pack(part);
  }

  std::unique_ptr<Backend> backend;
  std::vector<Layer> layers;
  std::shared_ptr<const PackedMatrix> head;
};

// One at a time: a model of each kind does not fit beside the others in a small machine.
Model& model_for(const Options& options) {
  static std::string name;
  static std::unique_ptr<Model> model;
  if (name != name_of(options)) {
    model.reset();
    model = std::make_unique<Model>(options);
    name = name_of(options);
  }
  return *model;
}

Buffer filled(Backend& backend, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::mt19937 engine(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (auto& value : values) value = uniform(engine);
  Buffer buffer = backend.allocate(values.size() * sizeof(float));
  backend.upload(buffer.data(), std::as_bytes(std::span(values)));
  return buffer;
}

void count(benchmark::State& state, double weights, double rows, double bytes_each) {
  const auto passes = static_cast<double>(state.iterations());
  state.counters["GB/s"] =
      benchmark::Counter(passes * weights * bytes_each / 1e9, benchmark::Counter::kIsRate);
  state.counters["GF/s"] = benchmark::Counter(passes * weights * rows * 2 / 1e9, benchmark::Counter::kIsRate);
  state.counters["rows/s"] = benchmark::Counter(passes * rows, benchmark::Counter::kIsRate);
}

// All products of the layers, and of the head for at most 16 rows (a prefill samples one row).
void pass(benchmark::State& state, const Options& options, std::int64_t rows) {
  Model& model = model_for(options);
  Backend& backend = *model.backend;
  const Buffer in = filled(backend, rows * kInner);
  const Buffer out = backend.allocate(static_cast<std::size_t>(rows * 2 * kInner) * sizeof(float));
  const std::int64_t sampled = rows <= 16 ? rows : 1;
  const Buffer logits = backend.allocate(static_cast<std::size_t>(sampled * kVocabulary) * sizeof(float));
  const auto multiply = [&](const PackedMatrix& weight) {
    backend.matmul({in.floats(), rows, weight.cols(), weight.cols()}, weight,
                   {out.floats(), rows, weight.rows(), weight.rows()}, {});
  };
  double weights = 0;
  for (auto _ : state) {
    weights = 0;
    for (const auto& layer : model.layers) {
      for (const auto* weight : {&layer.qkv, &layer.output, &layer.gate_up, &layer.down}) {
        multiply(**weight);
        weights += static_cast<double>((*weight)->rows() * (*weight)->cols());
      }
    }
    backend.matmul({in.floats(), sampled, kHidden, kHidden}, *model.head,
                   {logits.floats(), sampled, kVocabulary, kVocabulary}, {});
    weights +=
        static_cast<double>(kVocabulary * kHidden) * static_cast<double>(sampled) / static_cast<double>(rows);
  }
  count(state, weights, static_cast<double>(rows), 2);
}

// One shape over all layers.
void shape(benchmark::State& state, const Options& options, std::int64_t rows,
           std::shared_ptr<const PackedMatrix> Layer::*which) {
  Model& model = model_for(options);
  Backend& backend = *model.backend;
  const Buffer in = filled(backend, rows * kInner);
  const Buffer out = backend.allocate(static_cast<std::size_t>(rows * 2 * kInner) * sizeof(float));
  double weights = 0;
  for (auto _ : state) {
    weights = 0;
    for (const auto& layer : model.layers) {
      const PackedMatrix& weight = *(layer.*which);
      backend.matmul({in.floats(), rows, weight.cols(), weight.cols()}, weight,
                     {out.floats(), rows, weight.rows(), weight.rows()}, {});
      weights += static_cast<double>(weight.rows() * weight.cols());
    }
  }
  count(state, weights, static_cast<double>(rows), 2);
}

// Attention of `rows` new positions behind `context` old ones, in one layer.
void attend(benchmark::State& state, const Options& options, std::int64_t rows, std::int64_t context) {
  auto backend =
      make_cpu_backend({.threads = options.threads, .compute = options.compute, .simd = options.simd});
  KvPool pool{.spec = {kKvHeads, kHeadDim, kHeadDim}, .memory = {}};
  std::vector<std::int32_t> pages;
  for (std::int64_t page = 0; page * kPageTokens < context + rows; ++page)
    pages.push_back(static_cast<std::int32_t>(page));
  pool.memory = backend->allocate(pages.size() * backend->kv_page_bytes(pool.spec));
  const std::int64_t kv = kKvHeads * kHeadDim;
  const Buffer keys = filled(*backend, (context + rows) * kv);
  const Buffer q = filled(*backend, rows * kHidden);
  const Buffer out = backend->allocate(static_cast<std::size_t>(rows * kHidden) * sizeof(float));
  const Segment all[] = {{0, context + rows, 0, pages}};
  const ConstRows written{keys.floats(), context + rows, kv, kv};
  backend->kv_write(pool, written, written, all);
  const Segment segments[] = {{0, rows, context, pages}};
  for (auto _ : state) {
    backend->attend({.q = {q.floats(), rows, kHidden, kHidden},
                     .out = {out.floats(), rows, kHidden, kHidden},
                     .kv = &pool,
                     .segments = segments,
                     .heads = kHeads,
                     .scale = 0.125F,
                     .window = 0,
                     .softcap = 0,
                     .alibi_slopes = nullptr});
  }
  const auto n = static_cast<double>(rows);
  const double pairs = n * static_cast<double>(context) + n * (n + 1) / 2;
  state.counters["GF/s"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * pairs * kHeads * kHeadDim * 4 / 1e9,
                         benchmark::Counter::kIsRate);
}

// What stands between the products in one layer: norms, rope, gate.
void rest(benchmark::State& state, const Options& options, std::int64_t rows) {
  auto backend =
      make_cpu_backend({.threads = options.threads, .compute = options.compute, .simd = options.simd});
  const Buffer x = filled(*backend, rows * 2 * kInner);
  const Buffer y = backend->allocate(static_cast<std::size_t>(rows * kInner) * sizeof(float));
  const Buffer angles = filled(*backend, rows * kHeadDim / 2);
  const Rows hidden{y.floats(), rows, kHidden, kHidden};
  for (auto _ : state) {
    for (int i = 0; i < 2; ++i)
      backend->norm({.x = {x.floats(), rows, kHidden, kHidden}, .y = hidden, .eps = 1e-6F});
    backend->rope({.x = hidden,
                   .heads = kHeads,
                   .head_dim = kHeadDim,
                   .pairs = kHeadDim / 2,
                   .cos = angles.floats(),
                   .sin = angles.floats()});
    backend->gate({x.floats(), rows, 2 * kInner, 2 * kInner}, {y.floats(), rows, kInner, kInner},
                  Activation::silu);
    backend->add({x.floats(), rows, kHidden, kHidden}, hidden, 1.0F);
  }
}

void add_all() {
  for (const auto& simd : cpu_simd_targets()) {
    for (const auto compute : {Compute::bf16, Compute::f32}) {
      for (const int threads : {1, 2}) {
        const Options options{simd, compute, threads};
        const auto add = [&](const std::string& kind, const auto& body) {
          benchmark::RegisterBenchmark((kind + "/" + name_of(options)).c_str(), body)
              ->Unit(benchmark::kMillisecond)
              ->UseRealTime();
        };
        for (const std::int64_t rows : {1, 2, 4, 8, 16, 32, 64, 512}) {
          const std::string suffix = "rows:" + std::to_string(rows);
          add("pass/" + suffix, [=](benchmark::State& state) { pass(state, options, rows); });
          add("qkv/" + suffix, [=](benchmark::State& state) { shape(state, options, rows, &Layer::qkv); });
          add("output/" + suffix,
              [=](benchmark::State& state) { shape(state, options, rows, &Layer::output); });
          add("gate_up/" + suffix,
              [=](benchmark::State& state) { shape(state, options, rows, &Layer::gate_up); });
          add("down/" + suffix, [=](benchmark::State& state) { shape(state, options, rows, &Layer::down); });
          add("rest/" + suffix, [=](benchmark::State& state) { rest(state, options, rows); });
        }
        add("attend/rows:512/context:0", [=](benchmark::State& state) { attend(state, options, 512, 0); });
        add("attend/rows:1/context:500", [=](benchmark::State& state) { attend(state, options, 1, 500); });
        add("attend/rows:1/context:4000", [=](benchmark::State& state) { attend(state, options, 1, 4000); });
      }
    }
  }
}

}  // namespace
}  // namespace diffuse

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  diffuse::add_all();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
