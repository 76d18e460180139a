// Shared buffers that become longer: by moving pages, where rows of heads are whole pages and many.
#include "runtime/cache/cache_set.h"
#include "runtime/memory/page_memory.h"

#include <algorithm>
#include <numeric>

namespace kvopt::runtime {
using namespace ir;

namespace {

static_assert(largePageBytes >= leastPagedBytes);

/// Shorter runs are copied: a system call for each would cost more.
constexpr int64_t leastMovedBytes = 64 << 10;
/// Every run that moves is a mapping of its own from then on. Linux gives a process 65530 of them.
constexpr int64_t mostMovedRuns = 8192;

/// Bytes from one row of a head to the next.
int64_t rowBytes(const TensorView& tensor, unsigned sequenceAxis) {
  return tensor.strides[sequenceAxis] * int64_t{*byteWidth(tensor.element)};
}

} // namespace

/// `room`, or up to 1/16 more, so that runs start with pages and can be moved at the next growth.
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
  return room > INT64_MAX - step ? room : (room + step - 1) / step * step;
}

/// The rows of a cache into a longer tensor of zeros; the number of bytes copied. Whatever it is,
/// the cache's own tensor must not be used any more.
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
  // Nothing can fail once everything is allocated.
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

/// Before shared buffers hold `count` tokens: large pages, as soon as they take no more than three
/// times the memory that the rows need.
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

} // namespace kvopt::runtime
