// The element types of ONNX tensors, under their published numbers.
#pragma once

#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <optional>

namespace kvopt::ir {

/// `TensorProto.DataType`. A number this list does not name (a dtype newer than kvopt) is carried
/// through import and export unchanged; `bitWidth` is then unknown.
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

/// Bits of one element as packed in `raw_data`; nullopt for strings and types kvopt does not know.
std::optional<unsigned> bitWidth(ElementType type);

/// Bytes of one element, for types of whole bytes.
std::optional<unsigned> byteWidth(ElementType type);

/// The name in ONNX's textual syntax: `float`, `int64`, `bfloat16`. "undefined" when unknown.
llvm::StringRef onnxName(ElementType type);

/// The inverse of `onnxName`.
std::optional<ElementType> elementTypeFromOnnxName(llvm::StringRef name);

/// The name used in manifests and reports: `float32`, `int64`, `bfloat16`.
llvm::StringRef dtypeName(ElementType type);
std::optional<ElementType> elementTypeFromDtypeName(llvm::StringRef name);

bool isFloatingPoint(ElementType type);
bool isInteger(ElementType type);

} // namespace kvopt::ir
