// Element types of ONNX tensors, with their published numbers.
#pragma once

#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <optional>

namespace kvopt::ir {

/// `TensorProto.DataType`. A number that is not in this list (a type newer than kvopt) survives
/// import and export; its `bitWidth` is unknown.
enum class ElementType : int32_t {
  Undefined = 0,
  Float = 1,
  UInt8 = 2,
  Int8 = 3,
  UInt16 = 4,
  Int16 = 5,
  Int32 = 6,
  Int64 = 7,
  String = 8,
  Bool = 9,
  Float16 = 10,
  Double = 11,
  UInt32 = 12,
  UInt64 = 13,
  Complex64 = 14,
  Complex128 = 15,
  BFloat16 = 16,
  Float8E4M3FN = 17,
  Float8E4M3FNUZ = 18,
  Float8E5M2 = 19,
  Float8E5M2FNUZ = 20,
  UInt4 = 21,
  Int4 = 22,
  Float4E2M1 = 23,
};

/// Number of bits of an element in `raw_data`; nullopt for strings and unknown types.
std::optional<unsigned> bitWidth(ElementType type);

/// Number of bytes of an element; nullopt if its size is not a whole number of bytes.
std::optional<unsigned> byteWidth(ElementType type);

/// Name in ONNX's textual syntax: `float`, `int64`, `bfloat16`. "undefined" for unknown types.
llvm::StringRef onnxName(ElementType type);

/// The inverse of `onnxName`.
std::optional<ElementType> elementTypeFromOnnxName(llvm::StringRef name);

/// Name in manifests and reports: `float32`, `int64`, `bfloat16`.
llvm::StringRef dtypeName(ElementType type);
std::optional<ElementType> elementTypeFromDtypeName(llvm::StringRef name);

bool isFloatingPoint(ElementType type);
bool isInteger(ElementType type);
/// Whether it is an integer type without negative numbers.
bool isUnsigned(ElementType type);

} // namespace kvopt::ir
