// Memory of caches: allocation, growth, cropping, reordering, copies, saving and restoring.
#include "runtime/cache/cache_set.h"

#include "runtime/cache/contiguous_runs.h"
#include "runtime/cache/repeated_numbers.h"
#include "runtime/cache/rotate_rows.h"
#include "runtime/exec/input_binding.h"
#include "runtime/memory/page_memory.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

namespace kvopt::runtime {
using namespace ir;

namespace {

void poison(const TensorView& view) {
  // A number whose bits are all ones is a NaN in every floating-point format.
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
  // Checked before tables with one entry per batch row are allocated.
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
  if (tensor && !geometry.initial.empty())
    fillRepeatedly(tensor->view, geometry.initial);
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
  assert(!geometry.isInBlocks());
  return geometry.hasRowPerToken()
             ? sliceAxis(tensors[index].view, geometry.sequenceAxis(), 0, longest)
             : tensors[index].view;
}

llvm::Expected<Tensor> CacheSet::rows(size_t index) const {
  if (inBlocks(index))
    return joinedRows(index);
  return Tensor{nullptr, view(index)};
}

llvm::Expected<Tensor> CacheSet::copyOfRows(size_t index) const {
  return inBlocks(index) ? joinedRows(index) : Tensor::copyOf(options.allocator, view(index));
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

/// Copies the valid rows of the batch rows `sources` to a tensor of another set. Returns the number
/// of bytes.
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
    if (held < longest)
      return unsupported("cache '{}' keeps the last {} rows only: what came before them is gone, "
                         "so it cannot go back from {} tokens to {}",
                         geometry.name, held, longest, longestKept)
          .hint("fork the session, or save it, where it may have to go back to");
  }
  if (table)
    if (llvm::Error error = table->truncate(longestKept))
      return error;
  for (size_t i = 0; i < tensors.size(); ++i)
    if (geometries[i].update == CacheUpdate::Ring && geometries[i].initialRows == 0)
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
    // Never in place: the caller of the last step may hold an output in the same memory.
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

std::string CacheSet::shiftObstacle() const {
  for (const CacheGeometry& geometry : geometries)
    switch (geometry.update) {
    case CacheUpdate::State:
      return formatted("cache '{}' is a recurrent state, which holds all tokens in one",
                       geometry.name);
    case CacheUpdate::Ring:
      return formatted("cache '{}' is a ring, which drops its oldest rows by itself and keeps "
                       "each row in the slot of its position",
                       geometry.name);
    case CacheUpdate::Blocks:
      return formatted("the rows of cache '{}' are in blocks, which forks and other sessions may "
                       "share",
                       geometry.name);
    default:
      break;
    }
  return "";
}

/// A longer or shorter tensor that replaces a cache which is not one buffer. It contains the rows
/// before and after the dropped ones, followed by zeros.
llvm::Expected<Tensor> CacheSet::shiftTarget(size_t index, int64_t kept, int64_t dropped) const {
  const CacheGeometry& geometry = geometries[index];
  const unsigned axis = geometry.sequenceAxis();
  const TensorView& from = tensors[index].view;
  const bool isStatic = !geometry.hasRowPerToken();
  llvm::Expected<Tensor> to =
      Tensor::zeros(options.allocator, geometry.element,
                    geometry.shape(isStatic ? from.shape[axis] : longest - dropped));
  if (!to)
    return to;
  copyElements(sliceAxis(from, axis, 0, kept), sliceAxis(to->view, axis, 0, kept));
  copyElements(sliceAxis(from, axis, kept + dropped, longest),
               sliceAxis(to->view, axis, kept, longest - dropped));
  return to;
}

llvm::Error CacheSet::shift(int64_t kept, int64_t dropped, llvm::ArrayRef<CacheTurn> turns) {
  assert(turns.size() == size() && !frozen && shiftObstacle().empty());
  std::vector<Tensor> shifted = tensors;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (geometries[i].isShared)
      continue;
    // Never in place: the caller of the last step may hold an output in the same memory.
    llvm::Expected<Tensor> tensor = shiftTarget(i, kept, dropped);
    if (!tensor)
      return tensor.takeError();
    shifted[i] = std::move(*tensor);
  }
  // From here on nothing can fail, because everything is allocated.
  const auto forEachPart = [&](size_t index,
                               llvm::function_ref<void(const TensorView&, int64_t)> f) {
    if (!isRagged())
      return f(shifted[index].view, longest);
    for (int64_t row = 0; row < batch(); ++row)
      f(geometries[index].batchRow(shifted[index].view, row), tokens[static_cast<size_t>(row)]);
  };
  for (size_t i = 0; i < tensors.size(); ++i)
    if (geometries[i].isShared)
      forEachPart(i, [&](const TensorView& rows, int64_t length) {
        moveRowsForward(rows, geometries[i].sequenceAxis(), kept, dropped, length);
      });
  for (size_t i = 0; i < tensors.size(); ++i) {
    const CacheTurn& turn = turns[i];
    if (!turn.rotation)
      continue;
    const unsigned axis = geometries[i].sequenceAxis();
    int64_t part = 0;
    forEachPart(i, [&](const TensorView& rows, int64_t length) {
      const TensorView moved = sliceAxis(rows, axis, kept, length - dropped);
      if (!turn.scales) {
        rotateRows(moved, turn.columnAxis, *turn.rotation, -dropped);
      } else {
        const TensorView& all = shifted[*turn.scales].view;
        const TensorView scales = isRagged() ? geometries[*turn.scales].batchRow(all, part) : all;
        const TensorView factors = sliceAxis(scales, axis, kept, length - dropped);
        const int64_t columns =
            turn.codeColumns != 0 ? turn.codeColumns : moved.shape[turn.columnAxis];
        rotateCodedRows(moved, factors, turn.columnAxis, columns, *turn.rotation, -dropped);
      }
      ++part;
    });
  }
  tensors = std::move(shifted);
  llvm::SmallVector<int64_t, 4> lengths(tokens);
  for (int64_t& length : lengths)
    length -= dropped;
  setLengths(lengths);
  for (size_t i = 0; i < tensors.size(); ++i)
    poisonUnused(i, tensors[i].view);
  return llvm::Error::success();
}

llvm::Error CacheSet::checkBatchRows() const {
  for (const CacheGeometry& geometry : geometries)
    if (!geometry.batchAxis() && batch() != 1)
      return unsupported("the manifest does not say which axis of cache '{}' is the batch's",
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

/// Copies to `target`, which is complete except for tensors and lengths.
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
  // With another number of batch rows, blocks have another size.
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
    // Always a copy, because a present's memory may be larger than the present.
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

// Caches in the blocks of a pool.

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

/// Rows of the batch rows `sources` in blocks of `target`'s pool.
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

// Growth, by moving pages if the rows of a head fill many whole pages.

namespace {

static_assert(largePageBytes >= leastPagedBytes);

/// Shorter runs are copied, because a system call for each would cost more.
constexpr int64_t leastMovedBytes = 64 << 10;
/// Every moved run becomes a separate mapping. Linux limits a process to 65530 mappings.
constexpr int64_t mostMovedRuns = 8192;

/// Distance between two rows of a head in bytes.
int64_t rowBytes(const TensorView& tensor, unsigned sequenceAxis) {
  return tensor.strides[sequenceAxis] * int64_t{*byteWidth(tensor.element)};
}

} // namespace

/// `room`, or up to 1/16 more, so that runs start at page boundaries and can be moved at the next
/// growth.
int64_t CacheSet::roomInPages(int64_t room) const {
  const auto page = static_cast<int64_t>(pageBytes());
  int64_t step = 1;
  for (size_t i = 0; i < size(); ++i) {
    if (!geometries[i].isShared)
      continue;
    const int64_t bytes = rowBytes(tensors[i].view, geometries[i].sequenceAxis());
    int64_t run = 0;
    if (__builtin_mul_overflow(bytes, room, &run) || run < leastMovedBytes)
      continue;
    const int64_t rowsInPages = page / std::gcd(page, bytes);
    if (rowsInPages <= room / 16)
      step = std::max(step, rowsInPages);
  }
  // The given room is already a multiple of the unit.
  if (__builtin_mul_overflow(step, options.roomUnit / std::gcd(step, options.roomUnit), &step) ||
      step > room / 16)
    step = options.roomUnit;
  return room > INT64_MAX - step ? room : (room + step - 1) / step * step;
}

/// Moves the rows of a cache to a longer tensor of zeros and returns the number of copied bytes.
/// Afterwards the cache's previous tensor must not be used, even if nothing was copied.
int64_t CacheSet::growInto(size_t index, Tensor& larger, int64_t& movableRuns) {
  const CacheGeometry& geometry = geometries[index];
  Tensor& tensor = tensors[index];
  const unsigned axis = geometry.sequenceAxis();
  const int64_t runBytes = rowBytes(tensor.view, axis) * tensor.view.shape[axis];
  const int64_t runs = runBytes < leastMovedBytes ? 0 : tensor.view.byteSize() / runBytes;
  int64_t copied = 0;
  if (runs != 0 && runs <= movableRuns && tensor.movePagesTo(larger, static_cast<size_t>(runs)))
    movableRuns -= runs;
  else
    copied = copyRows(index, everyRow(), geometry, larger.view);
  poisonUnused(index, larger.view);
  return copied;
}

llvm::Expected<int64_t> CacheSet::grow(int64_t room) {
  assert(room >= longest && !frozen);
  room = roomInPages(room);
  std::vector<Tensor> larger(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!geometries[i].isShared)
      continue;
    llvm::Expected<Tensor> tensor = unwritten(i, room);
    if (!tensor)
      return tensor.takeError();
    larger[i] = std::move(*tensor);
  }
  // From here on nothing can fail, because everything is allocated.
  int64_t copied = 0;
  int64_t movableRuns = mostMovedRuns;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!geometries[i].isShared)
      continue;
    copied += growInto(i, larger[i], movableRuns);
    tensors[i] = std::move(larger[i]);
  }
  options.room = room;
  usesLargePages = false;
  return copied;
}

