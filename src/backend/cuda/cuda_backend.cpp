#include "backend/cuda/cuda_backend.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace diffuse {
namespace cuda {

kernels::cuda::RowsIn in(ConstRows rows) {
  return {rows.data, rows.rows, rows.cols, rows.stride};
}

kernels::cuda::RowsOut out(Rows rows) {
  return {rows.data, rows.rows, rows.cols, rows.stride};
}

void require(bool condition, const char* what) {
  if (!condition) throw_internal(std::string("CUDA backend: ") + what);
}

namespace {

void same_shape(ConstRows x, const Rows& y, const char* what) {
  require(x.rows == y.rows && x.cols == y.cols, what);
}

}  // namespace

CudaBackend::CudaBackend(const CudaOptions& options)
    : device_(Device::open(options.device)),
      compute_(options.compute),
      graphs_(options.graphs),
      warn_(options.warn),
      staging_(device_),
      products_(device_, staging_) {}

std::string CudaBackend::target() const {
  return device_->arch() + " " + device_->name() + ", cuBLASLt " + cublaslt_version();
}

DeviceFacts CudaBackend::device() const {
  return {device_->name(), device_->id(), device_->free_bytes(), device_->stream()};
}

std::function<void()> CudaBackend::released() const {
  return [releases = device_->releases()] { releases->tell(); };
}

Buffer CudaBackend::allocate(std::size_t bytes) {
  auto buffer = device_->allocate(bytes, "rows, keys and values");
  if (bytes > 0) {
    device_->check(cudaMemsetAsync(buffer.data(), 0, bytes, stream()), "cudaMemsetAsync", "clearing memory");
  }
  return buffer;
}

void CudaBackend::upload(std::byte* to, std::span<const std::byte> from) {
  device_->use();
  staging_.upload(to, from);
}

void CudaBackend::download(std::span<std::byte> to, const std::byte* from) {
  device_->use();
  staging_.download(to, from);
}

void CudaBackend::copy(ConstRows from, Rows to) {
  same_shape(from, to, "copy between different shapes");
  device_->use();
  device_->launched(kernels::cuda::copy_rows(stream(), in(from), out(to)), "copying rows");
}

void CudaBackend::synchronize() {
  device_->use();
  device_->wait("running the queued operations");
}

std::shared_ptr<const PackedMatrix> CudaBackend::pack(std::span<const HostMatrix> parts, WeightUse use) {
  device_->use();
  const bool narrow = compute_ == Compute::bf16 && use == WeightUse::matmul;
  const auto matrix = std::make_shared<const Matrix>(parts, narrow, *device_, staging_);
  packed_.insert({matrix->padded_rows(), matrix->padded_cols(), matrix->element(),
                  matrix->padded_rows() != matrix->rows() || matrix->padded_cols() != matrix->cols()});
  // Its algorithm is chosen and checked now, and not while a request waits.
  static_cast<void>(products_.serves(*matrix, {}));
  return matrix;
}

void CudaBackend::embed(const PackedMatrix& table, std::span<const std::int32_t> ids, float scale, Rows to) {
  const Matrix& matrix = matrix_of(table);
  require(to.cols == matrix.cols() && static_cast<std::int64_t>(ids.size()) == to.rows,
          "embedding into rows of another shape");
  if (to.rows == 0) return;
  device_->use();
  const auto* ids_at = ids_.put(*device_, staging_, ids);
  const auto type = matrix.bf16() ? kernels::cuda::Element::bf16 : kernels::cuda::Element::f32;
  // Rows of the table may be longer than ours, by what pads them.
  const std::int64_t width = matrix.padded_cols();
  Rows whole = to;
  if (width != to.cols) whole = {embedded_.get<float>(*device_, to.rows * width), to.rows, width, width};
  device_->launched(kernels::cuda::embed(stream(), matrix.data(), type, ids_at, scale, out(whole)),
                    "embedding");
  if (width != to.cols) copy({whole.data, to.rows, to.cols, width}, to);
}

void CudaBackend::add_positions(const float* table, std::span<const std::int32_t> rows, Rows to) {
  require(static_cast<std::int64_t>(rows.size()) == to.rows, "positions for another number of rows");
  if (to.rows == 0) return;
  device_->use();
  const auto* rows_at = positions_.put(*device_, staging_, rows);
  device_->launched(kernels::cuda::add_positions(stream(), table, rows_at, out(to)), "adding positions");
}

void CudaBackend::norm(const NormArgs& args) {
  same_shape(args.x, args.y, "norm between different shapes");
  require(args.groups > 0 && args.x.cols % args.groups == 0, "norm with groups that do not divide a row");
  device_->use();
  device_->launched(kernels::cuda::norm(stream(), {.x = in(args.x),
                                                   .y = out(args.y),
                                                   .layer = args.kind == NormKind::layer,
                                                   .weight = args.weight,
                                                   .bias = args.bias,
                                                   .weight_offset = args.weight_offset,
                                                   .eps = args.eps,
                                                   .groups = args.groups}),
                    "a norm");
}

void CudaBackend::gate(ConstRows x, Rows y, Activation activation) {
  require(x.rows == y.rows && x.cols == 2 * y.cols, "gate between rows of the wrong shapes");
  device_->use();
  device_->launched(kernels::cuda::gate(stream(), in(x), out(y), kernel_activation(activation)), "a gate");
}

void CudaBackend::activate(ConstRows x, Rows y, Activation activation) {
  same_shape(x, y, "activation between different shapes");
  device_->use();
  device_->launched(kernels::cuda::activate(stream(), in(x), out(y), kernel_activation(activation)),
                    "an activation");
}

void CudaBackend::add(ConstRows x, Rows y, float scale) {
  same_shape(x, y, "addition of different shapes");
  device_->use();
  device_->launched(kernels::cuda::add_scaled(stream(), in(x), out(y), scale), "an addition");
}

void CudaBackend::add_gated(ConstRows x, const float* gate, Rows y) {
  same_shape(x, y, "gated addition of different shapes");
  device_->use();
  device_->launched(kernels::cuda::add_gated(stream(), in(x), gate, out(y)), "a gated addition");
}

void CudaBackend::scale(Rows y, float factor) {
  device_->use();
  device_->launched(kernels::cuda::scale_rows(stream(), out(y), factor), "scaling rows");
}

void CudaBackend::softcap(Rows y, float cap) {
  device_->use();
  device_->launched(kernels::cuda::softcap(stream(), out(y), cap), "a soft cap");
}

void CudaBackend::rope(const RopeArgs& args) {
  require(args.x.cols == args.heads * args.head_dim && 2 * args.pairs <= args.head_dim,
          "rope over rows of another shape");
  device_->use();
  device_->launched(kernels::cuda::rope(stream(), {.x = out(args.x),
                                                   .heads = args.heads,
                                                   .head_dim = args.head_dim,
                                                   .pairs = args.pairs,
                                                   .interleaved = args.style == RopeStyle::interleaved,
                                                   .cos = args.cos,
                                                   .sin = args.sin}),
                    "rotating heads");
}

void CudaBackend::argmax(ConstRows logits, std::span<std::int32_t> ids) {
  require(static_cast<std::int64_t>(ids.size()) == logits.rows, "arg-max of another number of rows");
  if (ids.empty()) return;
  device_->use();
  const auto bytes = kernels::cuda::argmax_workspace_bytes(logits.rows, logits.cols);
  auto* workspace =
      argmax_.get<std::byte>(*device_, static_cast<std::int64_t>(std::max<std::size_t>(bytes, 8)));
  auto* chosen = chosen_.get<std::int32_t>(*device_, logits.rows);
  device_->launched(kernels::cuda::argmax(stream(), in(logits), workspace, chosen), "an arg-max");
  staging_.download(std::as_writable_bytes(ids), reinterpret_cast<const std::byte*>(chosen));
}

void CudaBackend::unfold(const UnfoldArgs& args) {
  require(args.width > 0 && args.stride > 0 && args.padding >= 0 && args.out.cols == args.x.cols * args.width,
          "unfolding into rows of another shape");
  device_->use();
  device_->launched(kernels::cuda::unfold(stream(), {.x = in(args.x),
                                                     .out = out(args.out),
                                                     .width = args.width,
                                                     .stride = args.stride,
                                                     .padding = args.padding}),
                    "unfolding rows");
}

}  // namespace cuda

std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options) {
  return std::make_unique<cuda::CudaBackend>(options);
}

}  // namespace diffuse
