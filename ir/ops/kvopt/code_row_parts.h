// Parts of function bodies that write and read rows of codes: texts of nodes, as in
// function_body_parts.h. A side is a name that values begin with, as in `key`.
#pragma once

#include "ir/rows/row_code.h"

#include <string>

namespace kvopt::ir {

/// How columns are divided. Needs `<side>_width`.
std::string codeColumnsText(const std::string& side, const RowCode& code);

/// The codes and scales of new rows, `<side>_code_new` and `<side>_scale_new`, from `<side>_new`,
/// with operators of the opset. Needs the code's constants and, where it divides columns,
/// `<side>_width`.
std::string writtenCodesText(const std::string& side, const RowCode& code, int64_t opset);

/// The past's codes as floats, which hold them exactly.
std::string pastCodesText(const std::string& side);

/// The present's codes as what they are stored as.
std::string presentCodesText(const std::string& side, const RowCode& code);

/// The rows `<side>s` that `<side>_codes` and `<side>_scales` stand for.
std::string readCodesText(const std::string& side, const RowCode& code);

/// The codes and scales of the rows that are read, of a cache with room for more. Needs
/// longest_list.
std::string codesByLengthText(const std::string& side);

} // namespace kvopt::ir
