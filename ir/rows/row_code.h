// RowCode: a way to keep the rows of a cache as codes, with a float scale for each row.
//
// All that tells one way from another is in a RowCode: what codes are stored as, how function
// bodies write and read them, and how the runtime does. To add one, write a file that defines it
// and list it in ir/rows/row_codes.cc.
#pragma once

#include "ir/element_type.h"

#include "llvm/ADT/ArrayRef.h"

#include <cstddef>

namespace kvopt::ir {

/// A row x of numbers is kept as codes q and a float scale s = max_d |x[d]| / `largest`, which is 0
/// for a row that is so small, and NaN for one with a NaN or an infinity. What codes stand for is
/// multiplied by s.
struct RowCode {
  /// As after `--rows`: "int8".
  const char* word;
  /// What rows are called in sentences: "int8 rows".
  const char* rows;
  /// What codes are stored as. It tells the codes of a cache from others: no two that are listed
  /// have the same.
  ElementType element;
  /// The largest number that codes stand for before they are multiplied.
  float largest;
  /// The opset of ONNX's own domain that has the operators of the body.
  int64_t opset;
  /// Elements of a stored row that stands for `columns` numbers; null where they are as many.
  int64_t (*elements)(int64_t columns);

  // Function bodies: texts of nodes, in which {0} is the name of a side, as in `key`. Codes are
  // handled as floats, which must hold them exactly.

  /// Constants, with largest_product, which is `largest`, and what the others need.
  const char* constantsText;
  /// How columns are divided, from {0}_width; empty where they are not.
  const char* columnsText;
  /// {0}_code_new from {0}_numbers, in which zero stands for what is no number, {0}_divisor, which
  /// is the scale or 1, and {0}_row_has_no_number.
  const char* writtenText;
  /// The rows {0}s from {0}_codes and {0}_scales.
  const char* readText;

  // Rows, whose columns are side by side. Null for codes that the runtime has kernels for
  // (runtime/memory/coded_row.h): then attention reads them as they lie. It decodes others first.

  /// Writes the codes of a row of numbers, and returns the scale.
  float (*encode)(const float* row, int64_t columns, std::byte* codes);
  /// What codes stand for before they are multiplied by the scale.
  void (*decode)(const std::byte* codes, int64_t columns, float* numbers);

  int64_t elementsOf(int64_t columns) const { return elements ? elements(columns) : columns; }
  /// Whether an element stands for several numbers: then columns must be side by side.
  bool isPacked() const { return elements != nullptr; }
  bool hasKernels() const { return !encode; }
};

extern const RowCode int8Rows;
extern const RowCode fourBitRows;

/// All codes that there are. A program that has others defines this function itself, and is linked
/// with its own list in the place of that in ir/rows/row_codes.cc.
llvm::ArrayRef<const RowCode*> rowCodes();

/// The codes that are stored as that; null for none.
inline const RowCode* rowCodeOf(ElementType element) {
  for (const RowCode* code : rowCodes())
    if (code->element == element)
      return code;
  return nullptr;
}

} // namespace kvopt::ir
