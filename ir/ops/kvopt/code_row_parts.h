// Parts of function bodies that write and read rows of codes: texts of nodes, as in
// function_body_parts.h. A side is a prefix of names of values, such as `key`.
#pragma once

#include "ir/rows/row_code.h"

#include <string>

namespace kvopt::ir {

/// Division of columns. Requires `<side>_width`.
std::string codeColumnsText(const std::string& side, const RowCode& code);

/// Codes and scales of new rows, `<side>_code_new` and `<side>_scale_new`, from `<side>_new`, with
/// operators of the opset. Requires the code's constants and, if it divides columns,
/// `<side>_width`.
std::string writtenCodesText(const std::string& side, const RowCode& code, int64_t opset);

/// The past's codes as floats, which represent them exactly.
std::string pastCodesText(const std::string& side);

/// The present's codes in their stored element type.
std::string presentCodesText(const std::string& side, const RowCode& code);

/// Rows `<side>s` that `<side>_codes` and `<side>_scales` represent.
std::string readCodesText(const std::string& side, const RowCode& code);

/// Codes and scales of the rows that are read from a cache with additional capacity. Requires
/// longest_list.
std::string codesByLengthText(const std::string& side);

} // namespace kvopt::ir
