// ai.kvopt's operators with the element types for which the library computes them.
#pragma once

#include "engines/onnxruntime/operation.h"

#include <span>

namespace kvopt::onnxruntime {

inline constexpr const char* kvoptDomain = "ai.kvopt";

inline constexpr ElementType f32 = ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
inline constexpr ElementType f16 = ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16;
inline constexpr ElementType bf16 = ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16;
inline constexpr ElementType int8 = ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8;
inline constexpr ElementType uint8 = ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8;
inline constexpr ElementType int64 = ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64;
/// Any element type; the operation checks it.
inline constexpr ElementType anyType = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;

/// An operand or result in one combination of element types.
struct TypedFormal {
  enum class Count { one, optional, any };
  ElementType type;
  Count count = Count::one;
};

/// A combination of element types of an operator.
struct OperatorTypes {
  std::vector<TypedFormal> inputs;
  std::vector<TypedFormal> outputs;
};

struct KvoptOperator {
  const char* name; ///< without the domain
  Offer (*offer)(const NodeDescription& node);
  std::vector<OperatorTypes> types;
};

/// All operators of the domain.
std::span<const KvoptOperator> kvoptOperators();

/// Element types of a query, and of keys and values that are numbers.
struct NumberTypes {
  ElementType query;
  ElementType rows;
};
inline constexpr NumberTypes numberTypes[] = {
    {f32, f32}, {f16, f16},  {bf16, bf16}, {f32, f16},  {f32, bf16},
    {f16, f32}, {bf16, f32}, {f32, int8},  {f16, int8}, {bf16, int8},
};
/// The same without int8.
inline constexpr std::span<const NumberTypes> floatTypes = std::span(numberTypes).first(7);
/// Element types of queries.
inline constexpr ElementType queryTypes[] = {f32, f16, bf16};

} // namespace kvopt::onnxruntime
