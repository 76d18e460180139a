// ArrayPool: memory for many small arrays of one type, close together.
#pragma once

#include "llvm/Support/Allocator.h"
#include "llvm/Support/ArrayRecycler.h"

namespace kvopt {

/// Memory pool for small arrays of one element type. Arrays are allocated next to each other, so
/// that a traversal of all nodes of a graph, or of all their results, misses the cache less often.
/// Constructs and destroys no elements.
template <class T> class ArrayPool {
public:
  ArrayPool() = default;
  ArrayPool(const ArrayPool&) = delete;
  ArrayPool& operator=(const ArrayPool&) = delete;
  ~ArrayPool() { freed.clear(slabs); }

  /// Uninitialized storage for `count` elements; never null. Valid until it is released or the pool
  /// is destroyed.
  T* allocate(size_t count) { return freed.allocate(Capacity::get(count), slabs); }
  /// Releases an array of `count` elements that `allocate` returned.
  void deallocate(T* elements, size_t count) { freed.deallocate(Capacity::get(count), elements); }

private:
  using Capacity = typename llvm::ArrayRecycler<T>::Capacity;
  static constexpr size_t slabBytes = 1 << 16;

  llvm::BumpPtrAllocatorImpl<llvm::MallocAllocator, slabBytes, slabBytes> slabs;
  llvm::ArrayRecycler<T> freed;
};

} // namespace kvopt
