// Replaces a chain of data movements that permutes axes by one Transpose.
//
//   before   y = Transpose<0,1,3,2>(Transpose<0,2,1,3>(x))
//            y = Reshape(Transpose<0,2,1>(Reshape(x, [-1,T,D])), [B,H,D,T])
//   after    y = Transpose<…>(x)
#include "passes/analysis/movement/index_map.h"
#include "passes/pattern/rule.h"

namespace kvopt::rules {
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

class ComposeMovement final : public Rule {
  static constexpr unsigned maxNodes = 12;

  struct Origin {
    Value* value;
    std::vector<int64_t> perm;
  };
  Payload<Origin> from;

  /// The furthest value, at least two nodes away, whose Transpose is the root's result.
  static std::optional<Origin> origin(Node& root) {
    Value& end = root.result();
    if (!end.type().hasRank())
      return std::nullopt;
    unsigned worthwhile = 0, passed = 0;
    bool permutes = false;
    for (const Value* value = &end; value->producer() && passed < maxNodes;) {
      const Node& node = *value->producer();
      value = movedOperand(node);
      if (!value)
        break;
      permutes |= movementKind(node) == MovementKind::Permutation;
      ++passed;
      if (permutes && value->type().hasRank() && value->type().rank() == end.type().rank())
        worthwhile = passed;
    }
    if (worthwhile < 2)
      return std::nullopt;
    std::vector<MovementStop> stops = movementChain(end, worthwhile);
    for (size_t i = stops.size(); i-- > 2;)
      if (auto perm = stops[i].map.transposition())
        return Origin{stops[i].value, {perm->begin(), perm->end()}};
    return std::nullopt;
  }

public:
  llvm::StringRef name() const override { return "compose-movement"; }
  RuleGroup group() const override { return RuleGroup::Normalize; }

  P pattern() const override {
    return oneOf("", {{"transpose", op("Transpose", {any()})},
                      {"reshape", op("Reshape", {any(), any()})},
                      {"unsqueeze", op("Unsqueeze", {any(), any()})},
                      {"unsqueeze-11", op("Unsqueeze", {any()})},
                      {"squeeze", op("Squeeze", {any(), any()})},
                      {"squeeze-11", op("Squeeze", {any()})}});
  }

  void constraints(Constraints& c) const override {
    c.plan(from, "two or more movements that permute the axes of a value",
           [](const Match& match) { return origin(match.root()); });
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    const auto& [value, perm] = match[from];
    Node& transposed =
        rewriter.create("Transpose", {value}, attrs({{"perm", perm}}), 1, "transposed");
    return rewriter.replace(match.root().result(), transposed.result());
  }
};

} // namespace

void register_compose_movement(RuleRegistry& registry) {
  registry.add(std::make_unique<ComposeMovement>());
}

} // namespace kvopt::rules
