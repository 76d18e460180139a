// Conversion of ai.kvopt::Sdpa and ai.kvopt::AppendRows to operators that every engine supports.
#include "passes/targets/primitive/spelled_attention.h"

#include "passes/pattern/handled.h"
#include "passes/targets/support/cache_rows.h"
#include "passes/targets/support/gapped_keys.h"
#include "passes/targets/support/key_visibility.h"

#include "llvm/ADT/STLExtras.h"

#include <limits>

namespace kvopt::targets {
using namespace builders;
using namespace ir;
using namespace pattern;

namespace {

/// Operands of ai.kvopt::Sdpa.
enum Operand : unsigned { Query, Key, Values, Mask, Sinks, PastLength };

class Speller {
public:
  /// `gap` may be null.
  Speller(Node& attention, Rewriter& edits, const GappedKeys* gap)
      : sdpa(attention), rewriter(edits), build(edits), query(*attention.operand(Query)),
        key(*attention.operand(Key)), gapped(gap), computed(computedType(query)) {}

  Value& write() {
    Value& weights = probabilities(maskedScores());
    Value& values = build.castTo(*sdpa.operand(Values), computed);
    return build.castTo(headwise(weights, values, "context"), query.type().elementType());
  }

private:
  static ElementType computedType(const Value& query) {
    const ElementType element = query.type().elementType();
    return element == ElementType::Double ? element : ElementType::Float;
  }

  bool isGrouped() const { return !query.type().dim(1).isKnownEqual(key.type().dim(1)); }
  int64_t heads() const { return *query.type().dim(1).value(); }
  int64_t groups() const { return *key.type().dim(1).value(); }

  /// [B,H,S,W] → [B,G,N,S,W], with the query heads of one key head next to each other.
  Value& split(Value& value) {
    Value& outer = build.value(ints({0, groups(), heads() / groups()}));
    return build.node("Reshape", {value, shapeOf(outer)}, {}, "grouped");
  }

  /// The inverse of `split`.
  Value& merge(Value& value) {
    Value& outer = build.value(ints({0, heads()}));
    return build.node("Reshape", {value, shapeOf(outer)}, {}, "heads");
  }

  /// int64: the elements of `outer`, then S, then the inferred rest.
  Value& shapeOf(Value& outer) {
    Value& rows = build.value(build.extent(query, 2));
    return build.concat(build.concat(outer, rows, 0), build.value(ints({-1})), 0);
  }

  /// The product of each query head's rows with the matrix of its key head: [B,G,·,·].
  Value& headwise(Value& rows, Value& matrices, llvm::StringRef hint) {
    if (!isGrouped())
      return build.node("MatMul", {rows, matrices}, {}, hint);
    Value& repeated = build.unsqueeze(matrices, 2);
    Value& product = build.node("MatMul", {split(rows), repeated}, {}, hint);
    return merge(product);
  }

  BuilderOperand scalar(double number) { return floatScalar(computed, number); }

  Value& scores() {
    Value& keys = build.castTo(transposed(key, {0, 1, 3, 2}, rewriter), computed);
    Value& products = headwise(build.castTo(query, computed), keys, "scores");
    const auto scale = static_cast<double>(sdpa.floatAttr("scale", 1.0f));
    Value& scaled = build.node("Mul", {products, scalar(scale)}, {}, "scaled");
    const auto cap = static_cast<double>(sdpa.floatAttr("softcap", 0.0f));
    if (cap == 0)
      return scaled;
    Value& ratio = build.node("Div", {scaled, scalar(cap)}, {}, "over_cap");
    return build.node("Mul", {build.node("Tanh", {ratio}), scalar(cap)}, {}, "capped");
  }

  /// Keys that causality, a window and lengths leave visible; null if they hide none.
  Value* positionMask() {
    if (gapped)
      return &gappedKeyMask(*gapped, sdpa.intAttr("causal", 0) != 0, sdpa.intAttr("window", 0),
                            query, build);
    KeyVisibility hidden;
    hidden.hidesLaterKeys = sdpa.intAttr("causal", 0) != 0;
    hidden.window = sdpa.intAttr("window", 0);
    const BuilderOperand rows = build.extent(query, 2);
    if (Value* lengths = sdpa.operand(PastLength)) {
      hidden.firstPosition = lengths;
      hidden.keyCount = &build.node("Add", {*lengths, rows}, {}, "key_count");
    } else if (hidden.hidesLaterKeys || hidden.window != 0) {
      const bool isAligned = query.type().dim(2).isKnownEqual(key.type().dim(2));
      hidden.firstPosition =
          isAligned ? &build.value(ints({0}))
                    : &build.node("Sub", {build.extent(key, 2), rows}, {}, "earlier_keys");
    }
    return visibilityMask(hidden, build.extent(query, 2, true), build.extent(key, 2, true), build);
  }

  /// The mask with a column for each key; null if there is none.
  Value* explicitMask() {
    Value* mask = sdpa.operand(Mask);
    return mask && gapped ? &spreadMask(*gapped, *mask, key.type().dim(2), query, build) : mask;
  }

  Value& maskedScores() {
    Value* masked = &scores();
    Value* visible = positionMask();
    if (Value* mask = explicitMask()) {
      if (mask->type().elementType() == ElementType::Bool)
        visible = &bothHold(visible, *mask, build);
      else
        masked = &build.node("Add", {*masked, build.castTo(*mask, computed)}, {}, "masked");
    }
    if (!visible)
      return *masked;
    constexpr double hidden = -std::numeric_limits<double>::infinity();
    return build.node("Where", {*visible, *masked, scalar(hidden)}, {}, "masked");
  }

