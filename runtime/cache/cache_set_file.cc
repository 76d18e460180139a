// Caches to and from a file's contents.
#include "runtime/cache/cache_set.h"
#include "runtime/cache/contiguous_runs.h"
#include "runtime/exec/input_binding.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace kvopt::runtime {
using namespace ir;

namespace {

bool isZero(const std::byte* data, size_t bytes) {
  return bytes == 0 || (data[0] == std::byte{0} && std::memcmp(data, data + 1, bytes - 1) == 0);
}

/// Without the rows from `tokens` on that hold nothing but zeros, as they did at the start.
TensorView withoutZeroRows(const TensorView& view, unsigned axis, int64_t tokens) {
  int64_t rows = view.shape[axis];
  while (rows > tokens && forEachRun(sliceAxis(view, axis, rows - 1, rows), isZero))
    --rows;
  return sliceAxis(view, axis, 0, rows);
}

/// The bytes as one tensor; they are only read.
TensorView asTensor(const std::byte* bytes, ElementType element, llvm::ArrayRef<int64_t> shape) {
  return TensorView::contiguous(element, shape, const_cast<std::byte*>(bytes)); // NOLINT
}

void copyFrom(const CacheFileContents::Cache& stored, llvm::ArrayRef<int64_t> lengths,
              const CacheGeometry& geometry, const TensorView& to) {
  unsigned axis = geometry.sequenceAxis();
  auto copy = [&](const TensorView& from, const TensorView& target) {
    copyElements(from, sliceAxis(target, axis, 0, from.shape[axis]));
  };
  const std::byte* bytes = stored.bytes.data();
  if (!stored.entry.batchAxis)
    return copy(asTensor(bytes, stored.entry.element, stored.entry.shape), to);
  Extents shape = stored.entry.shape;
  shape[*stored.entry.batchAxis] = geometry.slicesPerRow;
  for (size_t row = 0; row < lengths.size(); ++row) {
    shape[axis] = lengths[row];
    TensorView from = asTensor(bytes, stored.entry.element, shape);
    copy(from, geometry.batchRow(to, static_cast<int64_t>(row)));
    bytes += from.byteSize();
  }
}

const CacheFileContents::Cache* findCache(const CacheFileContents& contents, llvm::StringRef name) {
  for (const CacheFileContents::Cache& cache : contents.caches)
    if (cache.entry.name == name)
      return &cache;
  return nullptr;
}

/// The numbers that codes are multiplied by are what a row of finite numbers gives.
llvm::Error checkScales(const CacheFileContents::Cache& stored) {
  if (stored.entry.element != ElementType::Float)
    return llvm::Error::success();
  for (size_t offset = 0; offset + sizeof(float) <= stored.bytes.size(); offset += sizeof(float)) {
    float scale = 0;
    std::memcpy(&scale, stored.bytes.data() + offset, sizeof(scale));
    if (!std::isfinite(scale) || std::signbit(scale))
      return invalid("cache '{}' holds the scale {}, which no row of finite numbers has",
                     stored.entry.name, scale);
  }
  return llvm::Error::success();
}

} // namespace

std::vector<StoredCache> CacheSet::stored() const {
  std::vector<StoredCache> result;
  bool apart = isRagged();
  for (size_t i = 0; i < size(); ++i) {
    const CacheGeometry& geometry = geometries[i];
    StoredCache cache;
    cache.entry.name = geometry.name;
    cache.entry.element = geometry.element;
    cache.entry.sequenceAxis = geometry.sequenceAxis();
    TensorView valid = view(i);
    if (geometry.update == CacheUpdate::Static)
      valid = withoutZeroRows(valid, geometry.sequenceAxis(), longest);
    cache.entry.shape = valid.shape;
    if (!apart) {
      cache.parts.push_back(std::move(valid));
      result.push_back(std::move(cache));
      continue;
    }
    cache.entry.batchAxis = geometry.batchAxis();
    for (int64_t row = 0; row < batch(); ++row)
      cache.parts.push_back(sliceAxis(geometry.batchRow(valid, row), geometry.sequenceAxis(), 0,
                                      tokens[static_cast<size_t>(row)]));
    result.push_back(std::move(cache));
  }
  return result;
}

