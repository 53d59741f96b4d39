#include "slice/weights.hpp"

#include <cstring>
#include <deque>
#include <set>

#include "core/error.hpp"
#include "core/overloaded.hpp"
#include "core/size.hpp"

namespace diffuse {
namespace {

float widen(const std::byte* element, DType type) {
  if (type == DType::f32) {
    float value = 0;
    std::memcpy(&value, element, sizeof value);
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, element, sizeof bits);
  return type == DType::bf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

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

  std::shared_ptr<const PackedMatrix> matrix(const std::vector<const MatrixRef*>& parts,
                                             WeightUse use = WeightUse::matmul) {
    std::deque<std::vector<std::byte>> gathered;
    std::vector<HostMatrix> hosts;
    for (const auto* part : parts) hosts.push_back(lay_out(*part, gathered));
    return backend_.pack(hosts, use);
  }

  Buffer table(const MatrixRef& ref) {
    std::deque<std::vector<std::byte>> gathered;
    const auto host = lay_out(ref, gathered);
    std::vector<float> values(static_cast<std::size_t>(host.rows * host.cols));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = widen(host.data + i * size_of(host.dtype), host.dtype);
    return upload(values);
  }

  // Bytes of tensors used so far are let go; a tensor that both ends use is kept until the end.
  void forget(const std::set<std::string>& keep) {
    std::erase_if(read_, [&](const auto& entry) { return !keep.contains(entry.first); });
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
        values.push_back(widen(
            tensor.bytes().data() + static_cast<std::size_t>(run.first + i * run.row_stride) * size_of(type),
            type));
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
            AttentionStep loaded{
                .step = &attention, .qkv = {}, .output = {}, .query_norm = {}, .key_norm = {}, .kv = {}};
            loaded.qkv = loader.linear({&attention.query, &attention.key, &attention.value},
                                       {&attention.query_bias, &attention.key_bias, &attention.value_bias});
            loaded.output = loader.linear({&attention.output}, {&attention.output_bias});
            loaded.query_norm = loader.norm(attention.query_norm);
            loaded.key_norm = loader.norm(attention.key_norm);
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
      },
      step);
}

}  // namespace

SliceWeights load_slice(const Recipe& recipe, const RankSlice& slice, const Checkpoint& checkpoint,
                        Backend& backend, const std::function<void(std::uint64_t)>& progress) {
  Loader loader(slice, checkpoint, backend, progress);
  SliceWeights weights;
  std::set<std::string> keep;
  if (slice.front && slice.back) {
    for (const auto& name : tensors_of(recipe.back)) keep.insert(name);
  }
  if (slice.front) {
    auto& front = weights.front.emplace();
    front.embedding = loader.matrix({&recipe.front.embedding});
    if (recipe.front.positions) front.positions = loader.table(*recipe.front.positions);
    front.norm = loader.norm(recipe.front.norm);
    loader.forget(keep);
  }
  for (auto layer = slice.first_layer; layer < slice.end_layer; ++layer) {
    auto& steps = weights.blocks.emplace_back();
    for (const auto& step : recipe.blocks[static_cast<std::size_t>(layer)].steps)
      steps.push_back(load_step(loader, step));
    loader.forget(keep);
  }
  if (slice.back) {
    auto& back = weights.back.emplace();
    back.norm = loader.norm(recipe.back.norm);
    if (recipe.back.tied && weights.front) {
      back.head.matrix = weights.front->embedding;  // one copy serves both ends
    } else {
      back.head.matrix = loader.matrix({&recipe.back.head});
    }
    if (recipe.back.head_bias) back.head.bias = loader.vector(*recipe.back.head_bias);
  }
  weights.hashes = loader.hashes();
  weights.bytes_read = loader.bytes();
  return weights;
}

}  // namespace diffuse
