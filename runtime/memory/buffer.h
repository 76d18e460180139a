// Owned memory: allocators that count, buffers, and tensors that keep their storage alive.
#pragma once

#include "ir/tensor.h"
#include "runtime/memory/tensor_view.h"

#include "llvm/Support/Error.h"

#include <atomic>
#include <memory>
#include <span>

namespace kvopt::runtime {

/// Every buffer starts at a multiple of this many bytes.
inline constexpr size_t bufferAlignment = 64;

/// Zeros of at least this many bytes are pages that the kernel finds when they are first written.
/// For fewer, to keep what the heap has used before is cheaper than to find pages anew.
inline constexpr size_t leastPagedBytes = size_t{1} << 20;

/// Where buffers come from. The counters may be read and memory requested from several threads.
class Allocator {
public:
  Allocator() = default;
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;
  virtual ~Allocator() = default;

  /// `bytes` > 0 uninitialized bytes at a multiple of `bufferAlignment`; null when there are none.
  std::byte* allocate(size_t bytes);
  void release(std::byte* data, size_t bytes);
  /// The same of zeros in memory of their own (page_memory.h), which starts with a page.
  std::byte* allocatePages(size_t bytes);
  /// `moved`: what was in them is elsewhere, and so are they.
  void releasePages(std::byte* data, size_t bytes, bool moved);

  /// Bytes in use, the most that ever were, and how many allocations succeeded.
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

/// Refuses one allocation, the `failingIndex`-th (from 0), and serves all others. For tests of what
/// happens when memory is short.
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

/// A block of memory that is given back when the last reference goes. Zero bytes are fine.
class Buffer {
public:
  /// Uninitialized memory; an error that names the size when there is none. Keeps the allocator
  /// alive.
  static llvm::Expected<std::shared_ptr<Buffer>> create(std::shared_ptr<Allocator> allocator,
                                                        size_t bytes);
  /// Zeros; from `leastPagedBytes` on, pages that nothing has touched.
  static llvm::Expected<std::shared_ptr<Buffer>> zeros(std::shared_ptr<Allocator> allocator,
                                                       size_t bytes);
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  /// Makes each of `count` equal parts the beginning of the same part of `target`, which must be as
  /// `zeros` made it and at least as large, by moving pages instead of bytes. False, and nothing
  /// has changed, where parts are no whole pages. Cannot fail otherwise; then this buffer has
  /// nothing left, and whoever reads it reads somebody else's memory.
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

/// A view with what keeps its memory alive. An empty owner means that the memory is the caller's
/// own (a buffer it offered for writing).
struct Tensor {
  std::shared_ptr<const void> owner;
  TensorView view;

  /// Uninitialized and contiguous. Fails for element types without whole bytes, negative extents,
  /// sizes that overflow, and when memory is short.
  static llvm::Expected<Tensor> create(const std::shared_ptr<Allocator>& allocator,
                                       ir::ElementType element, llvm::ArrayRef<int64_t> shape);
  /// Contiguous, and zeros as `Buffer::zeros` makes them. Fails as `create` does.
  static llvm::Expected<Tensor> zeros(const std::shared_ptr<Allocator>& allocator,
                                      ir::ElementType element, llvm::ArrayRef<int64_t> shape);
  /// Hands the memory of this tensor to `target`, as Buffer::movePagesTo does. Requires that
  /// `zeros` or `create` made both and that `target` is zeros. False too, and nothing has changed,
  /// where somebody else keeps the memory alive.
  bool movePagesTo(Tensor& target, size_t count);
  /// The contents of a constant, which must not be written. Not copied when they are aligned to
  /// their element, unless that has less than a byte.
  static llvm::Expected<Tensor> of(const std::shared_ptr<Allocator>& allocator,
                                   const ir::TensorRef& constant);
  /// A contiguous copy of `view`.
  static llvm::Expected<Tensor> copyOf(const std::shared_ptr<Allocator>& allocator,
                                       const TensorView& view);
  /// A copy of elements of a trivially copyable type that is as wide as `element`.
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

/// Bytes of a contiguous tensor. Fails for element types without whole bytes, negative extents, and
/// sizes that overflow.
llvm::Expected<int64_t> checkedTensorBytes(ir::ElementType element, llvm::ArrayRef<int64_t> shape);

/// The elements of a contiguous view as ONNX's raw_data packs them: those of less than a byte
/// several to a byte, the first in the lowest bits.
std::vector<std::byte> packedBytes(const TensorView& view);

/// Copies elements between views of one element type and shape that do not overlap. The target may
/// be strided, but must not repeat elements.
void copyElements(const TensorView& from, const TensorView& to);

/// The part [begin, end) of an axis, as a view of the same memory.
TensorView sliceAxis(const TensorView& view, unsigned axis, int64_t begin, int64_t end);

} // namespace kvopt::runtime
