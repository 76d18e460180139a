// ai.kvopt::InPlaceLatentKvSdpa: InPlaceKvSdpa over one cache whose rows are the keys; the values
// are columns [v_offset, v_offset + v_width) of the same rows.
#include "runtime/attention/in_place_cache.h"
#include "runtime/attention/latent_values.h"
#include "support/format.h"

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

llvm::Error inPlaceLatentKvSdpa(KernelContext& context) {
  auto key = InPlaceCache::create(context, {"keys", 1, 2, 1, "key_axis"});
  if (!key)
    return key.takeError();
  if (key->isTransposed())
    return context.error("rows with the sequence on the last axis are not supported");
  const TensorView& query = context.in(0);
  if (query.rank() != 4 || key->rows() != query.shape[2])
    return context.error(
        fmt::format("{} new rows and the query's rows must be as many", key->rows()));
  auto values = latentValues(context, key->width());
  if (!values)
    return values.takeError();
  auto lengths = cacheLengths(context, 3, query.shape[0], key->rows(), key->capacity());
  if (!lengths)
    return lengths.takeError();
  auto operands = attentionOperands(context, 4, 5);
  if (!operands)
    return operands.takeError();
  auto attendTo = [&](const TensorView& slots) {
    operands->key = slots;
    operands->value = slots;
    operands->value.shape[3] = values->width;
    operands->value.data += values->offset * static_cast<int64_t>(*byteWidth(slots.element));
  };
  attendTo(key->pastSlots());
  operands->totalLengths = lengths->after;
  if (llvm::Error error = checkAttention(context, *operands))
    return error;

  auto output = context.output(0, query.element,
                               {query.shape[0], query.shape[1], query.shape[2], values->width});
  if (!output)
    return output.takeError();
  auto present = key->append(context, lengths->before);
  if (!present)
    return present.takeError();
  attendTo(*present);
  return runAttention(context, *operands, *output);
}

} // namespace

void register_in_place_latent_kv_sdpa(KernelRegistry& registry) {
  registry.add("ai.kvopt::InPlaceLatentKvSdpa", 1, inPlaceLatentKvSdpa);
}

} // namespace kvopt::kernels
