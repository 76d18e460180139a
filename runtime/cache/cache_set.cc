// Memory of caches: made, grown, cut, rearranged, copied.
#include "runtime/cache/cache_set.h"

#include "runtime/cache/contiguous_runs.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace kvopt::runtime {
using namespace ir;

namespace {

void poison(const TensorView& view) {
  // Bits that are all ones are a NaN in every floating-point format.
  forEachRun(view, [&](std::byte* data, size_t bytes) {
    std::memset(data, 0xff, bytes);
    return true;
  });
}

bool isIdentity(llvm::ArrayRef<int64_t> sources) {
  for (size_t i = 0; i < sources.size(); ++i)
    if (sources[i] != static_cast<int64_t>(i))
      return false;
  return true;
}

} // namespace

llvm::Expected<CacheSet> CacheSet::create(llvm::ArrayRef<ManifestCache> caches,
                                          CacheSetOptions options) {
  // Tables with an entry per batch row come before any tensor.
  constexpr int64_t maxBatch = int64_t{1} << 24;
  if (options.batch < 0 || options.batch > maxBatch)
    return unsupported("a batch of {} rows; at most {} can be handled", options.batch, maxBatch);
  CacheSet set;
  set.options = std::move(options);
  set.tokens.assign(static_cast<size_t>(set.batch()), 0);
  for (const ManifestCache& cache : caches) {
    auto geometry = CacheGeometry::create(cache, set.batch(), set.options.openRows);
    if (!geometry)
      return geometry.takeError();
    assert(!geometry->isShared || geometry->hasRowPerToken());
    set.hasShared |= geometry->isShared;
    if (geometry->update == CacheUpdate::Static)
      set.staticRows = std::min(set.staticRows, geometry->initialRows);
    set.geometries.push_back(std::move(*geometry));
  }
  if (llvm::Error error = set.makePool())
    return error;
  for (size_t i = 0; i < set.geometries.size(); ++i) {
    llvm::Expected<Tensor> tensor = set.empty(i, set.startRows(i));
    if (!tensor)
      return tensor.takeError();
    set.tensors.push_back(std::move(*tensor));
  }
  return set;
}

CacheSet CacheSet::withoutTensors() const {
  CacheSet result;
  result.options = options;
  result.geometries = geometries;
  result.tokens = tokens;
  result.longest = longest;
  result.staticRows = staticRows;
  result.hasShared = hasShared;
  result.partOf = partOf;
  return result;
}

int64_t CacheSet::startRows(size_t index) const {
  return geometries[index].isShared ? options.room : geometries[index].initialRows;
}

llvm::Expected<Tensor> CacheSet::unwritten(size_t index, int64_t rows) const {
  const CacheGeometry& geometry = geometries[index];
  return geometry.isShared
             ? Tensor::zeros(options.allocator, geometry.element, geometry.shape(rows))
             : Tensor::create(options.allocator, geometry.element, geometry.shape(rows));
}

llvm::Expected<Tensor> CacheSet::empty(size_t index, int64_t rows) const {
  const CacheGeometry& geometry = geometries[index];
  llvm::Expected<Tensor> tensor =
      Tensor::zeros(options.allocator, geometry.element, geometry.shape(rows));
  if (tensor && options.poison && geometry.isShared)
    poison(tensor->view);
  return tensor;
}

bool CacheSet::isRagged() const {
  return llvm::any_of(tokens, [&](int64_t length) { return length != longest; });
}

const CacheGeometry* CacheSet::evenOnly() const {
  for (const CacheGeometry& geometry : geometries)
    if (!geometry.isShared || !geometry.batchAxis())
      return &geometry;
  return nullptr;
}

TensorView CacheSet::view(size_t index) const {
  const CacheGeometry& geometry = geometries[index];
  if (!geometry.hasRowPerToken())
    return tensors[index].view;
  if (!geometry.isInBlocks())
    return sliceAxis(tensors[index].view, geometry.sequenceAxis(), 0, longest);
  llvm::Expected<Tensor> rows = joinedRows(index);
  if (!rows)
    llvm::report_bad_alloc_error("no memory for the rows of a cache");
  joined.resize(size());
  joined[index] = std::move(*rows);
  return joined[index].view;
}

