// Sum of a bias, hidden keys and later keys.
#include "passes/builders/contrib_mask.h"

#include <limits>

namespace kvopt::builders {
using namespace ir;

void setContribMask(AttentionBuilder::AttentionParts& parts, const ContribMask& mask,
                    ElementType element, AttentionBuilder& build) {
  constexpr double lowest = std::numeric_limits<float>::lowest();
  // Scores are far smaller than half the lowest number.
  const bool isFilterAsLow = mask.visible && mask.filter <= lowest / 2;
  const bool isAsLow = mask.bias || isFilterAsLow;
  // The number is infinite in float16, and no row may be hidden by -inf alone.
  if (isFilterAsLow || (mask.causal && mask.bias))
    element = ElementType::Float;
  Value* bias = mask.bias ? &build.castTo(*mask.bias, element) : nullptr;
  Value* added = nullptr;
  if (mask.visible)
    added = mask.visible->type().rank() == 1
                ? &build.lengthMask(*mask.visible, build.extent(*parts.key, 2, true), element,
                                    mask.filter)
                : &build.keptMask(*mask.visible, element, mask.filter);
  parts.causal = mask.causal && !isAsLow;
  if (mask.causal && isAsLow) {
    Value& isSeen = build.causalKeys(*parts.query, *parts.key);
    added = added ? &build.node("Where", {isSeen, *added, floatScalar(element, lowest)}, {}, "mask")
                  : &build.additive(isSeen, element, lowest);
  }
  parts.mask = bias && added ? &build.node("Add", {*bias, *added}, {}, "mask")
               : bias        ? bias
                             : added;
}

} // namespace kvopt::builders
