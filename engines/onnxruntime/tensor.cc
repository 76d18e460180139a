// Facts about element types, and views of heads.
#include "engines/onnxruntime/tensor.h"

#include "runtime/simd/elementwise.h"

#include <cstring>

namespace kvopt::onnxruntime {

int64_t elementBytes(ElementType type) {
  switch (type) {
  case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT:
  case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32:
    return 4;
  case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16:
  case ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16:
    return 2;
  case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64:
  case ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE:
    return 8;
  case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8:
  case ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8:
  case ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL:
    return 1;
  default:
    return 0;
  }
}

const char* elementName(ElementType type) {
  switch (type) {
  case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT:
    return "float";
  case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16:
    return "float16";
  case ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16:
    return "bfloat16";
  case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32:
    return "int32";
  case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64:
    return "int64";
  case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8:
    return "int8";
  case ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8:
    return "uint8";
  case ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL:
    return "bool";
  case ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE:
    return "double";
  default:
    return "another type";
  }
}

std::optional<simd::FloatStorage> storageOf(ElementType type) {
  switch (type) {
  case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT:
    return simd::FloatStorage::f32;
  case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16:
    return simd::FloatStorage::f16;
  case ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16:
    return simd::FloatStorage::bf16;
  default:
    return std::nullopt;
  }
}

void loadNumbers(const std::byte* from, simd::FloatStorage storage, int64_t count, float* to) {
  const auto size = static_cast<size_t>(count);
  const auto* bits = reinterpret_cast<const uint16_t*>(from);
  if (storage == simd::FloatStorage::f16)
    return simd::convertF16ToF32(bits, to, size);
  if (storage == simd::FloatStorage::bf16)
    return simd::convertBf16ToF32(bits, to, size);
  if (size != 0 && static_cast<const void*>(from) != to)
    std::memcpy(to, from, size * sizeof(float));
}

void storeNumbers(const float* from, simd::FloatStorage storage, int64_t count, std::byte* to) {
  const auto size = static_cast<size_t>(count);
  auto* bits = reinterpret_cast<uint16_t*>(to);
  if (storage == simd::FloatStorage::f16)
    return simd::convertF32ToF16(from, bits, size);
  if (storage == simd::FloatStorage::bf16)
    return simd::convertF32ToBf16(from, bits, size);
  if (size != 0 && static_cast<const void*>(from) != to)
    std::memcpy(to, from, size * sizeof(float));
}

std::string textOf(const Shape& shape) {
  std::string text = "[";
  for (size_t axis = 0; axis < shape.size(); ++axis)
    text += (axis == 0 ? "" : ",") + std::to_string(shape[axis]);
  return text + "]";
}

int64_t Tensor::count() const {
  int64_t product = 1;
  for (const int64_t extent : shape)
    product *= extent;
  return product;
}

HeadRows rowsOf(const Tensor& tensor) {
  const Shape& shape = tensor.shape;
  const int64_t head = shape[2] * shape[3];
  return {tensor.data,
          tensor.type,
          shape[0],
          shape[1],
          shape[2],
          shape[3],
          {shape[1] * head, head, shape[3]}};
}

HeadRows rowsOfHeads(const Tensor& tensor, int64_t all, int64_t first, int64_t heads) {
  const Shape& shape = tensor.shape;
  const int64_t width = shape[2] / all;
  return {tensor.data + first * width * elementBytes(tensor.type),
          tensor.type,
          shape[0],
          heads,
          shape[1],
          width,
          {shape[1] * shape[2], width, shape[2]}};
}

} // namespace kvopt::onnxruntime
