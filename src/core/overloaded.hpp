#pragma once
// Lambdas as the cases of a std::visit: std::visit(Overloaded{[](const Norm&) {…}, [](const Mlp&) {…}},
// step). A variant that gains an alternative does not build until every such visit has a case for it.

namespace diffuse {

template <typename... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <typename... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

}  // namespace diffuse