void CacheSet::setLengths(llvm::ArrayRef<int64_t> values) {
  tokens.assign(values.begin(), values.end());
  longest = *std::max_element(tokens.begin(), tokens.end());
}

void CacheSet::advance(int64_t count) {
  if (table)
    table->advance(count);
  for (int64_t& length : tokens)
    length += count;
  longest += count;
}

llvm::SmallVector<int64_t, 4> CacheSet::everyRow() const {
  llvm::SmallVector<int64_t, 4> rows(tokens.size());
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

/// The valid rows of the batch rows `sources` into a tensor of another set; the number of bytes.
int64_t CacheSet::copyRows(size_t index, llvm::ArrayRef<int64_t> sources,
                           const CacheGeometry& geometryTo, const TensorView& to) const {
  const CacheGeometry& geometry = geometries[index];
  unsigned axis = geometry.sequenceAxis();
  auto copy = [&](const TensorView& from, const TensorView& target) {
    copyElements(from, sliceAxis(target, axis, 0, from.shape[axis]));
    return from.byteSize();
  };
  if (isIdentity(sources) && sources.size() == tokens.size() && !isRagged())
    return copy(view(index), to);
  int64_t bytes = 0;
  for (size_t row = 0; row < sources.size(); ++row) {
    TensorView from = geometry.batchRow(tensors[index].view, sources[row]);
    if (geometry.hasRowPerToken())
      from = sliceAxis(from, axis, 0, tokens[static_cast<size_t>(sources[row])]);
    bytes += copy(from, geometryTo.batchRow(to, static_cast<int64_t>(row)));
  }
  return bytes;
}

void CacheSet::poisonUnused(size_t index, const TensorView& tensor) const {
  const CacheGeometry& geometry = geometries[index];
  if (!options.poison || !geometry.isShared)
    return;
  const auto unused = [&](const TensorView& rows, int64_t length) {
    return sliceAxis(rows, geometry.sequenceAxis(), length, rows.shape[geometry.sequenceAxis()]);
  };
  if (!isRagged())
    return poison(unused(tensor, longest));
  for (int64_t row = 0; row < batch(); ++row)
    poison(unused(geometry.batchRow(tensor, row), tokens[static_cast<size_t>(row)]));
}

llvm::Error CacheSet::crop(llvm::ArrayRef<int64_t> kept) {
  assert(kept.size() == tokens.size() && !frozen);
  if (kept == llvm::ArrayRef<int64_t>(tokens))
    return llvm::Error::success();
  if (llvm::all_of(kept, [](int64_t length) { return length == 0; }))
    return reset();
  int64_t longestKept = *std::max_element(kept.begin(), kept.end());
  for (const CacheGeometry& geometry : geometries) {
    if (geometry.update == CacheUpdate::State)
      return unsupported("cache '{}' is a recurrent state: it cannot go back from {} tokens to {}",
                         geometry.name, longest, longestKept)
          .hint("fork the session, or save it, where it may have to go back to");
    if (geometry.update != CacheUpdate::Ring)
      continue;
    int64_t held = tensors[static_cast<size_t>(&geometry - geometries.data())]
                       .view.shape[geometry.sequenceAxis()];
    if (geometry.initialRows != 0 || held < longest)
      return unsupported("cache '{}' keeps the last {} rows only: what came before them is gone, "
                         "so it cannot go back from {} tokens to {}",
                         geometry.name, held, longest, longestKept)
          .hint("fork the session, or save it, where it may have to go back to");
  }
  if (table)
    if (llvm::Error error = table->truncate(longestKept))
      return error;
  for (size_t i = 0; i < tensors.size(); ++i)
    if (geometries[i].update == CacheUpdate::Ring)
      tensors[i].view = sliceAxis(tensors[i].view, geometries[i].sequenceAxis(), 0, longestKept);
  setLengths(kept);
  return llvm::Error::success();
}

llvm::Error CacheSet::reset() {
  assert(!frozen);
  std::vector<Tensor> fresh = tensors;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (geometries[i].isShared)
      continue;
    // Never in place: whoever called the last step may hold an output in the same memory.
    llvm::Expected<Tensor> tensor = empty(i, startRows(i));
    if (!tensor)
      return tensor.takeError();
    fresh[i] = std::move(*tensor);
  }
  if (table)
    table->clear();
  tensors = std::move(fresh);
  tokens.assign(tokens.size(), 0);
  longest = 0;
  return llvm::Error::success();
}