llvm::Error CacheSet::checkEntry(const CacheFileEntry& entry, const CacheGeometry& cache,
                                 llvm::ArrayRef<int64_t> lengths) const {
  auto differs = [&](const std::string& what) {
    return invalid("cache '{}' is stored {}", cache.name, what)
        .hint("it was saved by a session that is driven in another way");
  };
  if (entry.element != cache.element)
    return differs(fmt::format("as {}, but the session's is {}", onnxName(entry.element),
                               onnxName(cache.element)));
  int64_t rows = entry.shape[entry.sequenceAxis];
  Extents expected = cache.shape(rows);
  if (entry.sequenceAxis != cache.sequenceAxis() || entry.shape != expected)
    return differs(fmt::format("with shape {}, but the session's is {}", extentsText(entry.shape),
                               extentsText(expected)));
  const int64_t length = *std::max_element(lengths.begin(), lengths.end());
  const bool rowsFit = [&] {
    if (cache.hasRowPerToken())
      return rows == length;
    if (cache.update == CacheUpdate::Static)
      return rows >= std::min(length, cache.initialRows) && rows <= cache.initialRows;
    if (cache.initialRows != 0 || cache.update == CacheUpdate::State)
      return rows == cache.initialRows;
    // A ring that grows to its width.
    return cache.window > 0 ? rows == std::min(length, cache.window)
                            : rows <= length && (rows > 0) == (length > 0);
  }();
  if (!rowsFit)
    return differs(fmt::format("with {} rows for {} tokens", rows, length));
  bool isEven = llvm::all_of(lengths, [&](int64_t row) { return row == length; });
  const bool areApart = cache.hasRowPerToken() && !cache.isInBlocks() && cache.batchAxis();
  if (entry.batchAxis ? !areApart || entry.batchAxis != cache.batchAxis() : !isEven)
    return differs("with batch rows that cannot be told apart");
  return llvm::Error::success();
}

llvm::Error CacheSet::checkFits(const CacheFileContents& contents) const {
  if (static_cast<int64_t>(contents.lengths.size()) != batch())
    return invalid("the file holds {} batch rows, but the session has {}", contents.lengths.size(),
                   batch())
        .hint("open the session with the batch size of the one that was saved");
  if (contents.caches.size() != size())
    return invalid("the file holds {} caches, but the session has {}", contents.caches.size(),
                   size());
  for (const CacheGeometry& geometry : geometries) {
    const CacheFileContents::Cache* stored = findCache(contents, geometry.name);
    if (!stored)
      return invalid("the file holds no cache '{}'", geometry.name);
    if (llvm::Error error = checkEntry(stored->entry, geometry, contents.lengths))
      return error;
    if (geometry.holdsScales)
      if (llvm::Error error = checkScales(*stored))
        return error;
  }
  return llvm::Error::success();
}

llvm::Error CacheSet::restore(const CacheFileContents& contents, int64_t room) {
  assert(!frozen);
  if (llvm::Error error = checkFits(contents))
    return error;
  const int64_t longestStored = *std::max_element(contents.lengths.begin(), contents.lengths.end());
  if (hasShared && room < longestStored)
    return invalid("{} tokens do not fit into a cache of {} rows", longestStored, room);
  bool replacesShared = room > options.room;
  std::vector<Tensor> restored = tensors;
  std::vector<const CacheFileContents::Cache*> sources;
  std::optional<BlockTable> restoredTable;
  if (table) {
    llvm::Expected<BlockTable> made = restoredBlocks(contents);
    if (!made)
      return made.takeError();
    restoredTable = std::move(*made);
  }
  // Nothing can fail once everything is allocated.
  for (size_t i = 0; i < size(); ++i) {
    const CacheGeometry& geometry = geometries[i];
    const CacheFileContents::Cache* source = findCache(contents, geometry.name);
    sources.push_back(source);
    if (inBlocks(i))
      continue;
    if (geometry.isShared && !replacesShared)
      continue;
    int64_t rows = geometry.isShared ? room
                   : geometry.update == CacheUpdate::Static
                       ? geometry.initialRows
                       : source->entry.shape[geometry.sequenceAxis()];
    llvm::Expected<Tensor> tensor = empty(i, rows);
    if (!tensor)
      return tensor.takeError();
    restored[i] = std::move(*tensor);
  }
  for (size_t i = 0; i < size(); ++i)
    if (!inBlocks(i))
      copyFrom(*sources[i], contents.lengths, geometries[i], restored[i].view);
  tensors = std::move(restored);
  table = std::move(restoredTable);
  if (hasShared && replacesShared)
    options.room = room;
  setLengths(contents.lengths);
  return llvm::Error::success();
}

} // namespace kvopt::runtime
