#include "slice/weights.hpp"

#include <cstring>
#include <deque>
#include <set>

#include "core/error.hpp"
#include "core/exact_math.hpp"
#include "core/overloaded.hpp"
#include "core/size.hpp"
#include "slice/position_bias.hpp"

namespace diffuse {
namespace {

class Loader {
 public:
  Loader(const RankSlice& slice, const Checkpoint& checkpoint, Backend& backend,
         const std::function<void(std::uint64_t)>& progress)
      : checkpoint_(checkpoint), backend_(backend), progress_(progress) {
    for (const auto& name : slice.tensors) wanted_.insert(name);
  }

  Buffer vector(const VectorRef& ref) { return upload(floats(ref)); }

  LoadedNorm norm(const NormSpec& spec) {
    LoadedNorm loaded;
    loaded.spec = spec;
    if (spec.weight) loaded.weight = vector(*spec.weight);
    if (spec.bias) loaded.bias = vector(*spec.bias);
    return loaded;
  }

  std::optional<LoadedNorm> norm(const std::optional<NormSpec>& spec) {
    return spec ? std::optional(norm(*spec)) : std::nullopt;
  }

  LoadedLinear linear(const std::vector<const MatrixRef*>& parts,
                      const std::vector<const std::optional<VectorRef>*>& biases) {
    LoadedLinear loaded;
    loaded.matrix = matrix(parts);
    bool any = false;
    std::vector<float> values;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto* bias = i < biases.size() && biases[i]->has_value() ? &**biases[i] : nullptr;
      any = any || bias != nullptr;
      const auto part = bias != nullptr ? floats(*bias)
                                        : std::vector<float>(static_cast<std::size_t>(parts[i]->rows), 0.0F);
      values.insert(values.end(), part.begin(), part.end());
    }
    if (any) loaded.bias = upload(values);
    return loaded;
  }

  LoadedLinear linear(const Projection& projection) {
    return linear({&projection.weight}, {&projection.bias});
  }

  std::shared_ptr<const PackedMatrix> matrix(const std::vector<const MatrixRef*>& parts,
                                             WeightUse use = WeightUse::matmul) {
    std::deque<std::vector<std::byte>> gathered;
    std::vector<HostMatrix> hosts;
    for (const auto* part : parts) hosts.push_back(lay_out(*part, gathered));
    return backend_.pack(hosts, use);
  }

  Buffer table(const MatrixRef& ref) { return upload(table_floats(ref)); }

  Buffer position_bias(const PositionBias& bias) {
    return upload(bias_by_distance(table_floats(bias.table), bias));
  }

  LoadedFront front(const Front& front) {
    LoadedFront loaded;
    loaded.embedding = embedding(front.embedding);
    for (const auto& table : front.further) loaded.further.push_back(matrix({&table}));
    if (front.positions) loaded.positions = table(*front.positions);
    if (front.sinusoids) loaded.positions = upload(table_of(*front.sinusoids));
    loaded.norm = norm(front.norm);
    return loaded;
  }

  LoadedFrames frames(const FramesFront& front) {
    LoadedFrames loaded;
    for (const auto& convolution : front.convolutions)
      loaded.convolutions.push_back(linear({&convolution.weight}, {&convolution.bias}));
    loaded.positions = table(front.positions);
    return loaded;
  }

  // An embedding that several parts use is packed once.
  std::shared_ptr<const PackedMatrix> embedding(const MatrixRef& ref) {
    auto& packed = embeddings_[ref.tensor];
    if (!packed) packed = matrix({&ref});
    return packed;
  }

  // These are used by more than one part of the slice: they are kept when others are let go.
  void keep(const std::set<std::string>& tensors) { keep_.insert(tensors.begin(), tensors.end()); }

  // Bytes of tensors used so far are let go.
  void forget() {
    std::erase_if(read_, [&](const auto& entry) { return !keep_.contains(entry.first); });
  }

