// Scatters rows into a cache, instead of splicing them in.
//
//   before   present = Concat<axis>(Slice(past, 0, p), rows, Slice(past, p + S, C))
//   after    present = ScatterElements<axis>(past, Expand(p + (0 … S-1)), rows)
//
// past is an input of the model and present an output: a cache of C slots. If rows do not fit after
// p, present has another extent before, and the rewritten model fails.
#include "ir/movement.h"
#include "passes/builders/attention_builder.h"
#include "passes/pattern/rule.h"

#include <limits>

namespace kvopt::rules {
using namespace builders;
using namespace ir;
using namespace pattern;

namespace {

class SpliceToScatter final : public Rule {
  Var before{"before"}, rows{"rows"}, after{"after"};

  struct Place {
    Value* past;
    Value* first; ///< one integer: p
    unsigned axis;
  };
  Payload<Place> place;

public:
  llvm::StringRef name() const override { return "splice-to-scatter"; }
  RuleGroup group() const override { return RuleGroup::Normalize; }

  P pattern() const override { return op("Concat", {before, rows, after}); }

  void constraints(Constraints& c) const override {
    c.plan(place, "rows between two slices of a cache, in place of the rows between them",
           [this](const Match& match) { return placeOf(match); });
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    AttentionBuilder build(rewriter);
    const Place& found = match[place];
    const auto axis = static_cast<int64_t>(found.axis);
    Value& given = build.castTo(*found.first, ElementType::Int64);
    Value& first = build.node("Reshape", {given, ints({-1})}, {}, "first");
    Value& checked = build.checkedSlot(first, *found.past, axis);
    Value& slots =
        build.node("Add", {build.range(build.extent(match[rows], axis, /*scalar=*/true)), checked},
                   {}, "positions");
    std::vector<int64_t> column(found.past->type().rank(), 1);
    column[found.axis] = -1;
    Value& positions = build.node("Reshape", {slots, ints(column)}, {}, "positions");
    Value& extents = build.node("Shape", {match[rows]}, {}, "extents");
    Value& index = build.node("Expand", {positions, extents}, {}, "positions");
    Value& present = build.node("ScatterElements", {*found.past, index, match[rows]},
                                attrs({{"axis", axis}}), "written");
    return rewriter.replace(match.root().result(), present);
  }

private:
  /// The value that holds the same single number.
  static Value* number(Value* value) {
    while (value && value->producer()) {
      const std::optional<MovementKind> kind = movementKind(*value->producer());
      if (kind != MovementKind::Reshape && kind != MovementKind::InsertAxes &&
          kind != MovementKind::RemoveAxes && kind != MovementKind::Same)
        break;
      value = movedOperand(*value->producer());
    }
    return value;
  }

  /// The axis and range of a Slice that cuts one axis with step 1.
  static std::optional<std::pair<unsigned, MovementRange>> cut(const Value& value) {
    const std::optional<Movement> movement =
        value.producer() && value.producer()->is("Slice") ? movementOf(value) : std::nullopt;
    if (!movement || !movement->axis() || movement->ranges.front().step.known.value() != 1)
      return std::nullopt;
    return std::pair(*movement->axis(), movement->ranges.front());
  }

  std::optional<Place> placeOf(const Match& match) const {
    const auto head = cut(match[before]);
    const auto tail = cut(match[after]);
    const std::optional<Movement> joined = movementOf(match.root().result());
    if (!head || !tail || !joined || !joined->axis() || head->first != tail->first ||
        *joined->axis() != head->first)
      return std::nullopt;
    const unsigned axis = head->first;
    Value* past = match[before].producer()->operand(0);
    const TensorType& cache = past->type();
    const TensorType& fresh = match[rows].type();
    if (past != match[after].producer()->operand(0) || !past->isGraphInput() ||
        past->graph().parentNode() || !match.root().result().isGraphOutput() || !cache.hasRank() ||
        !fresh.hasRank() || cache.rank() != fresh.rank())
      return std::nullopt;
    for (unsigned i = 0; i < cache.rank(); ++i)
      if (i != axis && !fresh.dim(i).isKnownEqual(cache.dim(i)))
        return std::nullopt;
    const bool isWhole =
        head->second.start.known.value() == 0 &&
        (tail->second.end.known.isKnownEqual(cache.dim(axis)) ||
         tail->second.end.known.value().value_or(0) > std::numeric_limits<int32_t>::max() / 2);
    Value* first = number(match[before].producer()->operand(2));
    Value* next = number(match[after].producer()->operand(1));
    if (!isWhole || !first || !next || !isNext(*first, *next, fresh.dim(axis)))
      return std::nullopt;
    return Place{past, first, axis};
  }

  /// Whether next = first + count.
  static bool isNext(const Value& first, const Value& next, const Dim& count) {
    const Node* add = next.producer();
    if (!add || !add->is("Add"))
      return false;
    for (unsigned operand : {0u, 1u}) {
      auto known = add->operand(1 - operand)->knownIntegers();
      if (number(add->operand(operand)) == &first && known && known->size() == 1 &&
          known->front().isKnownEqual(count))
        return true;
    }
    return false;
  }
};

} // namespace

void register_splice_to_scatter(RuleRegistry& registry) {
  registry.add(std::make_unique<SpliceToScatter>());
}

} // namespace kvopt::rules
