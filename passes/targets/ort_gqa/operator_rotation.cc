// Conditions of the operator's rotation, and its tables.
#include "passes/targets/ort_gqa/operator_rotation.h"

#include "passes/analysis/movement/equal_values.h"
#include "passes/analysis/rotation/paired_rotation.h"
#include "passes/targets/ort_gqa/step_angles.h"
#include "passes/targets/support/token_rows.h"

namespace kvopt::targets {
using namespace analysis;
using namespace builders;
using namespace ir;

namespace {

/// Multiples that ONNX Runtime's kernel requires with do_rotary.
constexpr int64_t widthMultiple = 16;
constexpr int64_t pairsMultiple = 8;

bool areEqualColumns(const ColumnRange& a, const ColumnRange& b) {
  return a.first == b.first && a.step == b.step && areEqual(*a.value, *b.value);
}

bool areEqualRotations(const PairedRotation& a, const PairedRotation& b) {
  return a.pairs == b.pairs && a.interleaved == b.interleaved &&
         a.areTokensFirst == b.areTokensFirst && areEqualColumns(a.cosines, b.cosines) &&
         areEqualColumns(a.sines, b.sines);
}

/// Whether the columns have a row for each token, which is the same in each batch row.
bool hasRowForEachToken(const ColumnRange& columns, const PairedRotation& rotation,
                        bool haveRowsEqualAngles) {
  const TensorType& type = columns.value->type();
  const int64_t axis = rotation.areTokensFirst ? 1 : 2;
  return type.hasRank() && type.rank() == 4 && type.dim(0).value() != 0 &&
         (haveRowsEqualAngles || type.dim(0).value() == 1) &&
         type.dim(axis).isKnownEqual(rotation.rows->type().dim(axis));
}

Value& rowsOf(const PairedRotation& rotation, AttentionBuilder& build) {
  return rotation.areTokensFirst ? mergedRows(*rotation.rows, build)
                                 : tokenRows(*rotation.rows, build);
}

} // namespace

std::optional<OperatorRotation> operatorRotation(Value& query, Value& key, Value& total,
                                                 bool isUnpadded, AttentionBuilder& build) {
  const ElementType element = query.type().elementType();
  const auto width = query.type().dim(3).value();
  if (!width || *width % widthMultiple != 0 ||
      (element != ElementType::Float && element != ElementType::Float16))
    return std::nullopt;
  const auto ofQuery = readPairedRotation(query);
  if (!ofQuery || ofQuery->pairs % pairsMultiple != 0)
    return std::nullopt;
  const auto ofKey = readPairedRotation(key);
  const bool haveRowsEqualAngles = isUnpadded || query.type().dim(0).value() == 1;
  if (!ofKey || !areEqualRotations(*ofQuery, *ofKey) ||
      !hasRowForEachToken(ofQuery->cosines, *ofQuery, haveRowsEqualAngles) ||
      !hasRowForEachToken(ofQuery->sines, *ofQuery, haveRowsEqualAngles))
    return std::nullopt;
  const BuilderOperand count = build.extent(query, 2);
  Value& keys = build.node("Reshape", {build.castTo(total, ElementType::Int64), ints({1})});
  Value& earlier = build.node("Sub", {keys, count}, {}, "earlier");
  Value& extents = build.concat(earlier, build.value(ints({ofQuery->pairs})), 0);
  Value& unread = build.node("Expand", {floatScalar(element, 0), extents}, {}, "unread_rows");
  const auto table = [&](const ColumnRange& columns) {
    Value& angles = angleTable(columns, ofQuery->pairs, TableRows::FirstBatchRow, build);
    return &build.concat(angles, unread, 0);
  };
  Value& numbers = build.range(build.extent(query, 2, true));
  Value& extent = build.concat(build.value(build.extent(query, 0)), build.value(count), 0);
  OperatorRotation rotation;
  rotation.query = &rowsOf(*ofQuery, build);
  rotation.key = &rowsOf(*ofKey, build);
  rotation.cosines = table(ofQuery->cosines);
  rotation.sines = table(ofQuery->sines);
  rotation.rows = &build.node("Expand", {numbers, extent}, {}, "token_rows");
  rotation.interleaved = ofQuery->interleaved;
  return rotation;
}

} // namespace kvopt::targets
