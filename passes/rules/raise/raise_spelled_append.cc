// Raises a gather of new rows after the valid rows of a past to ai.kvopt::AppendRows.
//
//   before   d = Range(0, T, 1) - lengths[B,1]     s = Where(d < 0, Range(0, T, 1), d + P)
//            y = Where(s < T, GatherElements<2>(Concat<2>(past, fresh), Where(s < T, s, 0)), 0)
//   after    y = ai.kvopt.AppendRows(past, fresh, lengths)
//
// P is the number of rows in the past, T the number in both. With a length outside the past, for
// which the gather would take other rows, AppendRows fails.
#include "passes/builders/attention_builder.h"
#include "passes/pattern/rule.h"

namespace kvopt::rules {
using namespace builders;
using namespace ir;
using namespace pattern;

namespace {

/// Whether the value is int64 0 or a float 0 of any type.
bool isNumber(const Value& value, double number) {
  const TensorData* data = value.constant();
  return data && scalarValue(*data) == number;
}

bool isExtent(const Value& value, const Dim& extent) {
  auto integers = value.knownIntegers();
  return integers && integers->size() == 1 && integers->front().isKnownEqual(extent);
}

class RaiseSpelledAppend final : public Rule {
  Var past{"past"}, fresh{"fresh"}, lengths{"lengths"}, joined{"joined"}, slot{"slot"},
      offset{"offset"}, source{"source"}, isRow{"is_row"}, total{"total"}, count{"count"},
      pastRows{"past_rows"}, first{"first"}, step{"step"}, none{"none"}, some{"some"},
      filler{"filler"}, kept{"kept"}, origins{"origins"}, index{"index"};

public:
  llvm::StringRef name() const override { return "raise-spelled-append"; }
  RuleGroup group() const override { return RuleGroup::Raise; }

  P pattern() const override {
    // Layers share the index: everything except the root may have other readers.
    P slots = escaping(bind(slot, op("Range", {constant(first), count, constant(step)})));
    P behind = escaping(bind(offset, op("Sub", {slots, lengths})));
    P isPast = escaping(op("Less", {behind, constant(none)}));
    P shifted = escaping(commutative("Add", {offset, pastRows}));
    P origin = escaping(bind(source, op("Where", {isPast, slot, shifted})));
    P inside = escaping(bind(isRow, op("Less", {origin, total})));
    P clipped = escaping(op("Where", {isRow, source, constant(some)}));
    P both = escaping(bind(joined, op("Concat", {past, fresh}, attrs({{"axis", 2}}))));
    P expanded = escaping(bind(index, op("Expand", {bind(origins, column(clipped)), any()})));
    P rows = escaping(op("GatherElements", {both, expanded}, attrs({{"axis", 2}})));
    return op("Where", {bind(kept, column(inside)), rows, constant(filler)});
  }

  void constraints(Constraints& c) const override {
    c.shape(joined, {"B", "G", "T", "D"});
    c.shape(index, {"B", "G", "T", "D"});
    c.require("slots that count from 0", [this](const Match& match) {
      return isNumber(match[first], 0) && isNumber(match[step], 1) && isNumber(match[none], 0) &&
             isNumber(match[some], 0);
    });
    c.require("rows that are missing are 0",
              [this](const Match& match) { return isNumber(match[filler], 0); });
    c.require(
        "an index of the rows of past and fresh",
        [this](const Match& match) {
          const Dim& rows = match[joined].type().dim(2);
          return match[past].type().hasRank() &&
                 isExtent(match[pastRows], match[past].type().dim(2)) &&
                 isExtent(match[total], rows) && isExtent(match[count], rows);
        },
        ReasonCode::ShapeUnknown);
    c.require(
        "a length for each batch row",
        [this](const Match& match) {
          return isColumn(match[kept], match) && isColumn(match[origins], match);
        },
        ReasonCode::ShapeUnknown);
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    AttentionBuilder build(rewriter);
    Value* rows = &match[lengths];
    const Node* reshape = rows->producer();
    if (reshape && reshape->is("Reshape") && reshape->operand(0)->type().hasRank() &&
        reshape->operand(0)->type().rank() == 1)
      rows = reshape->operand(0);
    else
      rows = &build.node("Reshape", {*rows, ints({-1})}, {}, "past_length");
    Value& present =
        build.node("ai.kvopt::AppendRows", {match[past], match[fresh], *rows}, {}, "present");
    rewriter.recordSources(*present.producer(), match.nodes());
    return rewriter.replace(match.root().result(), present);
  }

private:
  /// Whether the value has the shape [B,1,T,1], or [1,1,T,1], for offsets [B,T] or [1,T].
  bool isColumn(const Value& value, const Match& match) const {
    const TensorType& type = match[offset].type();
    const TensorType& column = value.type();
    if (!type.hasRank() || type.rank() != 2 || !column.hasRank() || column.rank() != 4)
      return false;
    const TensorType& rows = match[joined].type();
    return (type.dim(0).value() == 1 || type.dim(0).isKnownEqual(rows.dim(0))) &&
           column.dim(0).isKnownEqual(type.dim(0)) && column.dim(1).value() == 1 &&
           column.dim(2).isKnownEqual(rows.dim(2)) && column.dim(3).value() == 1;
  }

  /// [B,T] → [B,1,T,1].
  static P column(P rows) {
    return escaping(op("Unsqueeze", {escaping(op("Unsqueeze", {std::move(rows), any()})), any()}));
  }
};

} // namespace

void register_raise_spelled_append(RuleRegistry& registry) {
  registry.add(std::make_unique<RaiseSpelledAppend>());
}

} // namespace kvopt::rules
