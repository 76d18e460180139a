// Match: lookups.
#include "passes/pattern/match.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::pattern {
using namespace ir;

Value* Match::find(const Var& var) const {
  for (const Binding& binding : bindings)
    if (binding.var == &var)
      return binding.value;
  return nullptr;
}

Value& Match::operator[](const Var& var) const {
  Value* value = find(var);
  assert(value && "reading a Var that the match did not bind");
  return *value;
}

llvm::StringRef Match::choice(llvm::StringRef tag) const {
  for (const Choice& choice : choices)
    if (choice.place->tag == tag)
      return choice.place->alternativeNames[choice.alternative];
  return {};
}

Dim Match::dim(llvm::StringRef symbol) const {
  for (const Extent& extent : extents)
    if (extent.symbol == symbol)
      return extent.extent;
  return Dim::unknown();
}

const void* Match::findPlan(const void* payload) const {
  const auto* plan =
      llvm::find_if(plans, [&](const Plan& made) { return made.payload == payload; });
  assert(plan != plans.end() && "reading a plan that no constraint made");
  return plan->contents.get();
}

bool Match::contains(const Node& node) const { return llvm::is_contained(matchedNodes, &node); }

} // namespace kvopt::pattern