  std::map<std::string, std::uint64_t> hashes() const { return hashes_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  const TensorData& data(const std::string& name) {
    const auto found = read_.find(name);
    if (found != read_.end()) return found->second;
    if (!wanted_.contains(name) || hashes_.contains(name)) {
      throw_internal("loading weights: the tensor '" + name +
                     "' is read a second time or is not in the plan");
    }
    const auto& tensor = read_.emplace(name, checkpoint_.read(name)).first->second;
    hashes_[name] = content_hash(tensor);
    tensor.check_unchanged();
    bytes_ += tensor.bytes().size();
    if (progress_) progress_(bytes_);
    return tensor;
  }

  HostMatrix lay_out(const MatrixRef& ref, std::deque<std::vector<std::byte>>& gathered) {
    const auto& tensor = data(ref.tensor);
    const auto type = tensor.header().dtype;
    const auto size = static_cast<std::int64_t>(size_of(type));
    const std::byte* base = tensor.bytes().data();
    const bool contiguous = ref.col_stride == 1 && ref.runs.size() == 1 && ref.runs[0].row_stride == ref.cols;
    if (contiguous) return {base + ref.runs[0].first * size, type, ref.rows, ref.cols};
    auto& copy = gathered.emplace_back(static_cast<std::size_t>(ref.rows * ref.cols * size));
    std::byte* to = copy.data();
    for (const auto& run : ref.runs) {
      for (std::int64_t row = 0; row < run.count; ++row) {
        const std::byte* from = base + (run.first + row * run.row_stride) * size;
        for (std::int64_t col = 0; col < ref.cols; ++col, to += size)
          std::memcpy(to, from + col * ref.col_stride * size, static_cast<std::size_t>(size));
      }
    }
    return {copy.data(), type, ref.rows, ref.cols};
  }

  std::vector<float> floats(const VectorRef& ref) {
    const auto& tensor = data(ref.tensor);
    const auto type = tensor.header().dtype;
    std::vector<float> values;
    values.reserve(static_cast<std::size_t>(ref.count));
    for (const auto& run : ref.runs) {
      for (std::int64_t i = 0; i < run.count; ++i) {
        values.push_back(element_as_f32(
            tensor.bytes().data() + static_cast<std::size_t>(run.first + i * run.row_stride) * size_of(type),
            type));
      }
    }
    return values;
  }

  std::vector<float> table_floats(const MatrixRef& ref) {
    std::deque<std::vector<std::byte>> gathered;
    const auto host = lay_out(ref, gathered);
    std::vector<float> values(static_cast<std::size_t>(host.rows * host.cols));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = element_as_f32(host.data + i * size_of(host.dtype), host.dtype);
    return values;
  }

  static std::vector<float> table_of(const Sinusoids& sinusoids) {
    const auto half = sinusoids.frequencies.size();
    std::vector<float> values(static_cast<std::size_t>(sinusoids.count) * 2 * half);
    for (std::int64_t position = 0; position < sinusoids.count; ++position) {
      float* row = values.data() + static_cast<std::size_t>(position) * 2 * half;
      for (std::size_t i = 0; i < half; ++i) {
        const double exact_angle = static_cast<double>(position) * sinusoids.frequencies[i];
        const double angle = sinusoids.single ? static_cast<float>(exact_angle) : exact_angle;
        const std::size_t sine = sinusoids.cosines_first ? half + i : i;
        const std::size_t cosine = sinusoids.cosines_first ? i : half + i;
        row[sine] = static_cast<float>(exact::sin(angle));
        row[cosine] = static_cast<float>(exact::cos(angle));
      }
    }
    return values;
  }

  Buffer upload(const std::vector<float>& values) {
    auto buffer = backend_.allocate(values.size() * sizeof(float));
    backend_.upload(buffer.data(), std::as_bytes(std::span(values)));
    backend_.synchronize();
    return buffer;
  }

  const Checkpoint& checkpoint_;
  Backend& backend_;
  const std::function<void(std::uint64_t)>& progress_;
  std::set<std::string> wanted_;
  std::set<std::string> keep_;
  std::map<std::string, std::shared_ptr<const PackedMatrix>> embeddings_;
  std::map<std::string, TensorData> read_;
  std::map<std::string, std::uint64_t> hashes_;
  std::uint64_t bytes_ = 0;
};

LoadedStep load_step(Loader& loader, const Step& step) {
  return std::visit(
      Overloaded{
          [&](const Norm& norm) -> LoadedStep {
            return NormStep{&norm, loader.norm(norm.norm)};
          },
          [&](const Attention& attention) -> LoadedStep {
            AttentionStep loaded{.step = &attention,
                                 .qkv = {},
                                 .output = {},
                                 .query_norm = {},
                                 .key_norm = {},
                                 .position_bias = {},
                                 .kv = {}};
            loaded.qkv = loader.linear({&attention.query, &attention.key, &attention.value},
                                       {&attention.query_bias, &attention.key_bias, &attention.value_bias});
            loaded.output = loader.linear({&attention.output}, {&attention.output_bias});
            loaded.query_norm = loader.norm(attention.query_norm);
            loaded.key_norm = loader.norm(attention.key_norm);
            if (attention.position_bias)
              loaded.position_bias = loader.position_bias(*attention.position_bias);
            return loaded;
          },
          [&](const CrossAttention& cross) -> LoadedStep {
            CrossAttentionStep loaded{.step = &cross,
                                      .query = {},
                                      .key_value = {},
                                      .output = {},
                                      .query_norm = loader.norm(cross.query_norm),
                                      .key_norm = loader.norm(cross.key_norm),
                                      .kv = {}};
            loaded.query = loader.linear({&cross.query}, {&cross.query_bias});
            loaded.key_value =
                loader.linear({&cross.key, &cross.value}, {&cross.key_bias, &cross.value_bias});
            loaded.output = loader.linear({&cross.output}, {&cross.output_bias});
            return loaded;
          },
          [&](const Mlp& mlp) -> LoadedStep {
            MlpStep loaded{&mlp, {}, {}};
            loaded.up = mlp.gate ? loader.linear({&*mlp.gate, &mlp.up}, {&mlp.gate_bias, &mlp.up_bias})
                                 : loader.linear({&mlp.up}, {&mlp.up_bias});
            loaded.down = loader.linear({&mlp.down}, {&mlp.down_bias});
            return loaded;
          },
          [&](const Experts& experts) -> LoadedStep {
            ExpertsStep loaded{&experts, {loader.matrix({&experts.router}, WeightUse::router), {}}, {}};
            for (const auto& expert : experts.experts) {
              ExpertWeights weights;
              weights.gate_up =
                  expert.gate ? loader.matrix({&*expert.gate, &expert.up}) : loader.matrix({&expert.up});
              weights.down = loader.matrix({&expert.down});
              loaded.experts.push_back(std::move(weights));
            }
            return loaded;
          },
          [](const Add& add) -> LoadedStep { return AddStep{&add}; },
          [&](const Modulate& modulate) -> LoadedStep {
            return ModulateStep{&modulate, loader.table(modulate.table)};
          },
      },
      step);
}

std::vector<LoadedStep> load_block(Loader& loader, const Block& block) {
  std::vector<LoadedStep> steps;
  for (const auto& step : block.steps) steps.push_back(load_step(loader, step));
  loader.forget();
  return steps;
}

LoadedEncoder load_encoder(Loader& loader, const Encoder& encoder) {
  LoadedEncoder loaded;
  std::visit(Overloaded{
                 [&](const Front& front) { loaded.front = loader.front(front); },
                 [&](const FramesFront& front) { loaded.front = loader.frames(front); },
             },
             encoder.front);
  loader.forget();
  for (const auto& block : encoder.blocks) loaded.blocks.push_back(load_block(loader, block));
  loaded.norm = loader.norm(encoder.norm);
  for (const auto& projection : encoder.projections) loaded.projections.push_back(loader.linear(projection));
  return loaded;
}

// One copy of a tied table serves both ends.
std::shared_ptr<const PackedMatrix> load_head(Loader& loader, const Back& back) {
  if (back.further.empty()) return loader.embedding(back.head);
  std::vector<const MatrixRef*> heads = {&back.head};
  for (const auto& head : back.further) heads.push_back(&head);
  return loader.matrix(heads);
}

// Tensors that more than one part of a slice uses.
std::set<std::string> used_again(const Recipe& recipe, const RankSlice& slice) {
  std::set<std::string> seen;
  std::set<std::string> again;
  const auto part = [&](const std::vector<std::string>& tensors) {
    for (const auto& name : tensors) {
      if (!seen.insert(name).second) again.insert(name);
    }
  };
  if (slice.encoder) {
    const auto& encoder = *recipe.encoder;
    for (const auto& block : encoder.blocks) part(tensors_of(block));
    auto ends = encoder;
    ends.blocks.clear();
    part(tensors_of(ends));
  }
  if (slice.front) part(front_tensors(recipe));
  for (auto layer = slice.first_layer; layer < slice.end_layer; ++layer)
    part(tensors_of(recipe.blocks[static_cast<std::size_t>(layer)]));
  if (slice.back) part(back_tensors(recipe));
  return again;
}

LoadedRefinement load_refinement(Loader& loader, const Refinement& refinement, const RankSlice& slice) {
  LoadedRefinement loaded;
  const auto& time = refinement.time;
  loaded.time_first = loader.linear(time.first);
  loaded.time_second = loader.linear(time.second);
  loaded.time_condition = loader.linear(time.condition);
  if (slice.front) loaded.front = loader.linear(refinement.front);
  if (slice.back) {
    loaded.back = {.norm = loader.norm(refinement.norm),
                   .table = loader.table(refinement.table),
                   .head = loader.linear(refinement.back)};
  }
  loader.forget();
  return loaded;
}

}  // namespace

SliceWeights load_slice(const Recipe& recipe, const RankSlice& slice, const Checkpoint& checkpoint,
                        Backend& backend, const std::function<void(std::uint64_t)>& progress) {
  Loader loader(slice, checkpoint, backend, progress);
  SliceWeights weights;
  loader.keep(used_again(recipe, slice));
  if (slice.encoder) weights.encoder = load_encoder(loader, *recipe.encoder);
  const bool refines = recipe.refinement.has_value();
  if (refines && !slice.idle()) weights.refinement = load_refinement(loader, *recipe.refinement, slice);
  if (slice.front && !refines) {
    weights.front = loader.front(recipe.front);
    loader.forget();
  }
  for (auto layer = slice.first_layer; layer < slice.end_layer; ++layer)
    weights.blocks.push_back(load_block(loader, recipe.blocks[static_cast<std::size_t>(layer)]));
  if (slice.back && !refines) {
    auto& back = weights.back.emplace();
    back.norm = loader.norm(recipe.back.norm);
    back.head.matrix = load_head(loader, recipe.back);
    if (recipe.back.head_bias) back.head.bias = loader.vector(*recipe.back.head_bias);
  }
  weights.hashes = loader.hashes();
  weights.bytes_read = loader.bytes();
  return weights;
}

}  // namespace diffuse
