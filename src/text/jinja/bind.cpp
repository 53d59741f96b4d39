#include "text/jinja/bind.hpp"

#include <algorithm>

namespace diffuse::jinja {

Bound::Bound(const std::string& function, const Arguments& arguments,
             std::initializer_list<const char*> parameters)
    : function_(function), names_(parameters.begin(), parameters.end()), values_(parameters.size(), nullptr) {
  if (arguments.positional.size() > values_.size())
    throw TemplateError(function + " takes at most " + std::to_string(values_.size()) + " arguments");
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end()) throw TemplateError(function + " has no argument '" + name + "'");
    auto& slot = values_[static_cast<std::size_t>(found - names_.begin())];
    if (slot != nullptr) throw TemplateError(function + " is given '" + name + "' twice");
    slot = &value;
  }
}

const Value& Bound::require(std::size_t index) const {
  if (values_[index] == nullptr)
    throw TemplateError(function_ + " needs the argument '" + names_[index] + "'");
  return *values_[index];
}

bool Bound::flag(std::size_t index, bool otherwise) const {
  return values_[index] == nullptr ? otherwise : is_true(*values_[index]);
}

std::optional<std::string> Bound::text(std::size_t index) const {
  if (values_[index] == nullptr || values_[index]->is<None>()) return std::nullopt;
  const auto* text = values_[index]->as<Text>();
  if (text == nullptr) throw TemplateError(function_ + ": '" + names_[index] + "' must be a string");
  return *text->text;
}

Int Bound::integer(std::size_t index, Int otherwise) const {
  if (values_[index] == nullptr || values_[index]->is<None>()) return otherwise;
  return to_int(*values_[index], function_ + ": '" + names_[index] + "'");
}

std::int64_t Bound::count(std::size_t index, std::int64_t otherwise) const {
  constexpr Int kMost = std::int64_t{1} << 40;
  return static_cast<std::int64_t>(std::clamp(integer(index, otherwise), -kMost, kMost));
}

}  // namespace diffuse::jinja
