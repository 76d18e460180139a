// RowCode: a format for rows of a cache as codes, with a float scale for each row.
//
// A RowCode contains everything that distinguishes one format from another: the storage of codes,
// and how function bodies and the runtime write and read them. To add one, write a file that
// defines it and list it in ir/rows/row_codes.cc.
#pragma once

#include "ir/element_type.h"

#include "llvm/ADT/ArrayRef.h"

#include <cstddef>

namespace kvopt::ir {

/// A row x of numbers is stored as codes q and a float scale s = max_d |x[d]| / `largest`. The
/// scale is 0 for a row of tiny numbers, and NaN for a row with a NaN or an infinity. Decoded codes
/// are multiplied by s.
struct RowCode {
  /// Value of `--rows`: "int8".
  const char* word;
  /// Name of the rows in sentences: "int8 rows".
  const char* rows;
  /// Element type of stored codes. It identifies the codes of a cache: all listed formats have
  /// different types.
  ElementType element;
  /// Largest number that a code represents before scaling.
  float largest;
  /// Minimum opset of ONNX's own domain with the operators of the body.
  int64_t opset;
  /// Number of elements of a stored row of `columns` numbers; null if it equals `columns`.
  int64_t (*elements)(int64_t columns);

  // Function bodies: texts of nodes, in which {0} is the name of a side, such as `key`. Codes are
  // processed as floats, which must represent them exactly.

  /// Constants: largest_product, which is `largest`, and those that the other texts need.
  const char* constantsText;
  /// Divides columns, from {0}_width; empty if they are not divided.
  const char* columnsText;
  /// Computes {0}_code_new from {0}_numbers, in which 0 replaces NaN and infinity, {0}_divisor,
  /// which is the scale or 1, and {0}_row_has_no_number.
  const char* writtenText;
  /// Computes the rows {0}s from {0}_codes and {0}_scales.
  const char* readText;

  // Rows with contiguous columns. Null for codes with kernels in the runtime
  // (runtime/memory/coded_row.h), which attention reads directly. Other codes are decoded first.

  /// Writes the codes of a row of numbers, and returns the scale.
  float (*encode)(const float* row, int64_t columns, std::byte* codes);
  /// Writes the numbers that codes represent before scaling.
  void (*decode)(const std::byte* codes, int64_t columns, float* numbers);

  int64_t elementsOf(int64_t columns) const { return elements ? elements(columns) : columns; }
  /// Whether an element holds several numbers; then columns must be contiguous.
  bool isPacked() const { return elements != nullptr; }
  bool hasKernels() const { return !encode; }
};

extern const RowCode int8Rows;
extern const RowCode fourBitRows;

/// All codes. A program with additional codes defines this function itself and links its own list
/// instead of the one in ir/rows/row_codes.cc.
llvm::ArrayRef<const RowCode*> rowCodes();

/// The code that is stored with this element type; null if there is none.
inline const RowCode* rowCodeOf(ElementType element) {
  for (const RowCode* code : rowCodes())
    if (code->element == element)
      return code;
  return nullptr;
}

} // namespace kvopt::ir
