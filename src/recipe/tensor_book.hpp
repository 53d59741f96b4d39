#pragma once
// Keeps account of the tensors in the headers: each is taken by exactly one step, with the shape that the
// config lets one expect; whatever nobody took can be named.

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/tensor_header.hpp"
#include "recipe/recipe.hpp"

namespace diffuse {

class TensorBook {
 public:
  explicit TensorBook(const TensorHeaders& headers);  // which must outlive it

  bool has(const std::string& name) const { return headers_.contains(name); }
  // Throws bad data where there is no such tensor or its shape is another one; refused where its type is none
  // of f32, f16 and bf16; internal where it was taken before.
  void take(const std::string& name, const std::vector<std::int64_t>& shape);
  // Takes those whose name starts with `prefix`, and that nobody took, without a use: parts of a model that
  // it runs without.
  void pass_over(std::string_view prefix);
  // Not taken and not one of the buffers that are known to be derived from the config.
  std::vector<std::string> leftovers() const;
  const TensorHeaders& headers() const { return headers_; }

 private:
  const TensorHeaders& headers_;
  std::set<std::string> taken_;
};

// How many layers have tensors under `prefix` ("model.layers."); throws refused where a number is missing in
// between.
std::int64_t count_layers(const TensorHeaders& headers, std::string_view prefix);

// The same; throws refused where there are none.
std::int64_t layers_of(const TensorHeaders& headers, std::string_view prefix);

// Rows [first, first + rows) of a stored [total_rows, cols] matrix.
MatrixRef matrix_rows(const std::string& tensor, std::int64_t first, std::int64_t rows, std::int64_t cols);
// Columns [first, first + rows) of a stored [cols, total_rows] matrix, as rows.
MatrixRef matrix_columns(const std::string& tensor, std::int64_t first, std::int64_t rows, std::int64_t cols,
                         std::int64_t total_rows);
VectorRef vector_part(const std::string& tensor, std::int64_t first, std::int64_t count);

}  // namespace diffuse