  /// Whether every row provably sees a key. Lengths may be negative, and there may be more rows
  /// than keys: the first rows then see none.
  bool everyRowSeesAKey() const {
    if (sdpa.operand(Mask))
      return false;
    if (gapped)
      return true; // the key of its own token
    if (const Value* lengths = sdpa.operand(PastLength)) {
      const auto known = lengths->knownIntegers();
      return known && llvm::all_of(*known, [](const Dim& length) {
               return Dim::fixed(0).isKnownLessEqual(length);
             });
    }
    const bool countsPositions = sdpa.intAttr("causal", 0) != 0 || sdpa.intAttr("window", 0) != 0;
    return !countsPositions || query.type().dim(2).isKnownLessEqual(key.type().dim(2));
  }

  Value& probabilities(Value& masked) {
    const auto softmax = [&](Value& logits) -> Value& {
      return build.node("Softmax", {logits}, attrs({{"axis", -1}}), "probabilities");
    };
    if (Value* sinks = sdpa.operand(Sinks)) {
      Value& column =
          build.node("Reshape", {build.castTo(*sinks, computed), ints({1, -1, 1, 1})}, {}, "sink");
      Value& shape = build.concat(
          build.concat(build.value(build.extent(query, 0)), build.value(build.extent(query, 1)), 0),
          build.concat(build.value(build.extent(query, 2)), build.value(ints({1})), 0), 0);
      Value& expanded = build.node("Expand", {column, shape}, {}, "sink_column");
      return build.slice(softmax(build.concat(masked, expanded, 3)), 3, 0, -1);
    }
    Value& weights = softmax(masked);
    if (everyRowSeesAKey())
      return weights;
    Value& undefined = build.node("IsNaN", {weights}, {}, "sees_no_key");
    return build.node("Where", {undefined, scalar(0), weights}, {}, "probabilities");
  }

  Node& sdpa;
  Rewriter& rewriter;
  AttentionBuilder build;
  Value& query;
  Value& key;
  const GappedKeys* gapped;
  ElementType computed;
};

} // namespace

std::optional<MatchFailure> spellingObstacle(const Node& sdpa) {
  static constexpr llvm::StringLiteral attributes[] = {"scale", "causal", "window", "softcap",
                                                       "mask_boolean"};
  static constexpr llvm::StringLiteral operands[] = {"query", "key",   "value",
                                                     "mask",  "sinks", "past_length"};
  if (std::optional<MatchFailure> failure = unhandled(sdpa, {attributes, operands}))
    return failure;
  const Dim& heads = sdpa.operand(Query)->type().dim(1);
  const Dim& groups = sdpa.operand(Key)->type().dim(1);
  const auto isGrouped = [&] {
    return heads.value() && groups.value() && *groups.value() > 0 &&
           *heads.value() % *groups.value() == 0;
  };
  if (!heads.isKnownEqual(groups) && !isGrouped())
    return MatchFailure{ReasonCode::HeadCountUnproven, sdpa.name().str(),
                        "fixed numbers of query and key heads",
                        heads.str() + " and " + groups.str(), ""};
  return std::nullopt;
}

Value& spellAttention(Node& sdpa, Rewriter& rewriter) {
  return Speller(sdpa, rewriter, nullptr).write();
}

Value& spellAttention(Node& sdpa, const GappedKeys& keys, Rewriter& rewriter) {
  return Speller(sdpa, rewriter, &keys).write();
}

Value& spellAppendRows(Node& append, Rewriter& rewriter) {
  AttentionBuilder build(rewriter);
  Value& past = *append.operand(0);
  Value& fresh = *append.operand(1);
  Value& joined = build.concat(past, fresh, 2);
  // Computed from extents of inputs, so that all layers share one index.
  Value& total =
      build.node("Add", {build.extent(past, 2), build.extent(fresh, 2)}, {}, "joined_rows");
  // The row of `joined` for each slot: the past's up to its length, then the fresh ones. The slots
  // after them become zeros.
  Value& count = build.node("Reshape", {total, int64Tensor({})}, {}, "joined_rows");
  Value& slot = build.range(count);
  Value& lengths = build.node("Reshape", {*append.operand(2), ints({-1, 1})}, {}, "lengths");
  Value& offset = build.node("Sub", {slot, lengths}, {}, "offset");
  Value& fresher = build.node("Add", {offset, build.extent(past, 2)}, {}, "fresh_row");
  Value& isPast = build.node("Less", {offset, ints({0})}, {}, "is_past");
  Value& source = build.node("Where", {isPast, slot, fresher}, {}, "source_row");
  Value& isRow = build.node("Less", {source, total}, {}, "is_row");
  Value& inRange = build.node("Where", {isRow, source, ints({0})}, {}, "source_row");
  Value& column = build.unsqueeze(build.unsqueeze(inRange, 1), 3);
  Value& leading =
      build.concat(build.value(build.extent(fresh, 0)), build.value(build.extent(fresh, 1)), 0);
  Value& trailing = build.concat(total, build.value(build.extent(fresh, 3)), 0);
  Value& shape = build.concat(leading, trailing, 0);
  Value& index = build.node("Expand", {column, shape}, {}, "index");
  Value& rows = build.node("GatherElements", {joined, index}, attrs({{"axis", 2}}), "rows");
  Value& kept = build.unsqueeze(build.unsqueeze(isRow, 1), 3);
  return build.node("Where", {kept, rows, floatScalar(fresh.type().elementType(), 0)}, {},
                    "present");
}

} // namespace kvopt::targets
