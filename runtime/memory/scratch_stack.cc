// One buffer per depth, with the largest size that was requested there.
#include "runtime/memory/scratch_stack.h"

#include "runtime/memory/buffer_pool.h"

#include <algorithm>

namespace kvopt::runtime {

llvm::Expected<ScratchStack::Memory> ScratchStack::take(size_t bytes) {
  Memory memory;
  if (inUse.blocks == blocks.size())
    blocks.push_back(nullptr);
  std::shared_ptr<Buffer>& block = blocks[inUse.blocks];
  if (!block || block->size() < bytes) {
    block = nullptr;
    // Rounded up, so that slowly growing requests rarely exceed it.
    size_t rounded = std::max(BufferPool::classBytes(bytes), bytes);
    llvm::Expected<std::shared_ptr<Buffer>> fresh = Buffer::create(source, rounded);
    if (!fresh)
      return fresh.takeError();
    block = std::move(*fresh);
    memory.allocated = rounded;
  }
  memory.bytes = std::span<std::byte>(block->data(), bytes);
  ++inUse.blocks;
  inUse.bytes += bytes;
  peak = std::max(peak, inUse.bytes);
  return memory;
}

size_t ScratchStack::reservedBytes() const {
  size_t total = 0;
  for (const std::shared_ptr<Buffer>& block : blocks)
    total += block ? block->size() : 0;
  return total;
}

} // namespace kvopt::runtime
