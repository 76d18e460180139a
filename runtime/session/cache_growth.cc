// Room for rows before a step, and storage of rows after it.
#include "runtime/session/cache_growth.h"

#include "runtime/exec/input_binding.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::runtime {
using namespace ir;

llvm::Error CacheGrowth::findOutputs(const Graph& graph) {
  llvm::ArrayRef<Value*> outputs = graph.outputs();
  presents.clear();
  results.clear();
  for (const ManifestCache& cache : manifest.caches) {
    const auto* found =
        llvm::find_if(outputs, [&](const Value* value) { return value->name() == cache.present; });
    if (found == outputs.end())
      return invalid("the manifest's cache '{}' is not an output of the model", cache.present);
    presents.push_back(static_cast<unsigned>(found - outputs.begin()));
  }
  for (unsigned i = 0; i < outputs.size(); ++i)
    if (!llvm::is_contained(presents, i))
      results.push_back(i);
  return llvm::Error::success();
}

llvm::Error CacheGrowth::makeRoom(int64_t newTokens) {
  llvm::Expected<int64_t> room = state.roomFor(state.length() + newTokens);
  if (!room)
    return room.takeError();
  if (*room <= state.set().room())
    return llvm::Error::success();
  llvm::Expected<int64_t> moved = state.set().grow(*room);
  if (!moved)
    return moved.takeError();
  counters.cacheBytesMoved += *moved;
  ++counters.cacheReallocations;
  return llvm::Error::success();
}

llvm::Error CacheGrowth::take(llvm::MutableArrayRef<Tensor> outputs, int64_t newTokens) {
  CacheSet& caches = state.set();
  for (size_t i = 0; i < caches.size(); ++i)
    if (llvm::Error error = checkPresent(i, outputs[presents[i]].view, newTokens))
      return error;
  for (size_t i = 0; i < caches.size(); ++i)
    if (caches.geometry(i).isInBlocks())
      if (llvm::Error error = writeBlocks(i, outputs[presents[i]]))
        return error;
  for (size_t i = 0; i < caches.size(); ++i)
    if (manifest.caches[i].givesNewRows())
      if (llvm::Error error = joinNewRows(i, outputs[presents[i]]))
        return error;
  // Nothing can fail from here on.
  for (size_t i = 0; i < caches.size(); ++i)
    if (!caches.geometry(i).isOverwritten && !caches.geometry(i).isInBlocks())
      replace(i, std::move(outputs[presents[i]]));
  // A model without caches keeps nothing: every step is a whole sequence.
  if (caches.size() != 0)
    caches.advance(newTokens);
  return llvm::Error::success();
}

llvm::Error CacheGrowth::checkPresent(size_t index, const TensorView& present,
                                      int64_t newTokens) const {
  const CacheSet& caches = state.set();
  const CacheGeometry& geometry = caches.geometry(index);
  const ManifestCache& cache = manifest.caches[index];
  const unsigned axis = geometry.sequenceAxis();
  const bool isNew = geometry.isInBlocks() || cache.givesNewRows();
  int64_t rows = isNew ? newTokens : caches.length() + newTokens;
  if (geometry.isShared || geometry.update == CacheUpdate::Static ||
      geometry.update == CacheUpdate::State)
    rows = caches.buffer(index).shape[axis];
  else if (geometry.update == CacheUpdate::Ring && axis < present.rank())
    rows = present.shape[axis]; // the number of rows that the model keeps
  const Extents expected = cache.isPool() ? state.poolView(index).shape : geometry.shape(rows);
  if (present.shape == expected && present.element == geometry.element)
    return llvm::Error::success();
  // A model that was not rewritten has no manifest.
  if (manifest.target == "none" && present.element == geometry.element)
    return invalid(
               "output '{}' has shape {}, not {}: kvopt assumes that a step adds a row for each "
               "of its tokens",
               cache.present, extentsText(present.shape), extentsText(expected))
        .hint("--input NAME=VALUE@EXTENTS determines the extents of another input");
  return invalid("output '{}' has shape {}, but the manifest makes it {}", cache.present,
                 extentsText(present.shape), extentsText(expected));
}

llvm::Error CacheGrowth::writeBlocks(size_t index, Tensor& rows) {
  llvm::Expected<int64_t> written = state.set().writeRows(index, rows);
  if (!written)
    return written.takeError();
  counters.blockBytesCopied += *written;
  counters.cacheBytesWritten += *written;
  // A block may have taken over the memory.
  if (*written != rows.view.byteSize())
    rows = Tensor();
  return llvm::Error::success();
}

llvm::Error CacheGrowth::joinNewRows(size_t index, Tensor& rows) {
  const TensorView past = state.set().view(index);
  const unsigned axis = state.set().geometry(index).sequenceAxis();
  Extents shape = past.shape;
  shape[axis] += rows.view.shape[axis];
  auto joined = Tensor::create(state.allocator(), past.element, shape);
  if (!joined)
    return joined.takeError();
  copyElements(past, sliceAxis(joined->view, axis, 0, past.shape[axis]));
  copyElements(rows.view, sliceAxis(joined->view, axis, past.shape[axis], shape[axis]));
  rows = std::move(*joined);
  return llvm::Error::success();
}

void CacheGrowth::replace(size_t index, Tensor present) {
  CacheSet& caches = state.set();
  const TensorView past = caches.view(index);
  if (caches.geometry(index).update != CacheUpdate::State && present.view.data != past.data)
    counters.pastBytesCopied += past.byteSize();
  caches.replace(index, std::move(present));
}

} // namespace kvopt::runtime
