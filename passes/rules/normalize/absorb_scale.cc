// Folds a constant factor on the queries or keys of an Sdpa into its scale.
//
//   before   q = move(x * c)   o = ai.kvopt.Sdpa<scale = s>(q, k, v, …)
//            (k likewise; x / c too)
//
//   after    o = ai.kvopt.Sdpa<scale = s * c>(move(x), k, v, …)
//
// `move` is any chain of data movement without other readers. The walk ends at a Concat, so a
// factor that is part of a cache's contents remains.
#include "ir/attribute.h"
#include "ir/movement.h"
#include "passes/pattern/rule.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace kvopt::rules {
using namespace ir;
using namespace pattern;

namespace {

/// Whether the result contains every element of the moved operand, once or more often.
bool keepsAllElements(MovementKind kind) {
  switch (kind) {
  case MovementKind::Same:
  case MovementKind::Permutation:
  case MovementKind::Reshape:
  case MovementKind::InsertAxes:
  case MovementKind::RemoveAxes:
  case MovementKind::Broadcast:
  case MovementKind::Repeat:
    return true;
  case MovementKind::Convert:
  case MovementKind::Slice:
  case MovementKind::Gather:
  case MovementKind::PointGather:
  case MovementKind::Concat:
    return false;
  }
  return false;
}

/// Whether there is one data reader; readers of the shape do not count, because a factor does not
/// affect them.
bool hasOneDataReader(const Value& value) {
  auto isData = [](const Use& use) { return !use.user().is("Shape"); };
  return !value.isGraphOutput() && llvm::count_if(value.uses(), isData) == 1;
}

struct Factor {
  Value* scaled = nullptr;
  Value* unscaled = nullptr;
  double number = 1.0;
};

/// The factor if the node multiplies or divides by one constant number.
std::optional<Factor> scalarFactor(Node& node) {
  bool divides = node.is("Div");
  if (!divides && !node.is("Mul"))
    return std::nullopt;
  for (unsigned i : {1u, 0u}) {
    Value* scaled = node.operand(1 - i);
    const TensorData* tensor = node.operand(i) ? node.operand(i)->constant() : nullptr;
    if (!tensor || !scaled || !scaled->type().hasRank() || (divides && i == 0))
      continue;
    std::optional<double> number =
        tensor->shape().size() <= scaled->type().rank() ? scalarValue(*tensor) : std::nullopt;
    if (!number)
      continue;
    double factor = divides ? 1.0 / *number : *number;
    if (std::isfinite(factor))
      return Factor{&node.result(), scaled, factor};
  }
  return std::nullopt;
}

class AbsorbScale final : public Rule {
  Var q{"q"}, k{"k"}, v{"v"}, mask{"mask"}, sinks{"sinks"}, pastLength{"past_length"};
  Payload<Factor> found;

public:
  llvm::StringRef name() const override { return "absorb-scale"; }
  RuleGroup group() const override { return RuleGroup::Raise; }

  P pattern() const override {
    return op("ai.kvopt::Sdpa", {q, k, v, maybe(mask), maybe(sinks), maybe(pastLength)});
  }

  void constraints(Constraints& c) const override {
    c.plan(found, [this](const Match& match, Refusal& refusal) {
      MatchFailure ofQuery;
      MatchFailure ofKey;
      std::optional<Factor> factor = findFactor(match[q], ofQuery);
      if (!factor)
        factor = findFactor(match[k], ofKey);
      if (!factor)
        refusal.because(
            [&] { return ofQuery.code != ReasonCode::PatternMismatch ? ofQuery : ofKey; });
      return factor;
    });
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    Node& before = match.root();
    llvm::SmallVector<Value*, 6> operands;
    for (const Use& use : before.operands())
      operands.push_back(use.value());
    const Factor& factor = match[found];
    auto scale = static_cast<float>(before.floatAttr("scale", 1.0f) * factor.number);
    if (!std::isfinite(scale))
      return MatchFailure{ReasonCode::ScaleNotConstant, before.name().str(), "a finite scale",
                          "a scale outside the range of float", ""};
    // If the Sdpa reads the product itself, there is no movement to read it through.
    for (Value*& operand : operands)
      if (operand == factor.scaled)
        operand = factor.unscaled;
    // The movement in between has no other reader and remains. Neither replacement can create a
    // cycle: the new value was an operand of the replaced one.
    if (std::optional<MatchFailure> refused = rewriter.replace(*factor.scaled, *factor.unscaled))
      return refused;
    Node& after = rewriter.createLike(before, operands, "attention");
    after.setAttribute("scale", Attribute::ofFloat(scale));
    after.setMetadata(before.metadata());
    return rewriter.replace(before.result(), after.result());
  }

private:
  static constexpr unsigned mostSteps = 16;

  static std::optional<Factor> findFactor(Value& operand, MatchFailure& failure) {
    Value* value = &operand;
    for (unsigned step = 0;; ++step) {
      Node* node = value->producer();
      auto refuse = [&](ReasonCode code, std::string expected, std::string actual) {
        failure = {code, value->name().str(), std::move(expected), std::move(actual), ""};
        return std::optional<Factor>();
      };
      if (!node || step == mostSteps)
        return refuse(ReasonCode::PatternMismatch, "a product with a constant number", "none");
      std::optional<Factor> factor = scalarFactor(*node);
      std::optional<MovementKind> kind = movementKind(*node);
      if (!factor && !(kind && keepsAllElements(*kind)))
        return refuse(ReasonCode::PatternMismatch, "a product with a constant number",
                      node->op().str());
      if (!hasOneDataReader(*value))
        return refuse(ReasonCode::ValueEscapes, "one reader", "several, or the graph's output");
      if (factor)
        return factor;
      value = movedOperand(*node);
    }
  }
};

} // namespace

void register_absorb_scale(RuleRegistry& registry) {
  registry.add(std::make_unique<AbsorbScale>());
}

} // namespace kvopt::rules
