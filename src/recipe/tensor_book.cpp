#include "recipe/tensor_book.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include "checkpoint/shown.hpp"
#include "core/error.hpp"

namespace diffuse {
namespace {

// Buffers that older versions of transformers stored with the weights. The rank tells a mask apart from a
// bias that happens to have its name.
struct DerivedBuffer {
  std::string_view suffix;
  std::size_t rank;
};
constexpr std::array kDerivedBuffers = {
    DerivedBuffer{".rotary_emb.inv_freq", 1},  // rotary frequencies: computed from rope_theta and its scaling
    DerivedBuffer{".attn.bias", 4},            // causal mask of ones and zeros [1, 1, n, n]
    DerivedBuffer{".attn.masked_bias", 0},     // what masked scores are set to, e.g. -10000
    DerivedBuffer{".attention.bias", 4},       // the same two under another module's name
    DerivedBuffer{".attention.masked_bias", 0},
    DerivedBuffer{".embed_positions.weights", 2},  // sinusoids
};

bool is_derived(std::string_view name, const TensorHeader& header) {
  return std::any_of(kDerivedBuffers.begin(), kDerivedBuffers.end(), [&](const auto& buffer) {
    return name.ends_with(buffer.suffix) && header.shape.size() == buffer.rank;
  });
}

std::string text_of(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (const auto dimension : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(dimension);
  return text + "]";
}

}  // namespace

TensorBook::TensorBook(const TensorHeaders& headers) : headers_(headers) {}

void TensorBook::take(const std::string& name, const std::vector<std::int64_t>& shape) {
  const auto found = headers_.find(name);
  if (found == headers_.end()) {
    throw_bad_data(
        "the weights have no tensor " + shown(name) +
        ", which this model needs; the checkpoint is incomplete or its config.json is another model's");
  }
  const auto& header = found->second;
  if (header.shape != shape) {
    throw_bad_data("tensor " + shown(name) + " has shape " + text_of(header.shape) +
                   ", config.json makes it " + text_of(shape) + "; the two are not of one checkpoint");
  }
  if (header.dtype != DType::f32 && header.dtype != DType::f16 && header.dtype != DType::bf16) {
    throw_refused("cannot run yet: tensor " + shown(name) + " is stored as " +
                  std::string(name_of(header.dtype)) +
                  "; this build computes with weights stored as f32, f16 or bf16");
  }
  if (!taken_.insert(name).second)
    throw_internal("building a recipe: tensor " + shown(name) + " was used by two steps");
}

void TensorBook::pass_over(std::string_view prefix) {
  for (auto at = headers_.lower_bound(std::string(prefix)); at != headers_.end(); ++at) {
    if (!at->first.starts_with(prefix)) return;
    taken_.insert(at->first);
  }
}

std::vector<std::string> TensorBook::leftovers() const {
  std::vector<std::string> names;
  for (const auto& [name, header] : headers_) {
    if (!taken_.contains(name) && !is_derived(name, header)) names.push_back(name);
  }
  return names;
}

std::int64_t count_layers(const TensorHeaders& headers, std::string_view prefix) {
  std::set<std::int64_t> numbers;
  for (auto at = headers.lower_bound(std::string(prefix)); at != headers.end(); ++at) {
    const std::string_view name = at->first;
    if (!name.starts_with(prefix)) break;
    const auto rest = name.substr(prefix.size());
    std::int64_t number = 0;
    const auto parsed = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    const bool is_layer =
        parsed.ec == std::errc() && parsed.ptr != rest.data() + rest.size() && *parsed.ptr == '.';
    if (is_layer && number >= 0) numbers.insert(number);
  }
  const auto count = static_cast<std::int64_t>(numbers.size());
  if (count > 0 && *numbers.rbegin() != count - 1) {
    throw_refused("the weights have layer " + std::to_string(*numbers.rbegin()) + " and only " +
                  std::to_string(count) + " layers; the checkpoint is incomplete");
  }
  return count;
}

std::int64_t layers_of(const TensorHeaders& headers, std::string_view prefix) {
  const auto layers = count_layers(headers, prefix);
  if (layers == 0)
    throw_refused("cannot run yet: the weights have no layers under '" + std::string(prefix) + "'");
  return layers;
}

MatrixRef matrix_rows(const std::string& tensor, std::int64_t first, std::int64_t rows, std::int64_t cols) {
  MatrixRef matrix;
  matrix.tensor = tensor;
  matrix.rows = rows;
  matrix.cols = cols;
  matrix.runs.push_back({first * cols, rows, cols});
  return matrix;
}

MatrixRef matrix_columns(const std::string& tensor, std::int64_t first, std::int64_t rows, std::int64_t cols,
                         std::int64_t total_rows) {
  MatrixRef matrix;
  matrix.tensor = tensor;
  matrix.rows = rows;
  matrix.cols = cols;
  matrix.col_stride = total_rows;
  matrix.runs.push_back({first, rows, 1});
  return matrix;
}

VectorRef vector_part(const std::string& tensor, std::int64_t first, std::int64_t count) {
  VectorRef vector;
  vector.tensor = tensor;
  vector.count = count;
  vector.runs.push_back({first, count, 1});
  return vector;
}

}  // namespace diffuse