/// Prepares shared buffers for `count` tokens: uses large pages as soon as they take at most three
/// times the memory of the rows.
void CacheSet::prepareRows(int64_t count) {
  if (!hasShared || usesLargePages)
    return;
  constexpr auto page = static_cast<int64_t>(largePageBytes);
  const auto isLarge = [&](size_t i) {
    return geometries[i].isShared && tensors[i].view.byteSize() >= page;
  };
  int64_t rowsInPage = 0;
  for (size_t i = 0; i < size(); ++i)
    if (isLarge(i))
      rowsInPage =
          std::max(rowsInPage, page / rowBytes(tensors[i].view, geometries[i].sequenceAxis()));
  if (count < options.room / 3 && count < rowsInPage)
    return;
  for (size_t i = 0; i < size(); ++i)
    if (isLarge(i))
      preferLargePages(tensors[i].view.data, static_cast<size_t>(tensors[i].view.byteSize()));
  usesLargePages = true;
}

// Conversion of caches to and from a file's contents.

namespace {

bool isZero(const std::byte* data, size_t bytes) {
  return bytes == 0 || (data[0] == std::byte{0} && std::memcmp(data, data + 1, bytes - 1) == 0);
}

/// View without the rows from `tokens` on that still contain only their initial zeros.
TensorView withoutZeroRows(const TensorView& view, unsigned axis, int64_t tokens) {
  int64_t rows = view.shape[axis];
  while (rows > tokens && forEachRun(sliceAxis(view, axis, rows - 1, rows), isZero))
    --rows;
  return sliceAxis(view, axis, 0, rows);
}

/// View of the bytes as one tensor, which is only read.
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

/// Checks that multipliers of codes are finite and not negative, as for rows of finite numbers.
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

llvm::Expected<std::vector<StoredCache>> CacheSet::stored() const {
  std::vector<StoredCache> result;
  bool apart = isRagged();
  for (size_t i = 0; i < size(); ++i) {
    const CacheGeometry& geometry = geometries[i];
    StoredCache cache;
    cache.entry.name = geometry.name;
    cache.entry.element = geometry.element;
    cache.entry.sequenceAxis = geometry.sequenceAxis();
    llvm::Expected<Tensor> held = rows(i);
    if (!held)
      return held.takeError();
    cache.owner = std::move(held->owner);
    TensorView valid = std::move(held->view);
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
    return differs(formatted("as {}, but the session's is {}", onnxName(entry.element),
                             onnxName(cache.element)));
  int64_t rows = entry.shape[entry.sequenceAxis];
  Extents expected = cache.shape(rows);
  if (entry.sequenceAxis != cache.sequenceAxis() || entry.shape != expected)
    return differs(formatted("with shape {}, but the session's is {}", extentsText(entry.shape),
                             extentsText(expected)));
  const int64_t length = *std::max_element(lengths.begin(), lengths.end());
  const bool rowsFit = [&] {
    if (cache.hasRowPerToken())
      return rows == length;
    if (cache.update == CacheUpdate::Static)
      return rows >= std::min(length, cache.initialRows) && rows <= cache.initialRows;
    if (cache.initialRows != 0 || cache.update == CacheUpdate::State)
      return rows == cache.initialRows;
    // A ring that grows to its width, which is the window or one row less.
    return rows <= length && (rows > 0) == (length > 0) &&
           (cache.window == 0 || rows <= cache.window);
  }();
  if (!rowsFit)
    return differs(formatted("with {} rows for {} tokens", rows, length));
  bool isEven = llvm::all_of(lengths, [&](int64_t row) { return row == length; });
  const bool areApart = cache.hasRowPerToken() && !cache.isInBlocks() && cache.batchAxis();
  if (entry.batchAxis ? !areApart || entry.batchAxis != cache.batchAxis() : !isEven)
    return differs("with batch rows that cannot be identified");
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
  // From here on nothing can fail, because everything is allocated.
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
