// ai.kvopt::RingKvSdpa: attention over a ring of rows.
#include "runtime/attention/ring_attention.h"

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

llvm::Error ringKvSdpa(KernelContext& context) {
  auto past = ringPastLength(context, 5);
  if (!past)
    return past.takeError();
  auto key = RingCache::create(context, {"keys", 1, 3, 1, "key_axis"}, *past);
  if (!key)
    return key.takeError();
  auto value = RingCache::create(context, {"values", 2, 4, 2, "value_axis"}, *past);
  if (!value)
    return value.takeError();
  return RingAttention(context, std::move(*key), std::move(*value)).run(6);
}

} // namespace

void register_ring_kv_sdpa(KernelRegistry& registry) {
  registry.add("ai.kvopt::RingKvSdpa", 1, ringKvSdpa);
}

} // namespace kvopt::kernels
