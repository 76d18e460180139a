// ai.kvopt::BlockQuantizedKvSdpa: attention over rows of codes that lie in blocks. Only their
// scales are copied, into one piece.
#include "runtime/attention/block_attention.h"

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

llvm::Error blockQuantizedKvSdpa(KernelContext& context) {
  return attendToBlocks(context, {7, true});
}

} // namespace

void register_block_quantized_kv_sdpa(KernelRegistry& registry) {
  registry.add("ai.kvopt::BlockQuantizedKvSdpa", 1, blockQuantizedKvSdpa).acceptsStrides = true;
}

} // namespace kvopt::kernels
