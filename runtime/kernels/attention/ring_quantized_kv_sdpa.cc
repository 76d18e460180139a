// ai.kvopt::RingQuantizedKvSdpa: attention over a ring of rows of codes, with a scale for each.
#include "runtime/attention/quantized_ring.h"
#include "runtime/attention/ring_attention.h"

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

llvm::Error ringQuantizedKvSdpa(KernelContext& context) {
  auto past = ringPastLength(context, 7);
  if (!past)
    return past.takeError();
  const ElementType held =
      context.in(3).element == ElementType::UInt8 ? ElementType::UInt8 : ElementType::Int8;
  auto key = QuantizedRing::create(context, {{"keys", 1, 3, 1, "key_axis", held}, 4, 2}, *past);
  if (!key)
    return key.takeError();
  auto value =
      QuantizedRing::create(context, {{"values", 2, 5, 3, "value_axis", held}, 6, 4}, *past);
  if (!value)
    return value.takeError();
  return RingAttention(context, std::move(*key), std::move(*value)).run(8);
}

} // namespace

void register_ring_quantized_kv_sdpa(KernelRegistry& registry) {
  registry.add("ai.kvopt::RingQuantizedKvSdpa", 1, ringQuantizedKvSdpa);
}

} // namespace kvopt::kernels
