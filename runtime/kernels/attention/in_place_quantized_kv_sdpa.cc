// ai.kvopt::InPlaceQuantizedKvSdpa: appends rows to caches of codes, with a scale for each, and
// attends over them, without copying the past.
//
//   s = max |x| / 127,  q = round(x / s)            of each new row x, at slots [p(b), p(b) + S)
//   output = Sdpa over the rows s q of slots [0, p(b) + S)      with p = past_length, [1] or [B]
//
// ir/ops/kvopt/cache_operators.cc says how rows are rounded. Rows are converted where
// they are used: scores are multiplied by the scale of the key's row, weights by that of the
// value's. Four-bit codes become rows of int8 a tile at a time. Everything is checked before the
// first byte is written: after an error the caches are what they were.
#include "runtime/attention/quantized_cache.h"
#include "support/format.h"

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

llvm::Error inPlaceQuantizedKvSdpa(KernelContext& context) {
  const ElementType held =
      context.in(3).element == ElementType::UInt8 ? ElementType::UInt8 : ElementType::Int8;
  auto key = QuantizedCache::create(context, {{"keys", 1, 3, 1, "key_axis", held}, 4, 2});
  if (!key)
    return key.takeError();
  auto value = QuantizedCache::create(context, {{"values", 2, 5, 3, "value_axis", held}, 6, 4});
  if (!value)
    return value.takeError();
  if (value->codes().isTransposed())
    return context.error("values with the sequence on the last axis are not supported");
  const TensorView& query = context.in(0);
  const int64_t rows = key->codes().rows();
  if (rows != value->codes().rows() || query.rank() != 4 || rows != query.shape[2])
    return context.error(fmt::format("{} new key rows, {} new value rows and the query's rows must "
                                     "be as many",
                                     rows, value->codes().rows()));
  auto lengths = cacheLengths(context, 7, query.shape[0], rows,
                              std::min(key->codes().capacity(), value->codes().capacity()));
  if (!lengths)
    return lengths.takeError();
  auto operands = attentionOperands(context, 8, 9);
  if (!operands)
    return operands.takeError();
  attendTo(key->pastSlots(), value->pastSlots(), *operands);
  operands->fourBitColumns = value->codes().width();
  operands->totalLengths = lengths->after;
  if (llvm::Error error = checkAttention(context, *operands))
    return error;

  auto output = context.output(
      0, query.element, {query.shape[0], query.shape[1], query.shape[2], value->codes().width()});
  if (!output)
    return output.takeError();
  auto presentKey = key->append(context, lengths->before);
  if (!presentKey)
    return presentKey.takeError();
  auto presentValue = value->append(context, lengths->before);
  if (!presentValue)
    return presentValue.takeError();
  attendTo(*presentKey, *presentValue, *operands);
  return runAttention(context, *operands, *output);
}

} // namespace

void register_in_place_quantized_kv_sdpa(KernelRegistry& registry) {
  registry.add("ai.kvopt::InPlaceQuantizedKvSdpa", 1, inPlaceQuantizedKvSdpa);
}

} // namespace kvopt::kernels
