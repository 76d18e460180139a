// Values of lengths, flags and block tables.
#include "runtime/session/length_inputs.h"

#include "ir/manifest/fed_length.h"
#include "support/diagnostic.h"
#include "support/half.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace kvopt::runtime {
using namespace ir;

namespace {

template <class T> void fillWith(const TensorView& view, int64_t value) {
  std::fill_n(view.as<T>(), view.elementCount(), static_cast<T>(value));
}

/// Fills integers of any width, bools, or floating-point numbers.
void fillNumber(const TensorView& view, int64_t value) {
  switch (view.element) {
  case ElementType::Float:
    return fillWith<float>(view, value);
  case ElementType::Double:
    return fillWith<double>(view, value);
  case ElementType::Float16:
    return fillWith<uint16_t>(view, floatToF16(static_cast<float>(value)));
  case ElementType::BFloat16:
    return fillWith<uint16_t>(view, floatToBf16(static_cast<float>(value)));
  default:
    break;
  }
  switch (bitWidth(view.element).value_or(64)) {
  case 8:
    return fillWith<uint8_t>(view, value);
  case 16:
    return fillWith<uint16_t>(view, value);
  case 32:
    return fillWith<uint32_t>(view, value);
  default:
    return fillWith<uint64_t>(view, value);
  }
}

/// Whether a number that is not negative fits in an element type.
bool holds(ElementType element, int64_t number) {
  const unsigned bits = bitWidth(element).value_or(64);
  return !isInteger(element) || bits >= 64 ||
         number < int64_t{1} << (isUnsigned(element) ? bits : bits - 1);
}

/// Whether the length is one number for the whole batch. Blocks are listed for each row.
bool isOfBatch(LengthFeed feed) {
  return isFlag(feed) || feed == LengthFeed::TotalLength || feed == LengthFeed::BlockTable;
}

bool isOfEachRow(LengthFeed feed) {
  return feed == LengthFeed::PastLengthPerBatch || feed == LengthFeed::TotalLengthPerBatch ||
         feed == LengthFeed::TotalLengthPerBatchMinusOne ||
         feed == LengthFeed::PastLengthPerBatchMinusOne;
}

/// Whether the tensor of a length has one element per batch row.
bool hasElementPerRow(const ManifestLength& length, int64_t batch) {
  llvm::Expected<Extents> shape = manifestExtents(length.shape, batch);
  if (!shape) {
    llvm::consumeError(shape.takeError());
    return false;
  }
  llvm::Expected<int64_t> count = checkedElementCount(*shape);
  if (!count) {
    llvm::consumeError(count.takeError());
    return false;
  }
  return *count == batch;
}

} // namespace

llvm::Error LengthInputs::resize(int64_t batch) {
  if (batch == madeFor)
    return llvm::Error::success();
  std::vector<Tensor> made;
  for (const ManifestLength& length : manifest.lengths) {
    if (length.feed == LengthFeed::BlockTable) {
      // Its size depends on the capacity, so it is created when it is filled.
      made.emplace_back();
      continue;
    }
    llvm::Expected<Extents> shape = manifestExtents(length.shape, batch);
    if (!shape)
      return shape.takeError();
    llvm::Expected<Tensor> tensor = Tensor::create(allocator, length.dtype, *shape);
    if (!tensor)
      return tensor.takeError();
    made.push_back(std::move(*tensor));
  }
  tensors = std::move(made);
  madeFor = batch;
  return llvm::Error::success();
}

bool LengthInputs::contain(llvm::StringRef input) const {
  return llvm::any_of(manifest.lengths,
                      [&](const ManifestLength& length) { return length.input == input; });
}

llvm::Error LengthInputs::fill(const CacheSet& caches, int64_t newTokens) {
  if (llvm::Error error = resize(caches.batch()))
    return error;
  for (size_t i = 0; i < tensors.size(); ++i)
    if (llvm::Error error = manifest.lengths[i].feed == LengthFeed::BlockTable
                                ? fillBlockTable(i, caches)
                                : fillNumbers(i, caches, newTokens))
      return error;
  return llvm::Error::success();
}

llvm::Error LengthInputs::fillNumbers(size_t index, const CacheSet& caches, int64_t newTokens) {
  const ManifestLength& length = manifest.lengths[index];
  const TensorView& view = tensors[index].view;
  auto valueOf = [&](int64_t past) { return fedLength(length.feed, past, newTokens).value_or(0); };
  const int64_t longest = valueOf(caches.length());
  if (!holds(length.dtype, longest))
    return unsupported("length '{}' does not hold {}", length.input, longest);
  fillNumber(view, longest);
  if (isOfBatch(length.feed) || !caches.isRagged())
    return llvm::Error::success();
  const llvm::ArrayRef<int64_t> lengths = caches.lengths();
  for (size_t row = 0; row < lengths.size(); ++row)
    fillNumber(sliceAxis(view, 0, static_cast<int64_t>(row), static_cast<int64_t>(row) + 1),
               valueOf(lengths[row]));
  return llvm::Error::success();
}

/// Row b of the batch has the b-th range of blocks: pools are used like other buffers.
llvm::Error LengthInputs::fillBlockTable(size_t index, const CacheSet& caches) {
  const ManifestLength& length = manifest.lengths[index];
  const Extents shape{caches.batch(), caches.room() / manifest.blockSize};
  Tensor& table = tensors[index];
  if (table.view.shape == shape && table.view.data)
    return llvm::Error::success();
  llvm::Expected<Tensor> made = Tensor::create(allocator, length.dtype, shape);
  if (!made)
    return made.takeError();
  const int64_t blocks = made->view.elementCount();
  const bool isNarrow = length.dtype == ElementType::Int32;
  if (isNarrow && blocks > INT32_MAX)
    return unsupported("block table '{}' does not hold {} blocks", length.input, blocks);
  for (int64_t block = 0; block < blocks; ++block)
    if (isNarrow)
      made->view.as<int32_t>()[block] = static_cast<int32_t>(block);
    else
      made->view.as<int64_t>()[block] = block;
  table = std::move(*made);
  return llvm::Error::success();
}

std::string lengthPerRowObstacle(const Manifest& manifest, const CacheSet& caches) {
  if (const CacheGeometry* even = caches.evenOnly())
    return formatted("the rows of cache '{}' are of one length", even->name);
  bool isTold = false;
  for (const ManifestLength& length : manifest.lengths) {
    if (isOfBatch(length.feed))
      continue;
    if (!isOfEachRow(length.feed) || !hasElementPerRow(length, caches.batch()))
      return formatted("input '{}' is one length for all rows", length.input);
    isTold = true;
  }
  return isTold ? "" : "no input of the manifest is the length of each row";
}

} // namespace kvopt::runtime
