// Caches whose rows lie in the blocks of a pool.
#include "runtime/cache/cache_set.h"
#include "support/diagnostic.h"

#include <algorithm>

namespace kvopt::runtime {

llvm::Error CacheSet::makePool() {
  BlockManagerOptions pool;
  partOf.assign(geometries.size(), 0);
  for (size_t i = 0; i < geometries.size(); ++i) {
    if (!inBlocks(i))
      continue;
    const CacheGeometry& geometry = geometries[i];
    partOf[i] = pool.parts.size();
    pool.parts.push_back(
        {geometry.element, geometry.shape(options.blockTokens), geometry.sequenceAxis()});
  }
  if (pool.parts.empty())
    return llvm::Error::success();
  pool.blockTokens = options.blockTokens;
  pool.maxBlocks = options.blockLimit;
  pool.allocator = options.allocator;
  pool.poison = options.poison;
  pool.readsWhole = options.readsWholeBlocks;
  llvm::Expected<std::shared_ptr<BlockManager>> manager = BlockManager::create(std::move(pool));
  if (!manager)
    return manager.takeError();
  table.emplace(std::move(*manager));
  return llvm::Error::success();
}

int64_t CacheSet::bytes() const {
  int64_t sum = table ? table->manager().memoryBytes() : 0;
  for (const Tensor& tensor : tensors)
    sum += tensor.view.byteSize();
  return sum;
}

llvm::Error CacheSet::reserve(int64_t count) {
  prepareRows(longest + count);
  return table ? table->reserve(count, /*willAdopt=*/true) : llvm::Error::success();
}

void CacheSet::cancel() {
  if (table)
    table->cancel();
}

llvm::Expected<TensorView> CacheSet::blockRows(size_t index, size_t position) const {
  assert(inBlocks(index));
  if (position < table->blocks().size() && table->tokensAt(position) != 0)
    return table->rows(position, partOf[index]);
  return tensors[index].view;
}

llvm::Expected<TensorView> CacheSet::wholeBlock(size_t index, size_t position) const {
  assert(inBlocks(index) && options.readsWholeBlocks);
  const int64_t first = static_cast<int64_t>(position) * options.blockTokens;
  const int64_t rows = std::min(options.blockTokens, options.blockRoom - first);
  const unsigned axis = geometries[index].sequenceAxis();
  if (position < table->blocks().size() && table->tokensAt(position) != 0) {
    llvm::Expected<TensorView> memory =
        table->manager().memory(table->blocks()[position], partOf[index]);
    if (!memory)
      return memory.takeError();
    return sliceAxis(*memory, axis, 0, rows);
  }
  emptyBlocks.resize(size());
  Tensor& zeros = emptyBlocks[index];
  if (!zeros.view.data) {
    llvm::Expected<Tensor> made = empty(index, options.blockTokens);
    if (!made)
      return made.takeError();
    zeros = std::move(*made);
  }
  return sliceAxis(zeros.view, axis, 0, rows);
}

llvm::Expected<int64_t> CacheSet::writeRows(size_t index, const Tensor& rows) {
  const unsigned axis = geometries[index].sequenceAxis();
  const int64_t blockTokens = options.blockTokens;
  const int64_t count = rows.view.shape[axis];
  BlockManager& manager = table->manager();
  int64_t written = 0;
  for (int64_t done = 0; done < count;) {
    const int64_t token = longest + done;
    const BlockId block = table->blocks()[static_cast<size_t>(token / blockTokens)];
    const int64_t first = token % blockTokens;
    const int64_t part = std::min(blockTokens - first, count - done);
    TensorView from = sliceAxis(rows.view, axis, done, done + part);
    done += part;
    if (part == blockTokens && rows.owner) {
      if (llvm::Error error = manager.adopt(block, partOf[index], Tensor{rows.owner, from}))
        return error;
      continue;
    }
    llvm::Expected<TensorView> memory = manager.memory(block, partOf[index]);
    if (!memory)
      return memory.takeError();
    copyElements(from, sliceAxis(*memory, axis, first, first + part));
    written += from.byteSize();
  }
  return written;
}

/// The rows of the batch rows `sources` in blocks of the pool of `target`.
llvm::Expected<BlockTable> CacheSet::copyBlocks(const CacheSet& target,
                                                llvm::ArrayRef<int64_t> sources) const {
  BlockTable copy(target.table->sharedManager());
  if (llvm::Error error = copy.reserve(longest))
    return error;
  copy.advance(longest);
  for (size_t i = 0; i < size(); ++i) {
    if (!inBlocks(i))
      continue;
    for (size_t position = 0; position < copy.blocks().size(); ++position) {
      llvm::Expected<TensorView> from = table->rows(position, partOf[i]);
      if (!from)
        return from.takeError();
      llvm::Expected<TensorView> to = copy.rows(position, partOf[i]);
      if (!to)
        return to.takeError();
      for (size_t row = 0; row < sources.size(); ++row)
        copyElements(geometries[i].batchRow(*from, sources[row]),
                     target.geometries[i].batchRow(*to, static_cast<int64_t>(row)));
    }
  }
  return copy;
}

llvm::Expected<BlockTable> CacheSet::restoredBlocks(const CacheFileContents& contents) const {
  const int64_t length = *std::max_element(contents.lengths.begin(), contents.lengths.end());
  BlockTable made(table->sharedManager());
  if (llvm::Error error = made.reserve(length))
    return error;
  made.advance(length);
  for (size_t i = 0; i < size(); ++i) {
    if (!inBlocks(i))
      continue;
    const CacheGeometry& geometry = geometries[i];
    const auto stored = std::find_if(
        contents.caches.begin(), contents.caches.end(),
        [&](const CacheFileContents::Cache& cache) { return cache.entry.name == geometry.name; });
    assert(stored != contents.caches.end() && !stored->entry.batchAxis && "by checkFits");
    // Only read.
    auto* bytes = const_cast<std::byte*>(stored->bytes.data()); // NOLINT
    const TensorView all =
        TensorView::contiguous(stored->entry.element, stored->entry.shape, bytes);
    for (size_t position = 0; position < made.blocks().size(); ++position) {
      llvm::Expected<TensorView> to = made.rows(position, partOf[i]);
      if (!to)
        return to.takeError();
      const int64_t first = static_cast<int64_t>(position) * options.blockTokens;
      copyElements(sliceAxis(all, geometry.sequenceAxis(), first,
                             first + to->shape[geometry.sequenceAxis()]),
                   *to);
    }
  }
  return made;
}

llvm::Expected<Tensor> CacheSet::joinedRows(size_t index) const {
  const unsigned axis = geometries[index].sequenceAxis();
  llvm::Expected<Tensor> rows = unwritten(index, longest);
  if (!rows)
    return rows;
  for (size_t position = 0; position < table->blocks().size(); ++position) {
    llvm::Expected<TensorView> from = blockRows(index, position);
    if (!from)
      return from.takeError();
    const int64_t first = static_cast<int64_t>(position) * options.blockTokens;
    copyElements(*from, sliceAxis(rows->view, axis, first, first + from->shape[axis]));
  }
  return rows;
}

} // namespace kvopt::runtime
