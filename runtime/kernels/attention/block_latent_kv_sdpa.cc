// ai.kvopt::BlockLatentKvSdpa: BlockKvSdpa over one cache whose rows are the keys; the values are
// columns [v_offset, v_offset + v_width) of the same rows.
#include "runtime/attention/block_rows.h"
#include "runtime/attention/in_place_cache.h"
#include "runtime/attention/latent_values.h"
#include "support/format.h"

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;
using namespace simd;

namespace {

constexpr unsigned firstLatentBlock = 4;

llvm::Error blockLatentKvSdpa(KernelContext& context) {
  const unsigned blocks =
      context.inputCount() > firstLatentBlock ? context.inputCount() - firstLatentBlock : 0;
  auto operands = attentionOperands(context, 2, 3);
  if (!operands)
    return operands.takeError();
  if (context.in(0).rank() != 4 || context.in(1).rank() != 4 ||
      context.in(0).shape[2] != context.in(1).shape[2])
    return context.error("query and new rows must have rank 4, and be as many");
  auto query = withContiguousRows(context, context.in(0));
  if (!query)
    return query.takeError();
  operands->query = std::move(*query);
  auto newRows = withContiguousRows(context, context.in(1));
  if (!newRows)
    return newRows.takeError();
  auto values = latentValues(context, newRows->shape[3]);
  if (!values)
    return values.takeError();
  auto segments = scratchSegments(context, blocks + 1);
  if (!segments)
    return segments.takeError();
  const int64_t offsetBytes = values->offset * static_cast<int64_t>(*byteWidth(newRows->element));
  auto segmentOf = [&](int64_t begin, const TensorView& rows) {
    const RowStrides strides = rowStridesOf(rows);
    return KeyValueSegment{begin, rows.data, rows.data + offsetBytes, strides, strides};
  };
  int64_t total = 0;
  for (unsigned i = 0; i < blocks; ++i) {
    auto cache = InPlaceCache::create(context, {"keys", 1, firstLatentBlock + i, 0, "key_axis"});
    if (!cache)
      return cache.takeError();
    if (cache->isTransposed())
      return context.error("rows with the sequence on the last axis are not supported");
    auto rows = withContiguousRows(context, cache->pastSlots());
    if (!rows)
      return rows.takeError();
    (*segments)[i] = segmentOf(total, *rows);
    total += cache->capacity();
  }
  (*segments)[blocks] = segmentOf(total, *newRows);
  operands->key = *newRows;
  operands->value = std::move(*newRows);
  operands->value.shape[3] = values->width;
  operands->value.data += offsetBytes;
  operands->segments = *segments;
  operands->segmentTokens = total + operands->key.shape[2];
  return attentionResult(context, *operands, 0);
}

} // namespace

void register_block_latent_kv_sdpa(KernelRegistry& registry) {
  registry.add("ai.kvopt::BlockLatentKvSdpa", 1, blockLatentKvSdpa).acceptsStrides = true;
}

} // namespace kvopt::kernels
