// One tile for each block and one for the new rows.
#include "passes/targets/blocks/tiled_attention.h"

#include "passes/targets/support/key_visibility.h"

#include <limits>

namespace kvopt::targets {
using namespace builders;
using namespace ir;
using namespace pattern;

namespace {

constexpr double hiddenScore = -std::numeric_limits<double>::infinity();
/// The largest finite float16.
constexpr double largestHalf = 65504;

/// State between two tiles.
struct TileState {
  Value* output;  ///< [B,H,S,Dv]
  Value* maximum; ///< [B,H,S,1], in float16 [B,H,S,2]
  Value* sum;     ///< [B,H,S,1]
};

class Tiler {
public:
  Tiler(Node& attention, const GappedKeys& keys, ElementType stateElement, Rewriter& edits)
      : sdpa(attention), gapped(keys), element(stateElement), rewriter(edits), build(edits),
        query(*attention.operand(0)) {}

  Value& write(const TiledRows& rows) {
    Value& mask = additiveMask();
    const auto columns = static_cast<int64_t>(mask.type().rank()) - 1;
    TileState state = firstState(*rows.values.back());
    int64_t first = 0;
    for (size_t i = 0; i < rows.keys.size(); ++i) {
      const bool isLast = i == rows.rows.size();
      const int64_t end = isLast ? std::numeric_limits<int64_t>::max() : first + rows.rows[i];
      Value& maskOfTile = build.slice(mask, columns, first, end);
      state = tile(*rows.keys[i], *rows.values[i], maskOfTile, state);
      first = end;
    }
    return build.castTo(*state.output, query.type().elementType());
  }

private:
  /// Float [1|B,1|H,1|S,R+S] or [R+S]: one column for each row of the blocks and each new row.
  Value& additiveMask() {
    Value* visible = &gappedKeyMask(gapped, sdpa.intAttr("causal", 0) != 0,
                                    sdpa.intAttr("window", 0), query, build);
    Value* mask = sdpa.operand(3);
    if (!mask)
      return build.additive(*visible, ElementType::Float, hiddenScore);
    Value& spread = spreadMask(gapped, *mask, sdpa.operand(1)->type().dim(2), query, build);
    if (spread.type().elementType() == ElementType::Bool)
      return build.additive(bothHold(visible, spread, build), ElementType::Float, hiddenScore);
    Value& added = build.castTo(spread, ElementType::Float);
    return build.node("Where", {*visible, added, floatScalar(ElementType::Float, hiddenScore)}, {},
                      "tile_mask");
  }

  /// int64 [4]: B, H, S and `width`.
  Value& shapeOfRows(const BuilderOperand& width) {
    Value& outer =
        build.concat(build.value(build.extent(query, 0)), build.value(build.extent(query, 1)), 0);
    return build.concat(
        outer, build.concat(build.value(build.extent(query, 2)), build.value(width), 0), 0);
  }

  /// The maximum in the form of the state: in float16 two numbers, a rounded one and the remainder.
  struct StoredMaximum {
    Value* stored; ///< [..., 1 or 2]
    Value* exact;  ///< float: their sum
  };
  StoredMaximum storedMaximum(Value& number) {
    if (element == ElementType::Float)
      return {&number, &number};
    Value& rounded = build.castTo(number, element);
    Value& roundedNumber = build.castTo(rounded, ElementType::Float);
    Value& rest =
        build.castTo(build.node("Sub", {number, roundedNumber}, {}, "remainder"), element);
    Value& restNumber = build.castTo(rest, ElementType::Float);
    return {&build.concat(rounded, rest, 3),
            &build.node("Add", {roundedNumber, restNumber}, {}, "stored_maximum")};
  }

  /// Repeats `numbers` in all rows of the state; without them, `number` is in all its columns.
  Value& inAllRows(Value* numbers, double number, const BuilderOperand& columns,
                   llvm::StringRef hint) {
    Value& shape = shapeOfRows(columns);
    if (numbers)
      return build.node("Expand", {*numbers, shape}, {}, hint);
    return build.node("Expand", {floatScalar(element, number), shape}, {}, hint);
  }

  /// A sink is a logit that takes weight and has no value row.
  TileState firstState(Value& values) {
    const bool isHalf = element == ElementType::Float16;
    Value& output = inAllRows(nullptr, 0, build.extent(values, 3), "first_output");
    Value* maximum = nullptr;
    Value* sum = nullptr;
    if (Value* sinks = sdpa.operand(4)) {
      Value& logits = build.node(
          "Reshape", {build.castTo(*sinks, ElementType::Float), ints({1, -1, 1, 1})}, {}, "sink");
      const StoredMaximum stored = storedMaximum(logits);
      maximum = stored.stored;
      Value& above = build.node("Sub", {logits, *stored.exact}, {}, "above_maximum");
      Value& weight = build.node("Exp", {above}, {}, "sink_weight");
      sum = &build.castTo(
          build.node("Mul", {weight, floatScalar(ElementType::Float, 1.0 / 64)}, {}, "sink_sum"),
          element);
    } else if (isHalf) {
      // Lists that broadcast to the columns.
      maximum = &build.concat(build.value(floatScalar(element, -largestHalf, 1)),
                              build.value(floatScalar(element, 0, 1)), 0);
    }
    const auto lowest = static_cast<double>(std::numeric_limits<float>::lowest());
    return {&output, &inAllRows(maximum, lowest, ints({isHalf ? 2 : 1}), "first_maximum"),
            &inAllRows(sum, 0, ints({1}), "first_sum")};
  }

  TileState tile(Value& keys, Value& values, Value& mask, const TileState& before) {
    Node& node =
        rewriter.create("ai.kvopt::AttentionTile",
                        {&query, &keys, &values, &mask, before.output, before.maximum, before.sum},
                        attrs({{"scale", sdpa.floatAttr("scale", 1.0f)},
                               {"softcap", sdpa.floatAttr("softcap", 0.0f)}}),
                        3, "tile");
    return {&node.result(0), &node.result(1), &node.result(2)};
  }

  Node& sdpa;
  const GappedKeys& gapped;
  ElementType element;
  Rewriter& rewriter;
  AttentionBuilder build;
  Value& query;
};

} // namespace

Value& tileAttention(Node& sdpa, const TiledRows& rows, const GappedKeys& keys, ElementType state,
                     Rewriter& rewriter) {
  return Tiler(sdpa, keys, state, rewriter).write(rows);
}

} // namespace kvopt::targets
