// Owned memory: counting allocators, buffers, and tensors that keep their storage alive.
#pragma once

#include "ir/tensor.h"
#include "runtime/memory/tensor_view.h"

#include "llvm/Support/Error.h"

#include <atomic>
#include <memory>
#include <span>

namespace kvopt::runtime {

/// Alignment of every buffer in bytes.
inline constexpr size_t bufferAlignment = 64;

/// Minimum size in bytes of zeros that are lazily allocated pages. For smaller sizes, reusing heap
/// memory is cheaper than allocating pages.
inline constexpr size_t leastPagedBytes = size_t{1} << 20;

/// Source of buffers. Counters may be read and memory requested from several threads.
class Allocator {
public:
  Allocator() = default;
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;
  virtual ~Allocator() = default;

  /// `bytes` > 0 uninitialized bytes, aligned to `bufferAlignment`; null if memory is short.
  std::byte* allocate(size_t bytes);
  void release(std::byte* data, size_t bytes);
  /// The same with zeros in separate pages (page_memory.h), aligned to a page.
  std::byte* allocatePages(size_t bytes);
  /// Releases such pages. `moved`: the pages and their contents were moved to another address.
  void releasePages(std::byte* data, size_t bytes, bool moved);

  /// Number of bytes in use, its maximum so far, and number of successful allocations.
  size_t liveBytes() const { return live.load(std::memory_order_relaxed); }
  size_t peakBytes() const { return peak.load(std::memory_order_relaxed); }
  uint64_t allocations() const { return count.load(std::memory_order_relaxed); }

protected:
  virtual std::byte* obtain(size_t bytes);
  virtual void giveBack(std::byte* data);
  virtual std::byte* obtainPages(size_t bytes);

private:
  std::byte* counted(std::byte* data, size_t bytes);

  std::atomic<size_t> live{0};
  std::atomic<size_t> peak{0};
  std::atomic<uint64_t> count{0};
};

/// Fails the allocation with index `failingIndex` (from 0) and serves all others. For tests of
/// short memory.
class FailingAllocator : public Allocator {
public:
  explicit FailingAllocator(uint64_t failingIndex) : failing(failingIndex) {}
  bool hasFailed() const { return failed.load(); }

protected:
  std::byte* obtain(size_t bytes) override;
  std::byte* obtainPages(size_t bytes) override;

private:
  bool refuses();

  uint64_t failing;
  std::atomic<uint64_t> requests{0};
  std::atomic<bool> failed{false};
};

/// A block of memory, released with its last reference. Its size may be 0.
class Buffer {
public:
  /// Uninitialized memory; an error with the size if memory is short. Keeps the allocator alive.
  static llvm::Expected<std::shared_ptr<Buffer>> create(std::shared_ptr<Allocator> allocator,
                                                        size_t bytes);
  /// Zeros; from `leastPagedBytes` on, untouched pages.
  static llvm::Expected<std::shared_ptr<Buffer>> zeros(std::shared_ptr<Allocator> allocator,
                                                       size_t bytes);
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  /// Makes each of `count` equal parts the beginning of the corresponding part of `target`, which
  /// must be unchanged since `zeros` and at least as large, by moving pages instead of bytes.
  /// Returns false without any change if parts are not whole pages. Otherwise it always succeeds;
  /// then this buffer is empty, and reading it accesses memory of another owner.
  bool movePagesTo(Buffer& target, size_t count);

  /// Never null, even for zero bytes.
  std::byte* data() const { return address; }
  size_t size() const { return byteCount; }

private:
  Buffer(std::shared_ptr<Allocator> allocator, std::byte* data, size_t bytes, bool isPaged)
      : source(std::move(allocator)), address(data), byteCount(bytes), paged(isPaged) {}
  static llvm::Expected<std::shared_ptr<Buffer>> of(std::shared_ptr<Allocator> allocator,
                                                    std::byte* data, size_t bytes, bool isPaged);

  std::shared_ptr<Allocator> source;
  std::byte* address;
  size_t byteCount;
  bool paged;
  bool moved = false;
};

/// A view and the owner of its memory. An empty owner means that the memory belongs to the caller
/// (a buffer for writing).
struct Tensor {
  std::shared_ptr<const void> owner;
  TensorView view;

  /// Uninitialized and contiguous. Fails for element types without whole bytes, for negative
  /// extents, if the size overflows, and if memory is short.
  static llvm::Expected<Tensor> create(const std::shared_ptr<Allocator>& allocator,
                                       ir::ElementType element, llvm::ArrayRef<int64_t> shape);
  /// Contiguous zeros, allocated by `Buffer::zeros`. Fails like `create`.
  static llvm::Expected<Tensor> zeros(const std::shared_ptr<Allocator>& allocator,
                                      ir::ElementType element, llvm::ArrayRef<int64_t> shape);
  /// Moves the memory of this tensor to `target`; see Buffer::movePagesTo. Requires that `zeros` or
  /// `create` made both and that `target` is zero. Also returns false without any change if the
  /// memory has another owner.
  bool movePagesTo(Tensor& target, size_t count);
  /// Contents of a constant, which must not be written. Not copied if they are aligned to their
  /// element size, unless elements are smaller than a byte.
  static llvm::Expected<Tensor> of(const std::shared_ptr<Allocator>& allocator,
                                   const ir::TensorRef& constant);
  /// A contiguous copy of `view`.
  static llvm::Expected<Tensor> copyOf(const std::shared_ptr<Allocator>& allocator,
                                       const TensorView& view);
  /// A copy of elements of a trivially copyable type with the width of `element`.
  template <typename T>
  static llvm::Expected<Tensor> of(const std::shared_ptr<Allocator>& allocator,
                                   ir::ElementType element, llvm::ArrayRef<int64_t> shape,
                                   std::span<const T> elements) {
    assert(memoryWidth(element) == sizeof(T));
    return ofBytes(allocator, element, shape, std::as_bytes(elements));
  }
  static llvm::Expected<Tensor> ofBytes(const std::shared_ptr<Allocator>& allocator,
                                        ir::ElementType element, llvm::ArrayRef<int64_t> shape,
                                        std::span<const std::byte> bytes);
};

/// Size of a contiguous tensor in bytes. Fails for element types without whole bytes, for negative
/// extents, and if the size overflows.
llvm::Expected<int64_t> checkedTensorBytes(ir::ElementType element, llvm::ArrayRef<int64_t> shape);

/// Elements of a contiguous view, packed as in ONNX's raw_data: elements smaller than a byte share
/// bytes, with the first in the lowest bits.
std::vector<std::byte> packedBytes(const TensorView& view);

/// Copies elements between views with the same element type and shape that do not overlap. The
/// target may be strided, but must not repeat elements.
void copyElements(const TensorView& from, const TensorView& to);

/// The part [begin, end) of an axis, as a view of the same memory.
TensorView sliceAxis(const TensorView& view, unsigned axis, int64_t begin, int64_t end);

} // namespace kvopt::runtime
