// Parts of function bodies that write and read rows of codes: texts of nodes, as in
// function_body_parts.h. A side is a name that values begin with, as in `key`; BodyForm says how
// many bits codes have.
#pragma once

#include "ir/ops/kvopt/function_body.h"

namespace kvopt::ir {

/// The numbers between which codes lie.
std::string codeRangeText(const BodyForm& form);

/// How columns are divided into groups of four-bit codes. Needs `<side>_width`.
std::string codeGroupsText(const std::string& side);

/// The codes and scales of new rows, `<side>_code_new` and `<side>_scale_new`, from `<side>_new`.
std::string writtenCodesText(const std::string& side, const BodyForm& form);

/// The past's codes as floats, which hold them exactly.
std::string pastCodesText(const std::string& side);

/// The present's codes as what they are stored as.
std::string presentCodesText(const std::string& side, const BodyForm& form);

/// The rows `<side>s` that `<side>_codes` and `<side>_scales` stand for.
std::string readCodesText(const std::string& side, const BodyForm& form);

/// The codes and scales of the rows that are read, of a cache with room for more. Needs
/// longest_list.
std::string codesByLengthText(const std::string& side);

} // namespace kvopt::ir
