// ai.kvopt::BlockKvSdpa: attention over rows that lie in blocks, none of which is copied.
#include "runtime/attention/block_attention.h"

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

llvm::Error blockKvSdpa(KernelContext& context) { return attendToBlocks(context, {5, false}); }

} // namespace

void register_block_kv_sdpa(KernelRegistry& registry) {
  registry.add("ai.kvopt::BlockKvSdpa", 1, blockKvSdpa).acceptsStrides = true;
}

} // namespace kvopt::kernels
