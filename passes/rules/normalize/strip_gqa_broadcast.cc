// Removes the repetition of keys and values over the query heads of their group, for grouped Sdpa.
//
//   before   K = Reshape(Expand(Unsqueeze(k, 2), [B,G,N,T,D]), [B,G*N,T,D])   (V likewise)
//            o = ai.kvopt.Sdpa(q, K, V, …)
//   after    o = ai.kvopt.Sdpa(q, k, v, …)
//
// The index map of the movement before K and V decides: Expand, Tile, Gather with fixed indices,
// repeated Concat, in any layout. A repetition in the order h mod G is another kind of attention.
#include "passes/analysis/movement/head_broadcast.h"
#include "passes/pattern/rule.h"

namespace kvopt::rules {
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

class StripGqaBroadcast final : public Rule {
  Var q{"q"}, k{"k"}, v{"v"}, mask{"mask"}, sinks{"sinks"}, pastLength{"past_length"};

  struct Plan {
    HeadSource keys, values;
  };
  Payload<Plan> planned;

  /// The fewest groups in which both keys and values can be read, if there are fewer than now.
  std::optional<Plan> planOf(const Match& match, bool& interleaved) const {
    std::vector<HeadSource> keys = headSources(match[k], interleaved);
    std::vector<HeadSource> values = headSources(match[v], interleaved);
    const Dim keyHeads = match[k].type().dim(1), valueHeads = match[v].type().dim(1);
    for (size_t i = keys.size(); i-- > 0;) {
      const Dim& groups = keys[i].groups;
      const HeadSource* value = bestSource(values, groups);
      if (!value || (groups.isKnownEqual(keyHeads) && groups.isKnownEqual(valueHeads)))
        continue;
      return Plan{*bestSource(keys, groups), *value};
    }
    return std::nullopt;
  }

public:
  llvm::StringRef name() const override { return "strip-gqa-broadcast"; }
  RuleGroup group() const override { return RuleGroup::Strip; }

  P pattern() const override {
    return op("ai.kvopt::Sdpa", {q, k, v, maybe(mask), maybe(sinks), maybe(pastLength)});
  }

  void constraints(Constraints& c) const override {
    c.plan(planned, [this](const Match& match, Refusal& refusal) {
      bool interleaved = false;
      std::optional<Plan> plan = planOf(match, interleaved);
      if (!plan)
        refusal.because([&] {
          const Value& keys = match[k];
          return interleaved ? MatchFailure{ReasonCode::HeadCountUnproven, keys.name().str(),
                                            "query heads h / N to share a group",
                                            "groups repeated in the order h mod G", ""}
                             : MatchFailure{ReasonCode::PatternMismatch, keys.name().str(),
                                            "keys and values that are repeated over heads alike",
                                            keys.type().str(), ""};
        });
      return plan;
    });
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    Node& before = match.root();
    const Plan& plan = match[planned];
    Value* keys = groupedHeads(plan.keys, rewriter);
    Value* values = keys ? groupedHeads(plan.values, rewriter) : nullptr;
    if (!values)
      return MatchFailure{ReasonCode::ShapeUnknown, match[k].name().str(),
                          "extents that graph inputs have", match[k].type().str(), ""};
    llvm::SmallVector<Value*, 6> operands{
        &match[q], keys, values, match.find(mask), match.find(sinks), match.find(pastLength)};
    while (!operands.back())
      operands.pop_back();
    Node& grouped = rewriter.createLike(before, operands, "attention");
    grouped.setMetadata(before.metadata());
    return rewriter.replace(before.result(), grouped.result());
  }
};

} // namespace

void register_strip_gqa_broadcast(RuleRegistry& registry) {
  registry.add(std::make_unique<StripGqaBroadcast>());
}

} // namespace kvopt::rules
