#include "slice/device_bytes.hpp"

#include <set>
#include <string>

#include "core/error.hpp"
#include "core/overloaded.hpp"
#include "core/size.hpp"

namespace diffuse {
namespace {

// Tensors that are packed as matrices; all others become f32 rows.
struct Matrices {
  std::set<std::string> products;
  std::set<std::string> routers;

  void add(const MatrixRef& ref) { products.insert(ref.tensor); }
  void add(const std::optional<MatrixRef>& ref) {
    if (ref) add(*ref);
  }
  template <class Attending>
  void add_projections(const Attending& step) {
    for (const auto* ref : {&step.query, &step.key, &step.value, &step.output}) add(*ref);
  }
  void add(const Step& step) {
    std::visit(Overloaded{
                   [](const Norm&) {},
                   [](const Add&) {},
                   [](const Modulate&) {},
                   [&](const Attention& attention) { add_projections(attention); },
                   [&](const CrossAttention& cross) { add_projections(cross); },
                   [&](const Mlp& mlp) {
                     add(mlp.gate);
                     add(mlp.up);
                     add(mlp.down);
                   },
                   [&](const Experts& experts) {
                     routers.insert(experts.router.tensor);
                     for (const auto& expert : experts.experts) {
                       add(expert.gate);
                       add(expert.up);
                       add(expert.down);
                     }
                   },
               },
               step);
  }
  void add(const std::vector<Block>& blocks) {
    for (const auto& block : blocks) {
      for (const auto& step : block.steps) add(step);
    }
  }
};

Matrices matrices_of(const Recipe& recipe) {
  Matrices matrices;
  matrices.add(recipe.blocks);
  if (recipe.refinement) {
    const auto& time = recipe.refinement->time;
    for (const auto* product :
         {&time.first, &time.second, &time.condition, &recipe.refinement->front, &recipe.refinement->back})
      matrices.add(product->weight);
  } else {
    matrices.add(recipe.front.embedding);
    matrices.add(recipe.back.head);
  }
  if (!recipe.encoder) return matrices;
  matrices.add(recipe.encoder->blocks);
  for (const auto& projection : recipe.encoder->projections) matrices.add(projection.weight);
  std::visit(Overloaded{
                 [&](const Front& front) { matrices.add(front.embedding); },
                 [&](const FramesFront& front) {
                   for (const auto& convolution : front.convolutions) matrices.add(convolution.weight);
                 },
             },
             recipe.encoder->front);
  return matrices;
}

std::uint64_t element_bytes(DType stored, const DeviceKind& device, bool router) {
  if (device.compute == Compute::bf16 && !router) return 2;
  return !device.cuda && stored != DType::f32 ? 2 : 4;
}

}  // namespace

std::uint64_t device_bytes(const Recipe& recipe, const TensorHeaders& headers, const RankSlice& slice,
                           const DeviceKind& device) {
  const auto matrices = matrices_of(recipe);
  CheckedSize sum = 0;
  for (const auto& name : slice.tensors) {
    const auto found = headers.find(name);
    if (found == headers.end()) throw_internal("the weights do not have the tensor '" + name + "' of a plan");
    const bool router = matrices.routers.contains(name);
    const std::uint64_t element = router || matrices.products.contains(name)
                                      ? element_bytes(found->second.dtype, device, router)
                                      : sizeof(float);
    sum = sum + CheckedSize(count_of(found->second.shape)) * element;
  }
  return sum.value();
}

}  // namespace diffuse
