// One table with the properties of all element types.
#include "ir/element_type.h"

#include "ir/late_element_types.h"

#include "llvm/ADT/ArrayRef.h"

#include <iterator>

namespace kvopt::ir {
namespace {

enum class Family { Float, Signed, Unsigned, Other };

struct Row {
  ElementType type;
  const char* onnx;
  const char* dtype;
  unsigned bits; // 0 without a packed form
  Family family;
};

/// Sorted by the enumeration, which starts at 1.
constexpr Row rows[] = {
    {ElementType::Float, "float", "float32", 32, Family::Float},
    {ElementType::UInt8, "uint8", "uint8", 8, Family::Unsigned},
    {ElementType::Int8, "int8", "int8", 8, Family::Signed},
    {ElementType::UInt16, "uint16", "uint16", 16, Family::Unsigned},
    {ElementType::Int16, "int16", "int16", 16, Family::Signed},
    {ElementType::Int32, "int32", "int32", 32, Family::Signed},
    {ElementType::Int64, "int64", "int64", 64, Family::Signed},
    {ElementType::String, "string", "string", 0, Family::Other},
    {ElementType::Bool, "bool", "bool", 8, Family::Other},
    {ElementType::Float16, "float16", "float16", 16, Family::Float},
    {ElementType::Double, "double", "float64", 64, Family::Float},
    {ElementType::UInt32, "uint32", "uint32", 32, Family::Unsigned},
    {ElementType::UInt64, "uint64", "uint64", 64, Family::Unsigned},
    {ElementType::Complex64, "complex64", "complex64", 64, Family::Other},
    {ElementType::Complex128, "complex128", "complex128", 128, Family::Other},
    {ElementType::BFloat16, "bfloat16", "bfloat16", 16, Family::Float},
    {ElementType::Float8E4M3FN, "float8e4m3fn", "float8e4m3fn", 8, Family::Float},
    {ElementType::Float8E4M3FNUZ, "float8e4m3fnuz", "float8e4m3fnuz", 8, Family::Float},
    {ElementType::Float8E5M2, "float8e5m2", "float8e5m2", 8, Family::Float},
    {ElementType::Float8E5M2FNUZ, "float8e5m2fnuz", "float8e5m2fnuz", 8, Family::Float},
    {ElementType::UInt4, "uint4", "uint4", 4, Family::Unsigned},
    {ElementType::Int4, "int4", "int4", 4, Family::Signed},
    {ElementType::Float4E2M1, "float4e2m1", "float4e2m1", 4, Family::Float},
    {float8E8M0Type, "float8e8m0", "float8e8m0", 8, Family::Float},
    {uint2Type, "uint2", "uint2", 2, Family::Unsigned},
    {int2Type, "int2", "int2", 2, Family::Signed},
};

const Row* find(ElementType type) {
  auto index = static_cast<uint32_t>(type) - 1;
  return index < std::size(rows) ? &rows[index] : nullptr;
}

constexpr bool isInOrder() {
  for (size_t i = 0; i < std::size(rows); ++i)
    if (static_cast<size_t>(rows[i].type) != i + 1)
      return false;
  return true;
}
static_assert(isInOrder());

} // namespace

std::optional<unsigned> bitWidth(ElementType type) {
  const Row* row = find(type);
  if (!row || row->bits == 0)
    return std::nullopt;
  return row->bits;
}

std::optional<unsigned> byteWidth(ElementType type) {
  std::optional<unsigned> bits = bitWidth(type);
  if (!bits || *bits % 8 != 0)
    return std::nullopt;
  return *bits / 8;
}

llvm::StringRef onnxName(ElementType type) {
  const Row* row = find(type);
  return row ? row->onnx : "undefined";
}

llvm::StringRef dtypeName(ElementType type) {
  const Row* row = find(type);
  return row ? row->dtype : "undefined";
}

std::optional<ElementType> elementTypeFromOnnxName(llvm::StringRef name) {
  for (const Row& row : rows)
    if (name == row.onnx)
      return row.type;
  return std::nullopt;
}

std::optional<ElementType> elementTypeFromDtypeName(llvm::StringRef name) {
  for (const Row& row : rows)
    if (name == row.dtype)
      return row.type;
  return std::nullopt;
}

bool isFloatingPoint(ElementType type) {
  const Row* row = find(type);
  return row && row->family == Family::Float;
}

bool isInteger(ElementType type) {
  const Row* row = find(type);
  return row && (row->family == Family::Signed || row->family == Family::Unsigned);
}

bool isUnsigned(ElementType type) {
  const Row* row = find(type);
  return row && row->family == Family::Unsigned;
}

} // namespace kvopt::ir
