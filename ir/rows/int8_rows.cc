// Rows of int8: one code for each number.
//
//   s = max_d |x[d]| / 127,   q[d] = x[d] / s to the nearest integer, ties to even,
//                                    at most 127 and at least -127;   it represents s q[d]
#include "ir/rows/row_code.h"

namespace kvopt::ir {

const RowCode int8Rows = {
    .word = "int8",
    .rows = "int8 rows",
    .element = ElementType::Int8,
    .largest = 127,
    .opset = 13,
    .elements = nullptr,
    .constantsText = R"(
    largest_code = Constant <value_float = 127.0> ()
    largest_product = Identity (largest_code)
    smallest_code = Constant <value_float = -127.0> ()
    not_a_number = Sub (infinity, infinity)
)",
    .columnsText = "",
    .writtenText = R"(
    {0}_quotients = Div ({0}_numbers, {0}_divisor)
    {0}_rounded = Round ({0}_quotients)
    {0}_not_above = Min ({0}_rounded, largest_code)
    {0}_codes_in_range = Max ({0}_not_above, smallest_code)
    {0}_code_new = Where ({0}_row_has_no_number, zero, {0}_codes_in_range)
)",
    .readText = R"(    {0}s = Mul ({0}_codes, {0}_scales)
)",
    .encode = nullptr,
    .decode = nullptr,
};

} // namespace kvopt::ir
