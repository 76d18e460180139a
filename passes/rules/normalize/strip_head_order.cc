// Reorders query heads that read key and value heads in an arbitrary order, for grouped Sdpa.
//
//   before   o = ai.kvopt::Sdpa(q, k[:, g(h)], v[:, g(h)], mask, sinks)     g(h) a constant table
//   after    o = Gather<1>(ai.kvopt::Sdpa(Gather<1>(q, p), k, v, mask, sinks), inverse of p)
//
// where p lists the heads that read group 0, then those of group 1, and so on, the same number for
// every group. Masks and sinks with an entry per head follow the queries. Groups that
// strip-gqa-broadcast proves for any number of heads need no p. This rule follows each head
// separately, through repetitions in the order h mod G, reversed Slices, Gathers of any fixed
// indices and Concats of single heads.
#include "passes/analysis/movement/head_map.h"
#include "passes/pattern/rule.h"

namespace kvopt::rules {
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

class StripHeadOrder final : public Rule {
  Var q{"q"}, k{"k"}, v{"v"}, mask{"mask"}, sinks{"sinks"}, pastLength{"past_length"};

  struct Plan {
    HeadGrouping grouping;
    std::optional<int64_t> maskAxis; ///< the mask's axis of heads, if it has one that is reordered
  };
  Payload<Plan> planned;

  static Value& pick(Value& value, int64_t axis, Value& order, Rewriter& rewriter) {
    return rewriter.create("Gather", {&value, &order}, attrs({{"axis", axis}}), 1, "heads")
        .result();
  }

  /// Whether strip-gqa-broadcast finds these groups.
  static bool isBroadcast(Value& heads, const Dim& groups) {
    bool interleaved = false;
    return bestSource(headSources(heads, interleaved), groups) != nullptr;
  }

  /// Whether heads are taken in groups, or one by one, all the way to a value that no movement
  /// produces. This needs one walk, whereas following every head needs one walk each.
  static bool endsInGroups(Value& heads) {
    constexpr unsigned headAxis = 1, maxNodes = 16;
    if (!heads.type().hasRank() || heads.type().rank() != 4)
      return false;
    IndexMap map = IndexMap::identity(heads.type().shape());
    Value* value = &heads;
    Node* node = value->producer();
    for (unsigned passed = 0; node && passed < maxNodes; ++passed, node = value->producer()) {
      if (map.through(*node, value->resultIndex()))
        value = movedOperand(*node);
      else if (Value* changed = pointwiseOperand(*node);
               changed && changed->type().hasRank() &&
               changed->type().rank() == value->type().rank())
        value = changed;
      else
        break;
    }
    auto found = map.repetition(headAxis, IndexMap::Repeat::Entries);
    if (!found || !node)
      return found.has_value();
    if (movementKind(*node) == MovementKind::Concat)
      return found->perm && movementOf(*value)->axis() != (*found->perm)[headAxis];
    return !movementKind(*node) && !pointwiseOperand(*node);
  }

  /// The mask's axis of heads; nullopt if all heads share it. Sets `failure` if that is unknown.
  static std::optional<int64_t> headAxisOf(const Value& mask, const Dim& heads,
                                           std::optional<MatchFailure>& failure) {
    const TensorType& type = mask.type();
    if (type.hasRank() && (type.rank() < 3 || type.dim(-3).value() == 1))
      return std::nullopt;
    if (type.hasRank() && type.dim(-3).isKnownEqual(heads))
      return static_cast<int64_t>(type.rank()) - 3;
    failure = MatchFailure{ReasonCode::ShapeUnknown, mask.name().str(),
                           "a mask that all heads share, or one for each", type.str(), ""};
    return std::nullopt;
  }

  std::optional<Plan> planOf(const Match& match, std::optional<MatchFailure>& failure) const {
    auto refuse = [&](const char* expected) {
      failure = MatchFailure{ReasonCode::PatternMismatch, match[k].name().str(), expected,
                             match[k].type().str(), ""};
      return std::nullopt;
    };
    constexpr const char* others = "heads that strip-gqa-broadcast leaves";
    if (endsInGroups(match[k]) && endsInGroups(match[v]))
      return refuse(others);
    std::optional<HeadGrouping> grouping = groupHeads(match[q], match[k], match[v], failure);
    if (failure)
      return std::nullopt;
    if (!grouping)
      return refuse("key and value heads that are repeated or reordered");
    if (grouping->keepsOrder() && isBroadcast(match[k], grouping->keys.groups) &&
        isBroadcast(match[v], grouping->values.groups))
      return refuse(others);
    const Value* bias = match.find(mask);
    std::optional<int64_t> axis = bias && !grouping->keepsOrder()
                                      ? headAxisOf(*bias, match[q].type().dim(1), failure)
                                      : std::optional<int64_t>();
    if (failure)
      return std::nullopt;
    return Plan{std::move(*grouping), axis};
  }

public:
  llvm::StringRef name() const override { return "strip-head-order"; }
  RuleGroup group() const override { return RuleGroup::Strip; }

  P pattern() const override {
    return op("ai.kvopt::Sdpa", {q, k, v, maybe(mask), maybe(sinks), maybe(pastLength)});
  }

  void constraints(Constraints& c) const override {
    c.plan(planned, [this](const Match& match, Refusal& refusal) {
      std::optional<MatchFailure> failure;
      std::optional<Plan> plan = planOf(match, failure);
      if (!plan)
        refusal.because([&] { return *failure; });
      return plan;
    });
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    Node& before = match.root();
    const auto& [grouping, maskAxis] = match[planned];
    Value* keys = groupedHeads(grouping.keys, rewriter);
    Value* values = keys ? groupedHeads(grouping.values, rewriter) : nullptr;
    if (!values)
      return MatchFailure{ReasonCode::ShapeUnknown, match[k].name().str(),
                          "extents that graph inputs have", match[k].type().str(), ""};
    Value* query = &match[q];
    Value* bias = match.find(mask);
    Value* sink = match.find(sinks);
    if (!grouping.keepsOrder()) {
      Value& order = rewriter.constant("head_order", int64Tensor(grouping.order));
      query = &pick(*query, 1, order, rewriter);
      if (maskAxis)
        bias = &pick(*bias, *maskAxis, order, rewriter);
      if (sink)
        sink = &pick(*sink, 0, order, rewriter);
    }
    llvm::SmallVector<Value*, 6> operands{query, keys, values, bias, sink, match.find(pastLength)};
    while (!operands.back())
      operands.pop_back();
    Node& grouped = rewriter.createLike(before, operands, "attention");
    grouped.setMetadata(before.metadata());
    Value* output = &grouped.result();
    if (!grouping.keepsOrder()) {
      std::vector<int64_t> places(grouping.order.size());
      for (size_t place = 0; place < places.size(); ++place)
        places[static_cast<size_t>(grouping.order[place])] = static_cast<int64_t>(place);
      output = &pick(*output, 1, rewriter.constant("head_places", int64Tensor(places)), rewriter);
    }
    return rewriter.replace(before.result(), *output);
  }
};

} // namespace

void register_strip_head_order(RuleRegistry& registry) {
  registry.add(std::make_unique<StripHeadOrder>());
}

} // namespace kvopt::rules
