// Rows of zeros, and masks that hide nothing from them.
#include "passes/targets/support/padded_query.h"

namespace kvopt::targets {
using namespace builders;
using namespace analysis;
using namespace ir;

namespace {

/// Whether the attention's first row directly follows the past's rows.
bool startsBehindPast(const AttentionSite& site) {
  const Value* start = site.node->operand(5);
  auto known = start ? start->knownIntegers() : std::nullopt;
  const Dim& past = site.key->past->type().dim(site.key->axis);
  return known && known->size() == 1 && known->front().isKnownEqual(past);
}

} // namespace

bool canPadQuery(const AttentionSite& site) {
  if (!site.stepRows || site.stepRows->query > site.stepRows->appended || site.key->pastLength ||
      site.key->fromStart)
    return false;
  // With a length, keys after the query's own rows are hidden, which only a causal attention does
  // anyway.
  if (site.node->operand(5) && !(startsBehindPast(site) && site.node->intAttr("causal", 0) != 0))
    return false;
  const Value* mask = site.node->operand(3);
  if (!mask)
    return true;
  if (!mask->type().hasRank())
    return false;
  const Dim rows = mask->type().rank() < 2 ? Dim::fixed(1) : mask->type().dim(-2);
  return rows.value() == 1 || rows.value() == site.stepRows->query;
}

PaddedQuery::PaddedQuery(const AttentionSite& attention, AttentionBuilder& builder)
    : site(attention), build(builder) {
  if (site.addsQueryRows())
    return;
  assert(canPadQuery(site));
  own = site.stepRows->query;
  added = site.stepRows->appended - own;
  // The last rows remain last, because proofs about masks count from there.
  isBefore = !site.node->operand(5);
}

Value& PaddedQuery::joined(Value& rows, Value& more) {
  const auto axis = static_cast<int64_t>(rows.type().rank()) - 2;
  return isBefore ? build.concat(more, rows, axis) : build.concat(rows, more, axis);
}

Value& PaddedQuery::query() {
  Value& rows = *site.node->operand(0);
  if (added == 0)
    return rows;
  Value& leading =
      build.concat(build.value(build.extent(rows, 0)), build.value(build.extent(rows, 1)), 0);
  Value& trailing = build.concat(build.value(ints({added})), build.value(build.extent(rows, 3)), 0);
  Value& zeros = build.node(
      "Expand", {floatScalar(rows.type().elementType(), 0), build.concat(leading, trailing, 0)}, {},
      "added_rows");
  return joined(rows, zeros);
}

Value& PaddedQuery::mask(Value& mask) {
  const TensorType& type = mask.type();
  if (added == 0 || type.rank() < 2 || type.dim(-2).value() == 1)
    return mask;
  Value* shape = &build.value(ints({added}));
  for (int64_t axis = static_cast<int64_t>(type.rank()) - 3; axis >= 0; --axis)
    shape = &build.concat(build.value(build.extent(mask, axis)), *shape, 0);
  shape = &build.concat(*shape, build.value(build.extent(mask, type.rank() - 1)), 0);
  const bool isBoolean = type.elementType() == ElementType::Bool;
  TensorRef nothing = isBoolean ? boolTensor({true}) : floatScalar(type.elementType(), 0, 1);
  return joined(mask, build.node("Expand", {std::move(nothing), *shape}, {}, "added_mask"));
}

Value& PaddedQuery::ownRows(Value& output) {
  if (added == 0)
    return output;
  const int64_t begin = isBefore ? added : 0;
  return build.slice(output, 2, begin, begin + own);
}

} // namespace kvopt::targets
