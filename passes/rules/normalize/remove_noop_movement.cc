// Removes data movement whose result equals its operand.
//
//   before   y = Reshape(Unsqueeze(x), shape(x))    y = Expand(x, shape(x))
//            y = Transpose<0,2,1,3>(Transpose<0,2,1,3>(x))    y = Slice(x, 0, extent of x)
//   after    y = x
//
// The composed index map and the shapes decide; the computation of shape operands is irrelevant.
#include "passes/analysis/movement/index_map.h"
#include "passes/pattern/rule.h"
#include "passes/pattern/shape_builder.h"

namespace kvopt::rules {
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

/// False only if the shapes are provably different; cheaper than a proof of equality.
bool mayBeSameShape(const TensorType& a, const TensorType& b) {
  if (!a.hasRank() || !b.hasRank() || a.rank() != b.rank())
    return false;
  for (unsigned axis = 0; axis < a.rank(); ++axis) {
    std::optional<int64_t> x = a.shape()[axis].value(), y = b.shape()[axis].value();
    if (x && y && *x != *y)
      return false;
  }
  return true;
}

class RemoveNoopMovement final : public Rule {
  static constexpr unsigned maxNodes = 12;
  Payload<Value*> beginning;

  /// The furthest value that provably equals the root's result.
  static std::optional<Value*> origin(Node& root) {
    Value& end = root.result();
    unsigned worthwhile = 0, passed = 0;
    for (const Value* value = &end; value->producer() && passed < maxNodes;) {
      value = movedOperand(*value->producer());
      if (!value)
        break;
      ++passed;
      if (mayBeSameShape(value->type(), end.type()))
        worthwhile = passed;
    }
    if (worthwhile == 0)
      return std::nullopt;
    std::vector<MovementStop> stops = movementChain(end, worthwhile);
    for (size_t i = stops.size(); i-- > 1;)
      if (stops[i].map.isIdentity())
        return stops[i].value;
    return std::nullopt;
  }

public:
  llvm::StringRef name() const override { return "remove-noop-movement"; }
  RuleGroup group() const override { return RuleGroup::Normalize; }

  P pattern() const override {
    return oneOf("", {{"reshape", op("Reshape", {any(), any()})},
                      {"transpose", op("Transpose", {any()})},
                      {"expand", op("Expand", {any(), any()})},
                      {"unsqueeze", op("Unsqueeze", {any(), any()})},
                      {"unsqueeze-11", op("Unsqueeze", {any()})},
                      {"squeeze", op("Squeeze", {any(), any()})},
                      {"squeeze-11", op("Squeeze", {any()})},
                      {"flatten", op("Flatten", {any()})},
                      {"slice", op("Slice", {any(), any(), any(), any()})},
                      {"slice-step", op("Slice", {any(), any(), any(), any(), any()})},
                      {"tile", op("Tile", {any(), any()})}});
  }

  void constraints(Constraints& c) const override {
    c.plan(beginning, "the result is a value that its operand was made from",
           [](const Match& match) { return origin(match.root()); });
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    return rewriter.replace(match.root().result(), *match[beginning]);
  }
};

} // namespace

void register_remove_noop_movement(RuleRegistry& registry) {
  registry.add(std::make_unique<RemoveNoopMovement>());
}

} // namespace kvopt::rules
