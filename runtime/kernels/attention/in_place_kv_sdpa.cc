// ai.kvopt::InPlaceKvSdpa: appends rows to a cache and attends over it, without copying the past.
//
//   present[b,g,j,:] = new[b,g,j - p(b),:]   for p(b) <= j < p(b) + S,  past[b,g,j,:] otherwise
//   output           = Sdpa over rows [0, p(b) + S)             with p = past_length, [1] or [B]
//
// Rows of int8 are the numbers that they are.
//
// Where the runtime may overwrite the past, the new rows are all that is written. Everything is
// checked before the first byte is: after an error the cache is what it was.
#include "runtime/attention/in_place_cache.h"
#include "support/format.h"

namespace kvopt::kernels {
using namespace runtime;

namespace {

llvm::Error inPlaceKvSdpa(KernelContext& context) {
  auto key = InPlaceCache::create(context, {"keys", 1, 3, 1, "key_axis"});
  if (!key)
    return key.takeError();
  auto value = InPlaceCache::create(context, {"values", 2, 4, 2, "value_axis"});
  if (!value)
    return value.takeError();
  if (value->isTransposed())
    return context.error("values with the sequence on the last axis are not supported");
  const TensorView& query = context.in(0);
  if (key->rows() != value->rows() || query.rank() != 4 || key->rows() != query.shape[2])
    return context.error(fmt::format("{} new key rows, {} new value rows and the query's rows must "
                                     "be as many",
                                     key->rows(), value->rows()));
  auto lengths = cacheLengths(context, 5, query.shape[0], key->rows(),
                              std::min(key->capacity(), value->capacity()));
  if (!lengths)
    return lengths.takeError();
  auto operands = attentionOperands(context, 6, 7);
  if (!operands)
    return operands.takeError();
  operands->key = key->pastSlots();
  operands->value = value->pastSlots();
  operands->keyTransposed = key->isTransposed();
  operands->totalLengths = lengths->after;
  readBytesAsNumbers(*operands);
  if (llvm::Error error = checkAttention(context, *operands))
    return error;

  auto output = context.output(0, query.element,
                               {query.shape[0], query.shape[1], query.shape[2], value->width()});
  if (!output)
    return output.takeError();
  auto presentKey = key->append(context, lengths->before);
  if (!presentKey)
    return presentKey.takeError();
  auto presentValue = value->append(context, lengths->before);
  if (!presentValue)
    return presentValue.takeError();
  operands->key = std::move(*presentKey);
  operands->value = std::move(*presentValue);
  return runAttention(context, *operands, *output);
}

} // namespace

void register_in_place_kv_sdpa(KernelRegistry& registry) {
  registry.add("ai.kvopt::InPlaceKvSdpa", 1, inPlaceKvSdpa);
}

} // namespace kvopt::kernels
