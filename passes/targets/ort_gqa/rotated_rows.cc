// Tables of one step's cosines and sines.
#include "passes/targets/ort_gqa/rotated_rows.h"

#include "passes/analysis/rotation/paired_rotation.h"
#include "passes/targets/support/token_rows.h"

namespace kvopt::targets {
using namespace analysis;
using namespace builders;
using namespace ir;

namespace {

/// The columns as a table with one row for each token: [B*S or S, pairs].
Value& tableOf(const StridedColumns& columns, int64_t pairs, AttentionBuilder& build) {
  Value* range = columns.value;
  if (const auto width = range->type().dim(3).value(); width != pairs) {
    const int64_t end = columns.first + (pairs - 1) * columns.step + 1;
    range = &build.node(
        "Slice", {*range, ints({columns.first}), ints({end}), ints({3}), ints({columns.step})}, {},
        "columns");
  }
  return build.node("Reshape", {*range, ints({-1, pairs})}, {}, "angles");
}

/// Row of the tables for each token, int64 [B,S]; or 0, the first row, if all batch rows share the
/// tables.
BuilderOperand rowNumbers(const PairedRotation& rotation, Value& table, AttentionBuilder& build) {
  Value& angles = *rotation.cosines.value;
  if (angles.type().dim(0).value() == 1)
    return ints({0});
  Value& count = build.node("Gather", {build.node("Shape", {table}, {}, "shape"), int64Scalar(0)},
                            {}, "extent");
  Value& extents = build.node(
      "Gather",
      {build.node("Shape", {angles}, {}, "shape"), ints({0, rotation.areTokensFirst ? 1 : 2})}, {},
      "extents");
  return build.node("Reshape", {build.range(count), extents}, {}, "token_rows");
}

/// Whether an operator already rotates the heads [B,H,S,D] in a form that also takes rows.
bool isRotaryOperator(const Node* node) {
  return node && (node->is("RotaryEmbedding") || node->is("com.microsoft::RotaryEmbedding")) &&
         node->operand(0)->type().hasRank() && node->operand(0)->type().rank() == 4 &&
         node->intAttr("is_packed_batching", 0) == 0;
}

/// The same operator on rows.
Value& onRows(const Node& rotary, int64_t heads, AttentionBuilder& build) {
  std::vector<BuilderOperand> operands{tokenRows(*rotary.operand(0), build)};
  for (const Use& use : rotary.operands().drop_front())
    operands.emplace_back(use.value());
  std::vector<NamedAttribute> attributes = attrs({{"num_heads", heads}});
  for (const NamedAttribute& attribute : rotary.attributes())
    if (attribute.name != "num_heads")
      attributes.push_back({attribute.name, attribute.value.clone()});
  return build.node(rotary.op(), operands, std::move(attributes), "rotated");
}

} // namespace

Value& rotatedRows(Value& heads, AttentionBuilder& build) {
  const auto count = heads.type().dim(1).value();
  const auto width = heads.type().dim(3).value();
  if (!count || !width)
    return tokenRows(heads, build);
  if (isRotaryOperator(heads.producer()))
    return onRows(*heads.producer(), *count, build);
  const ElementType element = heads.type().elementType();
  const auto rotation = readPairedRotation(heads);
  const bool isKnown = rotation && rotation->cosines.value->type().dim(0).isKnownEqual(
                                       rotation->sines.value->type().dim(0));
  if (!isKnown || (element != ElementType::Float && element != ElementType::Float16))
    return tokenRows(heads, build);
  Value& rows = rotation->areTokensFirst ? mergedRows(*rotation->rows, build)
                                         : tokenRows(*rotation->rows, build);
  Value& cosines = tableOf(rotation->cosines, rotation->pairs, build);
  Value& sines = tableOf(rotation->sines, rotation->pairs, build);
  AttributeList attributes = attrs({{"num_heads", *count}});
  if (rotation->interleaved)
    attributes.add("interleaved", int64_t{1});
  if (2 * rotation->pairs != *width)
    attributes.add("rotary_embedding_dim", 2 * rotation->pairs);
  return build.node("com.microsoft::RotaryEmbedding",
                    {rows, rowNumbers(*rotation, cosines, build), cosines, sines}, attributes,
                    "rotated");
}

} // namespace kvopt::targets
