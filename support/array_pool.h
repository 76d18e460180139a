// ArrayPool: memory for many small arrays of one type, close together.
#pragma once

#include "llvm/Support/Allocator.h"
#include "llvm/Support/ArrayRecycler.h"

namespace kvopt {

/// What goes through all nodes of a graph, or through all their results, waits for memory; less so
/// where they lie side by side. Constructs and destroys nothing.
template <class T> class ArrayPool {
public:
  ArrayPool() = default;
  ArrayPool(const ArrayPool&) = delete;
  ArrayPool& operator=(const ArrayPool&) = delete;
  ~ArrayPool() { freed.clear(slabs); }

  /// Room for `count` elements; never null. Lives as long as the pool unless it is given back.
  T* allocate(size_t count) { return freed.allocate(Capacity::get(count), slabs); }
  /// Gives back what `allocate` gave for the same `count`.
  void deallocate(T* elements, size_t count) { freed.deallocate(Capacity::get(count), elements); }

private:
  using Capacity = typename llvm::ArrayRecycler<T>::Capacity;
  static constexpr size_t slabBytes = 1 << 16;

  llvm::BumpPtrAllocatorImpl<llvm::MallocAllocator, slabBytes, slabBytes> slabs;
  llvm::ArrayRecycler<T> freed;
};

} // namespace kvopt
