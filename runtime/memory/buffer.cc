// Allocation of buffers and tensors, and copies between views.
#include "runtime/memory/buffer.h"

#include "runtime/memory/narrow_codes.h"
#include "runtime/memory/page_memory.h"
#include "support/diagnostic.h"
#include "support/memory_error.h"

#include <cstdlib>
#include <cstring>

namespace kvopt::runtime {
using namespace ir;

std::byte* Allocator::allocate(size_t bytes) {
  assert(bytes > 0);
  return counted(obtain(bytes), bytes);
}

std::byte* Allocator::allocatePages(size_t bytes) {
  assert(bytes > 0);
  return counted(obtainPages(bytes), bytes);
}

std::byte* Allocator::counted(std::byte* data, size_t bytes) {
  if (!data)
    return nullptr;
  count.fetch_add(1, std::memory_order_relaxed);
  size_t now = live.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  size_t seen = peak.load(std::memory_order_relaxed);
  while (seen < now && !peak.compare_exchange_weak(seen, now, std::memory_order_relaxed)) {
  }
  return data;
}

void Allocator::release(std::byte* data, size_t bytes) {
  live.fetch_sub(bytes, std::memory_order_relaxed);
  giveBack(data);
}

void Allocator::releasePages(std::byte* data, size_t bytes, bool moved) {
  live.fetch_sub(bytes, std::memory_order_relaxed);
  if (moved)
    forgetMovedPages(data, bytes);
  else
    unmapPages(data, bytes);
}

std::byte* Allocator::obtain(size_t bytes) {
  size_t rounded = 0;
  if (__builtin_add_overflow(bytes, bufferAlignment - 1, &rounded))
    return nullptr;
  rounded &= ~(bufferAlignment - 1);
  return static_cast<std::byte*>(std::aligned_alloc(bufferAlignment, rounded));
}

void Allocator::giveBack(std::byte* data) { std::free(data); }

std::byte* Allocator::obtainPages(size_t bytes) { return mapPages(bytes); }

bool FailingAllocator::refuses() {
  if (requests.fetch_add(1) != failing)
    return false;
  failed = true;
  return true;
}

std::byte* FailingAllocator::obtain(size_t bytes) {
  return refuses() ? nullptr : Allocator::obtain(bytes);
}

std::byte* FailingAllocator::obtainPages(size_t bytes) {
  return refuses() ? nullptr : Allocator::obtainPages(bytes);
}

namespace {

alignas(bufferAlignment) constexpr std::byte emptyStorage[bufferAlignment] = {};

/// Address of views without elements; never written.
std::byte* nothing() { return const_cast<std::byte*>(emptyStorage); } // NOLINT

} // namespace

llvm::Expected<int64_t> checkedTensorBytes(ElementType element, llvm::ArrayRef<int64_t> shape) {
  std::optional<unsigned> width = memoryWidth(element);
  if (!width)
    return unsupported("tensors of element type {} have no form in memory", onnxName(element));
  llvm::Expected<int64_t> count = checkedElementCount(shape);
  if (!count)
    return count.takeError();
  int64_t bytes = 0;
  if (__builtin_mul_overflow(*count, int64_t{*width}, &bytes))
    return invalid("a tensor of {} elements is too large", *count);
  return bytes;
}

llvm::Expected<std::shared_ptr<Buffer>> Buffer::create(std::shared_ptr<Allocator> allocator,
                                                       size_t bytes) {
  assert(allocator);
  std::byte* data = bytes == 0 ? nothing() : allocator->allocate(bytes);
  return of(std::move(allocator), data, bytes, /*isPaged=*/false);
}

llvm::Expected<std::shared_ptr<Buffer>> Buffer::zeros(std::shared_ptr<Allocator> allocator,
                                                      size_t bytes) {
  assert(allocator);
  if (bytes >= leastPagedBytes) {
    std::byte* pages = allocator->allocatePages(bytes);
    return of(std::move(allocator), pages, bytes, /*isPaged=*/true);
  }
  auto buffer = create(std::move(allocator), bytes);
  if (buffer)
    std::memset((*buffer)->data(), 0, bytes);
  return buffer;
}

llvm::Expected<std::shared_ptr<Buffer>> Buffer::of(std::shared_ptr<Allocator> allocator,
                                                   std::byte* data, size_t bytes, bool isPaged) {
  if (!data)
    return ioError("cannot allocate {} bytes", bytes).as<MemoryError>();
  return std::shared_ptr<Buffer>(new Buffer(std::move(allocator), data, bytes, isPaged));
}

Buffer::~Buffer() {
  if (paged)
    source->releasePages(address, byteCount, moved);
  else if (byteCount != 0)
    source->release(address, byteCount);
}

bool Buffer::movePagesTo(Buffer& target, size_t count) {
  assert(!moved && count > 0 && byteCount % count == 0 && target.byteCount % count == 0);
  PageRuns runs{address, target.address, count, byteCount / count, target.byteCount / count};
  if (!paged || !target.paged || !runs.isPaged())
    return false;
  movePages(runs);
  moved = true;
  return true;
}

namespace {

llvm::Expected<Tensor> contiguousIn(llvm::Expected<std::shared_ptr<Buffer>> buffer,
                                    ElementType element, llvm::ArrayRef<int64_t> shape) {
  if (!buffer)
    return buffer.takeError();
  return Tensor{*buffer, TensorView::contiguous(element, shape, (*buffer)->data())};
}

} // namespace

llvm::Expected<Tensor> Tensor::create(const std::shared_ptr<Allocator>& allocator,
                                      ElementType element, llvm::ArrayRef<int64_t> shape) {
  llvm::Expected<int64_t> bytes = checkedTensorBytes(element, shape);
  if (!bytes)
    return bytes.takeError();
  return contiguousIn(Buffer::create(allocator, static_cast<size_t>(*bytes)), element, shape);
}

llvm::Expected<Tensor> Tensor::zeros(const std::shared_ptr<Allocator>& allocator,
                                     ElementType element, llvm::ArrayRef<int64_t> shape) {
  llvm::Expected<int64_t> bytes = checkedTensorBytes(element, shape);
  if (!bytes)
    return bytes.takeError();
  return contiguousIn(Buffer::zeros(allocator, static_cast<size_t>(*bytes)), element, shape);
}

bool Tensor::movePagesTo(Tensor& target, size_t count) {
  const auto bufferOf = [](const Tensor& tensor) {
    return static_cast<Buffer*>(const_cast<void*>(tensor.owner.get())); // NOLINT
  };
  assert(owner && target.owner && view.data == bufferOf(*this)->data());
  return owner.use_count() == 1 && bufferOf(*this)->movePagesTo(*bufferOf(target), count);
}

namespace {

/// A tensor with one byte for each element of a constant whose elements have 2 or 4 bits.
llvm::Expected<Tensor> unpacked(const std::shared_ptr<Allocator>& allocator,
                                const TensorData& constant) {
  llvm::Expected<Tensor> tensor =
      Tensor::create(allocator, constant.elementType(), constant.shape());
  if (!tensor)
    return tensor;
  llvm::Expected<std::span<const std::byte>> bytes = constant.bytes();
  if (!bytes)
    return bytes.takeError();
  const unsigned bits = *bitWidth(constant.elementType());
  const unsigned perByte = 8 / bits;
  const int64_t count = constant.elementCount();
  if (static_cast<int64_t>(bytes->size()) != count / perByte + (count % perByte != 0))
    return invalid("a constant of {} elements has {} bytes of data", count, bytes->size());
  const std::optional<SmallRange> range = smallRangeOf(constant.elementType());
  auto* out = tensor->view.as<int8_t>();
  for (int64_t i = 0; i < count; ++i) {
    const auto packed = std::to_integer<unsigned>((*bytes)[static_cast<size_t>(i / perByte)]);
    const auto code = static_cast<int64_t>((packed >> (i % perByte * bits)) & ((1u << bits) - 1));
    out[i] = range ? wrappedInto(*range, code) : static_cast<int8_t>(code);
  }
  return tensor;
}

} // namespace

std::vector<std::byte> packedBytes(const TensorView& view) {
  assert(view.isContiguous());
  const unsigned bits = *bitWidth(view.element);
  if (bits >= 8)
    return {view.data, view.data + view.byteSize()};
  const unsigned perByte = 8 / bits;
  const int64_t count = view.elementCount();
  std::vector<std::byte> packed(static_cast<size_t>(count / perByte + (count % perByte != 0)));
  for (int64_t i = 0; i < count; ++i) {
    const unsigned code = view.as<uint8_t>()[i] & ((1u << bits) - 1);
    packed[static_cast<size_t>(i / perByte)] |=
        static_cast<std::byte>(code << (i % perByte * bits));
  }
  return packed;
}

llvm::Expected<Tensor> Tensor::of(const std::shared_ptr<Allocator>& allocator,
                                  const TensorRef& constant) {
  assert(constant);
  if (bitWidth(constant->elementType()).value_or(8) < 8)
    return unpacked(allocator, *constant);
  llvm::Expected<int64_t> size = checkedTensorBytes(constant->elementType(), constant->shape());
  if (!size)
    return size.takeError();
  llvm::Expected<std::span<const std::byte>> bytes = constant->bytes();
  if (!bytes)
    return bytes.takeError();
  if (static_cast<int64_t>(bytes->size()) != *size)
    return invalid("a constant of {} bytes has {} bytes of data", *size, bytes->size());
  unsigned width = *byteWidth(constant->elementType());
  if (reinterpret_cast<uintptr_t>(bytes->data()) % width != 0)
    return ofBytes(allocator, constant->elementType(), constant->shape(), *bytes);
  // Views are not const, but a constant's view is never written.
  std::byte* data = bytes->empty() ? nothing() : const_cast<std::byte*>(bytes->data()); // NOLINT
  return Tensor{constant, TensorView::contiguous(constant->elementType(), constant->shape(), data)};
}

llvm::Expected<Tensor> Tensor::copyOf(const std::shared_ptr<Allocator>& allocator,
                                      const TensorView& view) {
  llvm::Expected<Tensor> copy = create(allocator, view.element, view.shape);
  if (copy)
    copyElements(view, copy->view);
  return copy;
}

llvm::Expected<Tensor> Tensor::ofBytes(const std::shared_ptr<Allocator>& allocator,
                                       ElementType element, llvm::ArrayRef<int64_t> shape,
                                       std::span<const std::byte> bytes) {
  llvm::Expected<Tensor> tensor = create(allocator, element, shape);
  if (!tensor)
    return tensor;
  if (static_cast<size_t>(tensor->view.byteSize()) != bytes.size())
    return invalid("a tensor of {} bytes cannot be made of {} bytes", tensor->view.byteSize(),
                   bytes.size());
  if (!bytes.empty())
    std::memcpy(tensor->view.data, bytes.data(), bytes.size());
  return tensor;
}

void copyElements(const TensorView& from, const TensorView& to) {
  assert(from.element == to.element && from.shape == to.shape);
  int64_t count = from.elementCount();
  if (count == 0)
    return;
  int64_t width = *memoryWidth(from.element);
  // The longest sequence of trailing axes that is contiguous on both sides is copied in one piece.
  unsigned outer = from.rank();
  int64_t run = 1;
  while (outer > 0 && (from.shape[outer - 1] == 1 ||
                       (from.strides[outer - 1] == run && to.strides[outer - 1] == run)))
    run *= from.shape[--outer];
  Extents index(outer, 0);
  int64_t source = 0;
  int64_t target = 0;
  for (int64_t done = 0; done < count; done += run) {
    std::memcpy(to.data + target * width, from.data + source * width,
                static_cast<size_t>(run * width));
    for (unsigned axis = outer; axis-- > 0;) {
      source += from.strides[axis];
      target += to.strides[axis];
      if (++index[axis] < from.shape[axis])
        break;
      source -= from.strides[axis] * from.shape[axis];
      target -= to.strides[axis] * from.shape[axis];
      index[axis] = 0;
    }
  }
}

TensorView sliceAxis(const TensorView& view, unsigned axis, int64_t begin, int64_t end) {
  assert(axis < view.rank() && 0 <= begin && begin <= end && end <= view.shape[axis]);
  TensorView part = view;
  part.shape[axis] = end - begin;
  if (begin < end)
    part.data += begin * view.strides[axis] * int64_t{*memoryWidth(view.element)};
  return part;
}

} // namespace kvopt::runtime
