// ai.kvopt::BlockKvSdpa: attention over rows that lie in blocks, none of which is copied.
//
//   output = Sdpa over the rows of block 0, block 1, …, and then the new rows
//
// The sums are those of attention over one piece: how many rows a block holds changes no bit.
#include "runtime/attention/block_rows.h"
#include "runtime/attention/in_place_cache.h"
#include "support/format.h"

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

constexpr unsigned firstBlock = 5;

TensorView withLastAxesSwapped(TensorView view) {
  std::swap(view.shape[2], view.shape[3]);
  std::swap(view.strides[2], view.strides[3]);
  return view;
}

llvm::Error blockKvSdpa(KernelContext& context) {
  const unsigned given = context.inputCount() > firstBlock ? context.inputCount() - firstBlock : 0;
  if (given % 2 != 0)
    return context.error(fmt::format("{} blocks are not as many of keys as of values", given));
  const unsigned blocks = given / 2;
  auto operands = attentionOperands(context, 3, 4);
  if (!operands)
    return operands.takeError();
  for (const TensorView* rows : {&context.in(0), &context.in(1), &context.in(2)})
    if (rows->rank() != 4)
      return context.error("query and new rows must have rank 4");
  auto query = withContiguousRows(context, context.in(0));
  if (!query)
    return query.takeError();
  operands->query = std::move(*query);
  operands->keyTransposed = context.node().intAttr("key_axis", 2) == 3;

  auto segments = scratchSegments(context, blocks + 1);
  if (!segments)
    return segments.takeError();
  int64_t total = 0;
  for (unsigned i = 0; i < blocks; ++i) {
    auto key = InPlaceCache::create(context, {"keys", 1, firstBlock + i, 0, "key_axis"});
    if (!key)
      return key.takeError();
    auto value =
        InPlaceCache::create(context, {"values", 2, firstBlock + blocks + i, 0, "value_axis"});
    if (!value)
      return value.takeError();
    operands->keyTransposed = key->isTransposed();
    if (value->isTransposed())
      return context.error("values with the sequence on the last axis are not supported");
    if (key->capacity() != value->capacity())
      return context.error(fmt::format("block {} has {} rows of keys and {} of values", i,
                                       key->capacity(), value->capacity()));
    auto keyRows = withContiguousRows(context, key->pastSlots());
    if (!keyRows)
      return keyRows.takeError();
    auto valueRows = withContiguousRows(context, value->pastSlots());
    if (!valueRows)
      return valueRows.takeError();
    (*segments)[i] = {total, keyRows->data, valueRows->data, rowStridesOf(*keyRows),
                      rowStridesOf(*valueRows)};
    total += key->capacity();
  }
  auto newKeys = withContiguousRows(
      context, operands->keyTransposed ? withLastAxesSwapped(context.in(1)) : context.in(1));
  if (!newKeys)
    return newKeys.takeError();
  auto newValues = withContiguousRows(context, context.in(2));
  if (!newValues)
    return newValues.takeError();
  if (context.in(1).shape[2] != operands->query.shape[2])
    return context.error(fmt::format("{} new key rows and {} query rows", context.in(1).shape[2],
                                     operands->query.shape[2]));
  (*segments)[blocks] = {total, newKeys->data, newValues->data, rowStridesOf(*newKeys),
                         rowStridesOf(*newValues)};
  operands->key = std::move(*newKeys);
  operands->value = std::move(*newValues);
  operands->segments = *segments;
  operands->segmentTokens = total + context.in(1).shape[2];
  return attentionResult(context, *operands, 0);
}

} // namespace

void register_block_kv_sdpa(KernelRegistry& registry) {
  registry.add("ai.kvopt::BlockKvSdpa", 1, blockKvSdpa).acceptsStrides = true;
}

} // namespace kvopt::kernels
