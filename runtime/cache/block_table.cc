// Allocation, sharing and release of blocks.
#include "runtime/cache/block_table.h"

#include "support/diagnostic.h"

#include "llvm/ADT/ScopeExit.h"

#include <algorithm>

namespace kvopt::runtime {

namespace {

size_t blocksFor(int64_t tokens, int64_t blockTokens) {
  return static_cast<size_t>(tokens / blockTokens + (tokens % blockTokens != 0 ? 1 : 0));
}

} // namespace

void BlockTable::swap(BlockTable& other) noexcept {
  std::swap(pool, other.pool);
  std::swap(ids, other.ids);
  std::swap(count, other.count);
}

BlockTable BlockTable::fork() const {
  BlockTable copy(pool);
  const size_t used = blocksFor(count, pool->blockTokens());
  for (size_t i = 0; i < used; ++i) {
    // This table holds the block, so it is not free.
    llvm::cantFail(pool->acquire(ids[i]));
    copy.ids.push_back(ids[i]);
  }
  copy.count = count;
  return copy;
}

int64_t BlockTable::tokensAt(size_t index) const {
  const int64_t before = static_cast<int64_t>(index) * pool->blockTokens();
  return std::clamp<int64_t>(count - before, 0, pool->blockTokens());
}

void BlockTable::dropFrom(size_t position) {
  // The first of them will be allocated next.
  while (ids.size() > position) {
    llvm::cantFail(pool->release(ids.back()));
    ids.pop_back();
  }
}

llvm::Error BlockTable::makeLastWritable() {
  const int64_t used = count % pool->blockTokens();
  if (used == 0 || pool->isWritable(ids.back()))
    return llvm::Error::success();
  llvm::Expected<std::optional<BlockId>> copied = pool->copy(ids.back(), used);
  if (!copied)
    return copied.takeError();
  if (!*copied)
    return usageError("all {} blocks of the pool are taken", pool->maxBlocks());
  llvm::cantFail(pool->release(ids.back()));
  ids.back() = **copied;
  return llvm::Error::success();
}

llvm::Error BlockTable::reserve(int64_t more, bool willAdopt) {
  assert(more >= 0 && ids.size() == blocksFor(count, pool->blockTokens()));
  int64_t total = 0;
  if (__builtin_add_overflow(count, more, &total))
    return usageError("{} tokens and {} more are too many", count, more);
  if (more == 0)
    return llvm::Error::success();
  const size_t held = ids.size();
  const size_t needed = blocksFor(total, pool->blockTokens());
  if (static_cast<int64_t>(needed - held) > pool->freeBlocks())
    return usageError("{} more blocks are needed, but of the pool's {} only {} are free",
                      needed - held, pool->maxBlocks(), pool->freeBlocks());
  if (llvm::Error error = makeLastWritable())
    return error;
  while (ids.size() < needed) {
    std::optional<BlockId> block = pool->allocate();
    if (!block) {
      dropFrom(held);
      return usageError("all {} blocks of the pool are taken", pool->maxBlocks());
    }
    ids.push_back(*block);
  }
  for (size_t position = count % pool->blockTokens() == 0 ? held : held - 1; position < needed;
       ++position) {
    const int64_t before = static_cast<int64_t>(position) * pool->blockTokens();
    if (willAdopt && before >= count && total - before >= pool->blockTokens())
      continue;
    for (size_t part = 0; part < pool->partCount(); ++part)
      if (llvm::Expected<TensorView> memory = pool->memory(ids[position], part); !memory) {
        dropFrom(held);
        return memory.takeError();
      }
  }
  return llvm::Error::success();
}

void BlockTable::cancel() { dropFrom(blocksFor(count, pool->blockTokens())); }

void BlockTable::advance(int64_t more) {
  const size_t first = static_cast<size_t>(count / pool->blockTokens());
  count += more;
  assert(ids.size() == blocksFor(count, pool->blockTokens()));
  for (size_t position = first; position < ids.size(); ++position)
    llvm::cantFail(pool->setTokens(ids[position], tokensAt(position)));
}

llvm::Error BlockTable::truncate(int64_t tokens) {
  if (tokens < 0 || tokens > count)
    return usageError("cannot keep {} of {} tokens", tokens, count);
  count = tokens;
  dropFrom(blocksFor(tokens, pool->blockTokens()));
  // If a block has other holders, they know the number of rows that they read.
  if (!ids.empty() && pool->holders(ids.back()) == 1)
    llvm::cantFail(pool->setTokens(ids.back(), tokensAt(ids.size() - 1)));
  return llvm::Error::success();
}

void BlockTable::clear() {
  dropFrom(0);
  count = 0;
}

llvm::Error BlockTable::pack() {
  const int64_t used = count % (pool ? pool->blockTokens() : 1);
  if (used == 0 || !pool->isWritable(ids.back()))
    return llvm::Error::success();
  std::optional<BlockId> packed = pool->allocate();
  if (!packed)
    return llvm::Error::success(); // already packed
  auto give = llvm::make_scope_exit([&] { llvm::cantFail(pool->release(*packed)); });
  for (size_t part = 0; part < pool->partCount(); ++part) {
    llvm::Expected<TensorView> from = rows(ids.size() - 1, part);
    if (!from)
      return from.takeError();
    llvm::Expected<Tensor> copy = Tensor::copyOf(pool->allocator(), *from);
    if (!copy)
      return copy.takeError();
    if (llvm::Error error = pool->adopt(*packed, part, std::move(*copy)))
      return error;
  }
  llvm::cantFail(pool->setTokens(*packed, used));
  std::swap(ids.back(), *packed);
  return llvm::Error::success();
}

llvm::Expected<TensorView> BlockTable::rows(size_t position, size_t index) const {
  assert(position < ids.size());
  llvm::Expected<TensorView> memory = pool->memory(ids[position], index);
  if (!memory)
    return memory.takeError();
  return sliceAxis(*memory, pool->part(index).tokenAxis, 0, tokensAt(position));
}

} // namespace kvopt::runtime