llvm::Error CacheSet::checkBatchRows() const {
  for (const CacheGeometry& geometry : geometries)
    if (!geometry.batchAxis() && batch() != 1)
      return unsupported("the manifest does not tell which axis of cache '{}' is the batch's",
                         geometry.name)
          .hint("give the axis a symbolic extent");
  return llvm::Error::success();
}

void CacheSet::moveRows(size_t index, llvm::ArrayRef<RowMove> moves, std::byte* aside) const {
  const CacheGeometry& geometry = geometries[index];
  llvm::SmallVector<int64_t, 4> held = tokens;
  int64_t heldAside = 0;
  for (const RowMove& move : moves) {
    int64_t count = move.from == RowMove::aside ? heldAside : held[static_cast<size_t>(move.from)];
    auto rows = [&](int64_t row) {
      const TensorView& all = tensors[index].view;
      TensorView part = geometry.batchRow(all, row == RowMove::aside ? 0 : row);
      part = sliceAxis(part, geometry.sequenceAxis(), 0, count);
      return row == RowMove::aside ? TensorView::contiguous(part.element, part.shape, aside) : part;
    };
    copyElements(rows(move.from), rows(move.to));
    (move.to == RowMove::aside ? heldAside : held[static_cast<size_t>(move.to)]) = count;
  }
}

llvm::Error CacheSet::reorder(llvm::ArrayRef<int64_t> sources) {
  assert(sources.size() == tokens.size() && !frozen);
  std::vector<RowMove> moves = rowMoves(sources);
  if (moves.empty())
    return llvm::Error::success();
  if (llvm::Error error = checkBatchRows())
    return error;
  int64_t asideBytes = 0;
  std::vector<Tensor> gatheredTensors = tensors;
  std::optional<BlockTable> gatheredBlocks;
  if (table) {
    llvm::Expected<BlockTable> copied = copyBlocks(*this, sources);
    if (!copied)
      return copied.takeError();
    gatheredBlocks = std::move(*copied);
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (inBlocks(i))
      continue;
    if (geometries[i].isShared) {
      asideBytes = std::max(asideBytes, geometries[i].batchRow(view(i), 0).byteSize());
      continue;
    }
    llvm::Expected<Tensor> tensor = unwritten(i, view(i).shape[geometries[i].sequenceAxis()]);
    if (!tensor)
      return tensor.takeError();
    copyRows(i, sources, geometries[i], tensor->view);
    gatheredTensors[i] = std::move(*tensor);
  }
  bool needsAside = llvm::any_of(moves, [](const RowMove& m) { return m.to == RowMove::aside; });
  llvm::Expected<std::shared_ptr<Buffer>> aside =
      Buffer::create(options.allocator, needsAside ? static_cast<size_t>(asideBytes) : 0);
  if (!aside)
    return aside.takeError();
  for (size_t i = 0; i < tensors.size(); ++i)
    if (geometries[i].isShared)
      moveRows(i, moves, (*aside)->data());
  tensors = std::move(gatheredTensors);
  table = std::move(gatheredBlocks);
  llvm::SmallVector<int64_t, 4> before = tokens;
  for (size_t row = 0; row < sources.size(); ++row)
    tokens[row] = before[static_cast<size_t>(sources[row])];
  longest = *std::max_element(tokens.begin(), tokens.end());
  return llvm::Error::success();
}

