// Tensors of a call, and views of them as heads of rows.
#pragma once

#include "engines/onnxruntime/engine_api.h"
#include "runtime/simd/attention/attention.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace kvopt::onnxruntime {

using ElementType = ONNXTensorElementDataType;
using Shape = std::vector<int64_t>;

/// Size of an element in bytes; 0 for types that no operator of this library has.
int64_t elementBytes(ElementType type);
/// Name of the element type in ONNX Runtime's errors, for example "float16".
const char* elementName(ElementType type);
/// Storage of floating-point numbers of at most 32 bits; nullopt for other types.
std::optional<simd::FloatStorage> storageOf(ElementType type);
/// Converts `count` numbers to f32.
void loadNumbers(const std::byte* from, simd::FloatStorage storage, int64_t count, float* to);
/// Converts `count` numbers of f32, rounding once.
void storeNumbers(const float* from, simd::FloatStorage storage, int64_t count, std::byte* to);
/// A shape as text, for example "[1,8,0,64]".
std::string textOf(const Shape& shape);

/// A contiguous tensor.
struct Tensor {
  ElementType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  Shape shape;
  std::byte* data = nullptr;

  size_t rank() const { return shape.size(); }
  int64_t count() const;
  int64_t bytes() const { return count() * elementBytes(type); }
  template <class T> T* as() const { return reinterpret_cast<T*>(data); }
};

/// Rows [B,H,S,D] in memory. Rows are contiguous; strides are in elements.
struct HeadRows {
  std::byte* data = nullptr;
  ElementType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  int64_t batches = 0;
  int64_t heads = 0;
  int64_t rows = 0;
  int64_t width = 0;
  simd::RowStrides strides;

  int64_t rowBytes() const { return width * elementBytes(type); }
  int64_t count() const { return batches * heads * rows * width; }
  std::byte* row(int64_t batch, int64_t head, int64_t index) const {
    return data +
           elementBytes(type) * (batch * strides.batch + head * strides.head + index * strides.row);
  }
};

/// [B,H,S,D] of a tensor of this shape.
HeadRows rowsOf(const Tensor& tensor);
/// [B,heads,S,D] of a tensor [B,S,all * D], from head `first` on.
HeadRows rowsOfHeads(const Tensor& tensor, int64_t all, int64_t first, int64_t heads);

} // namespace kvopt::onnxruntime
