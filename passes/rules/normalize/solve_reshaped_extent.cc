// Replaces a computed extent that can have only one value by that extent.
//
//   before   x = Max(0, …)   r = Reshape<allowzero = 1>(data[B*S,D], Concat(B, Unsqueeze(x), D))
//   after    x replaced everywhere by S, as an input's Shape has it
//
// Exporters write the length of a sliced table, min(64, P + S) - min(64, P), instead of the number
// of rows. The Reshape fails for any other number; Max with a constant of at least 0 excludes -1.
#include "passes/pattern/rule.h"
#include "passes/pattern/shape_builder.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::rules {
using namespace ir;
using namespace pattern;

namespace {

class SolveReshapedExtent final : public Rule {
  Var data{"data"}, shape{"shape"};

  struct Plan {
    Value* scalar; ///< int64, the computed extent
    Dim extent;
  };
  Payload<Plan> plan;

  /// The scalar in a part of a Concat, if it is the result of Max with some constant >= 0.
  static Value* boundedScalar(Value* part) {
    constexpr unsigned mostSteps = 3;
    for (unsigned step = 0; part && step < mostSteps; ++step) {
      Node* node = part->producer();
      if (!node || part->type().elementType() != ElementType::Int64)
        return nullptr;
      if (node->is("Reshape") || node->is("Unsqueeze") || node->is("Squeeze")) {
        part = node->operand(0);
        continue;
      }
      bool isExtent = node->is("Max") && llvm::any_of(node->operands(), [](const Use& use) {
                        auto known = use.value() ? use.value()->knownIntegers() : std::nullopt;
                        return known && known->size() == 1 && known->front().value() >= 0;
                      });
      return isExtent && part->type().hasRank() && part->type().rank() == 0 ? part : nullptr;
    }
    return nullptr;
  }

  std::optional<Plan> planOf(const Match& match) const {
    const Node* concat = match[shape].producer();
    if (!concat || !concat->is("Concat") || !match[data].type().hasRank() ||
        match.root().intAttr("allowzero", 0) != 1)
      return std::nullopt;
    Dim rest = Dim::fixed(1);
    for (const Dim& extent : match[data].type().shape())
      rest = rest * extent;
    Value* open = nullptr;
    for (const Use& use : concat->operands()) {
      auto known = use.value() ? use.value()->knownIntegers() : std::nullopt;
      bool isKnown = known && llvm::none_of(*known, [](const Dim& d) { return d.isUnknown(); });
      if (!isKnown && (open || !use.value() || use.value()->type().dim(0).value() != 1))
        return std::nullopt;
      if (!isKnown)
        open = use.value();
      else
        for (const Dim& extent : *known) {
          std::optional<Dim> quotient = rest.dividedBy(extent);
          if (!quotient || !extent.isKnownNonNegative())
            return std::nullopt;
          rest = *quotient;
        }
    }
    Value* scalar = boundedScalar(open);
    if (!scalar || rest.isUnknown() || !rest.isKnownNonNegative())
      return std::nullopt;
    return Plan{scalar, rest};
  }

public:
  llvm::StringRef name() const override { return "solve-reshaped-extent"; }
  RuleGroup group() const override { return RuleGroup::Normalize; }

  P pattern() const override { return op("Reshape", {data, shape}); }

  void constraints(Constraints& c) const override {
    c.plan(
        plan, "one extent that is the result of Max and follows from all others",
        [this](const Match& match) { return planOf(match); }, ReasonCode::ShapeUnknown);
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    const Plan& found = match[plan];
    Value* extent = ShapeBuilder(rewriter).vector({found.extent});
    if (!extent)
      return MatchFailure{ReasonCode::ShapeUnknown, match.root().result().name().str(),
                          "an extent that a graph input has", found.extent.str(), ""};
    Value& scalar = rewriter.create("Squeeze", {extent}, {}, 1, "extent").result();
    return rewriter.replace(*found.scalar, scalar);
  }
};

} // namespace

void register_solve_reshaped_extent(RuleRegistry& registry) {
  registry.add(std::make_unique<SolveReshapedExtent>());
}

} // namespace kvopt::rules