/// `target` gets tensors and lengths; everything else of it is there.
llvm::Expected<CacheSet> CacheSet::copyTo(CacheSet target, llvm::ArrayRef<int64_t> sources) const {
  llvm::SmallVector<int64_t, 4> lengths;
  for (int64_t source : sources)
    lengths.push_back(tokens[static_cast<size_t>(source)]);
  target.setLengths(lengths);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const CacheGeometry& geometry = target.geometries[i];
    if (inBlocks(i)) {
      llvm::Expected<Tensor> none = target.unwritten(i, 0);
      if (!none)
        return none.takeError();
      target.tensors.push_back(std::move(*none));
      continue;
    }
    int64_t rows = geometry.isShared           ? target.options.room
                   : geometry.hasRowPerToken() ? target.longest
                                               : tensors[i].view.shape[geometry.sequenceAxis()];
    llvm::Expected<Tensor> tensor = target.unwritten(i, rows);
    if (!tensor)
      return tensor.takeError();
    copyRows(i, sources, geometry, tensor->view);
    target.poisonUnused(i, tensor->view);
    target.tensors.push_back(std::move(*tensor));
  }
  return target;
}

llvm::Expected<CacheSet> CacheSet::gathered(llvm::ArrayRef<ManifestCache> caches,
                                            llvm::ArrayRef<int64_t> sources) const {
  assert(!sources.empty() && caches.size() == size());
  if (llvm::Error error = checkBatchRows())
    return error;
  CacheSet target = withoutTensors();
  target.options.batch = static_cast<int64_t>(sources.size());
  for (size_t i = 0; i < size(); ++i) {
    auto geometry = CacheGeometry::create(caches[i], target.batch(), options.openRows);
    if (!geometry)
      return geometry.takeError();
    if (target.batch() != batch() &&
        (!geometry->batchAxis() || geometry->batchAxis() != geometries[i].batchAxis() ||
         geometry->slicesPerRow != geometries[i].slicesPerRow))
      return unsupported("cache '{}' has {} batch rows, whatever the session's batch size is",
                         geometries[i].name, batch());
    target.geometries[i] = std::move(*geometry);
  }
  // Batch rows of another number are blocks of another size.
  if (llvm::Error error = target.makePool())
    return error;
  if (table) {
    llvm::Expected<BlockTable> copied = copyBlocks(target, sources);
    if (!copied)
      return copied.takeError();
    target.table = std::move(*copied);
  }
  return copyTo(std::move(target), sources);
}

llvm::Expected<CacheSet> CacheSet::clone() const {
  CacheSet target = withoutTensors();
  if (table)
    target.table = table->fork();
  if (!frozen)
    return copyTo(std::move(target), everyRow());
  target.tensors = tensors;
  target.frozen = true;
  return target;
}

llvm::Error CacheSet::freeze() {
  assert(!frozen);
  std::vector<Tensor> packed = tensors;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (inBlocks(i))
      continue;
    // Always a copy: a present's memory may be larger than it is.
    llvm::Expected<Tensor> tensor = unwritten(i, view(i).shape[geometries[i].sequenceAxis()]);
    if (!tensor)
      return tensor.takeError();
    copyRows(i, everyRow(), geometries[i], tensor->view);
    poisonUnused(i, tensor->view);
    packed[i] = std::move(*tensor);
  }
  if (table) {
    if (llvm::Error error = table->pack())
      return error;
    table->manager().trim();
    joined.clear();
  }
  tensors = std::move(packed);
  options.room = longest;
  frozen = true;
  return llvm::Error::success();
}

llvm::Error CacheSet::thaw(int64_t room) {
  assert(frozen && room >= longest);
  CacheSet target = withoutTensors();
  target.options.room = room;
  llvm::Expected<CacheSet> running = copyTo(std::move(target), everyRow());
  if (!running)
    return running.takeError();
  running->table = std::move(table);
  *this = std::move(*running);
  return llvm::Error::success();
}

} // namespace kvopt::runtime
