// Replaces a Reshape of a reshaped tensor by a Reshape of the original tensor.
//
//   before   y = Reshape(Unsqueeze(x, axes), shape)
//   after    y = Reshape(x, shape)
//
// An entry of 0 copies an extent of the operand, whose axes change: the extent at an entry that may
// be 0 must be the same before and after.
#include "passes/pattern/rule.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::rules {
using namespace ir;
using namespace pattern;

namespace {

class ComposeReshapes final : public Rule {
  Var x{"x"}, shape{"shape"}, between{"between"};

  /// Whether a 0 in the shape of the new Reshape is an extent of 0.
  struct Zeros {
    bool areExtents;
  };
  Payload<Zeros> zeros;

  /// Meaning of zeros that `shape` may contain; nullopt if they would copy another extent.
  std::optional<Zeros> zerosOf(const Match& match) const {
    Node& root = match.root();
    auto entries = match[shape].knownIntegers();
    if (root.intAttr("allowzero", 0) != 0)
      return Zeros{true};
    if (!entries)
      return std::nullopt;
    bool isSafe = true, hasInferred = false, hasCopied = false;
    for (size_t i = 0; i < entries->size(); ++i) {
      const Dim& entry = (*entries)[i];
      hasInferred |= entry.isUnknown() || entry.value() == -1;
      hasCopied |= entry.isUnknown() || entry.value() == 0;
      if (entry.isKnownPositive() || entry.value() == -1)
        continue;
      auto axis = static_cast<int64_t>(i);
      isSafe &= axis < rankOf(match[x]) && axis < rankOf(match[between]) &&
                match[x].type().dim(axis).isKnownEqual(match[between].type().dim(axis));
    }
    if (isSafe)
      return Zeros{false};
    bool canAllow = root.graph().opsetVersion() >= 14 && !hasInferred && !hasCopied;
    return canAllow ? std::optional<Zeros>(Zeros{true}) : std::nullopt;
  }

  static int64_t rankOf(const Value& value) {
    return value.type().hasRank() ? value.type().rank() : 0;
  }

public:
  llvm::StringRef name() const override { return "compose-reshapes"; }
  RuleGroup group() const override { return RuleGroup::Normalize; }

  P pattern() const override {
    P reshaped = oneOf("first", {{"reshape", op("Reshape", {x, any()})},
                                 {"unsqueeze", op("Unsqueeze", {x, any()})},
                                 {"unsqueeze-11", op("Unsqueeze", {x})},
                                 {"squeeze", op("Squeeze", {x, any()})},
                                 {"squeeze-11", op("Squeeze", {x})},
                                 {"flatten", op("Flatten", {x})}});
    return op("Reshape", {bind(between, escaping(reshaped)), shape});
  }

  void constraints(Constraints& c) const override {
    c.plan(
        zeros, "entries of the shape that may be 0 copy the same extent",
        [this](const Match& match) { return zerosOf(match); }, ReasonCode::ShapeUnknown);
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    Node& reshaped = rewriter.create(
        "Reshape", {&match[x], &match[shape]},
        match[zeros].areExtents ? attrs({{"allowzero", 1}}) : AttributeList(), 1, "reshaped");
    return rewriter.replace(match.root().result(), reshaped.result());
  }
};

} // namespace

void register_compose_reshapes(RuleRegistry& registry) {
  registry.add(std::make_unique<ComposeReshapes>());
}

} // namespace kvopt::rules
