// TensorView: a tensor in memory, used throughout the runtime.
#pragma once

#include "ir/element_type.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace kvopt::runtime {

using Extents = llvm::SmallVector<int64_t, 6>;

/// Row-major strides, in elements, of a contiguous tensor.
Extents contiguousStrides(llvm::ArrayRef<int64_t> shape);

/// Size of one element in memory, in bytes. Types of 2 and 4 bits use one byte per element:
/// integers as int8 or uint8 with their value, float4e2m1 as its code. nullopt for strings and
/// unknown types.
std::optional<unsigned> memoryWidth(ir::ElementType type);

/// A non-owning view: element type, extents, strides in elements, address of the first element.
/// Extents are >= 0 and their product fits into int64_t; strides are >= 0 (0 repeats). Only types
/// with a memoryWidth have views.
struct TensorView {
  ir::ElementType element = ir::ElementType::Undefined;
  Extents shape;
  Extents strides;
  std::byte* data = nullptr;

  static TensorView contiguous(ir::ElementType element, llvm::ArrayRef<int64_t> shape,
                               std::byte* data);

  unsigned rank() const { return shape.size(); }
  int64_t elementCount() const;
  /// Size of the elements in bytes, as if contiguous.
  int64_t byteSize() const;
  bool isContiguous() const;

  /// Address of the first element as `T*`; asserts the size of T.
  template <typename T> T* as() const {
    assert(memoryWidth(element) == sizeof(T));
    return reinterpret_cast<T*>(data);
  }
};

} // namespace kvopt::runtime
