// Rows of four-bit codes, in groups of columns with one multiplier each.
//
//   s = max_d |x[d]| / 126,   m = max_group |x[d]| / (7 s) rounded up, at most 18 and at least 1
//   q[d] = x[d] / (s m) to the nearest integer, ties to even, at most 7 and at least -7;
//          it represents s m q[d]
//
// support/four_bit_row.h describes the bytes of a row.
#include "ir/rows/row_code.h"
#include "support/four_bit_row.h"

namespace kvopt::ir {

namespace {

int64_t bytesOfRow(int64_t columns) { return FourBitRow{columns}.bytes(); }

} // namespace

const RowCode fourBitRows = {
    .word = "int4",
    .rows = "rows of four-bit codes",
    .element = ElementType::UInt8,
    .largest = 126,
    .opset = 13,
    .elements = bytesOfRow,
    .constantsText = R"(
    largest_product = Constant <value_float = 126.0> ()
    largest_code = Constant <value_float = 7.0> ()
    smallest_code = Constant <value_float = -7.0> ()
    largest_multiplier = Constant <value_float = 18.0> ()
    code_offset = Constant <value_float = 8.0> ()
    sixteen = Constant <value_float = 16.0> ()
    most_group_columns = Constant <value_ints = [32]> ()
    not_a_number = Sub (infinity, infinity)
)",
    .columnsText = R"(
    {0}_width_and_most = Add ({0}_width, most_group_columns)
    {0}_width_up = Sub ({0}_width_and_most, i1)
    {0}_parts = Div ({0}_width_up, most_group_columns)
    {0}_width_and_parts = Add ({0}_width, {0}_parts)
    {0}_share_up = Sub ({0}_width_and_parts, i1)
    {0}_share = Div ({0}_share_up, {0}_parts)
    {0}_share_and_one = Add ({0}_share, i1)
    {0}_half = Div ({0}_share_and_one, i2)
    {0}_group_width = Mul ({0}_half, i2)
    {0}_group_bytes = Add ({0}_half, i1)
    {0}_padded_width = Mul ({0}_group_width, {0}_parts)
)",
    .writtenText = R"(
    {0}_row_numbers = Where ({0}_row_has_no_number, zero, {0}_numbers)
    {0}_missing = Sub ({0}_padded_width, {0}_width)
    {0}_pads = Concat <axis = 0> (i0, i0, i0, i0, i0, i0, i0, {0}_missing)
    {0}_padded = Pad ({0}_row_numbers, {0}_pads)
    {0}_grouped_shape = Concat <axis = 0> (batch, groups, rows, {0}_parts, {0}_group_width)
    {0}_grouped = Reshape ({0}_padded, {0}_grouped_shape)
    {0}_group_magnitudes = Abs ({0}_grouped)
    {0}_group_largest = @reduce_max ({0}_group_magnitudes)
    {0}_group_divisor = Unsqueeze ({0}_divisor, i3)
    {0}_smallest_whole = Mul ({0}_group_divisor, largest_code)
    {0}_ratio = Div ({0}_group_largest, {0}_smallest_whole)
    {0}_ratio_up = Ceil ({0}_ratio)
    {0}_not_below_one = Max ({0}_ratio_up, one)
    {0}_multiplier = Min ({0}_not_below_one, largest_multiplier)
    {0}_step = Mul ({0}_group_divisor, {0}_multiplier)
    {0}_quotients = Div ({0}_grouped, {0}_step)
    {0}_rounded = Round ({0}_quotients)
    {0}_not_above = Min ({0}_rounded, largest_code)
    {0}_codes_in_range = Max ({0}_not_above, smallest_code)
    {0}_stored = Add ({0}_codes_in_range, code_offset)
    {0}_lower = Slice ({0}_stored, i0, {0}_half, rest)
    {0}_upper = Slice ({0}_stored, {0}_half, {0}_group_width, rest)
    {0}_upper_bits = Mul ({0}_upper, sixteen)
    {0}_bytes = Add ({0}_lower, {0}_upper_bits)
    {0}_packed_groups = Concat <axis = -1> ({0}_bytes, {0}_multiplier)
    {0}_packed_shape = Concat <axis = 0> (batch, groups, rows, rest)
    {0}_code_new = Reshape ({0}_packed_groups, {0}_packed_shape)
)",
    .readText = R"(
    {0}_read_shape = Concat <axis = 0> (batch, groups, rest, {0}_parts, {0}_group_bytes)
    {0}_read_groups = Reshape ({0}_codes, {0}_read_shape)
    {0}_read_bytes = Slice ({0}_read_groups, i0, {0}_half, rest)
    {0}_read_multipliers = Slice ({0}_read_groups, {0}_half, {0}_group_bytes, rest)
    {0}_read_over_sixteen = Div ({0}_read_bytes, sixteen)
    {0}_read_upper = Floor ({0}_read_over_sixteen)
    {0}_read_upper_bits = Mul ({0}_read_upper, sixteen)
    {0}_read_lower = Sub ({0}_read_bytes, {0}_read_upper_bits)
    {0}_read_stored = Concat <axis = -1> ({0}_read_lower, {0}_read_upper)
    {0}_read_codes = Sub ({0}_read_stored, code_offset)
    {0}_group_products = Mul ({0}_read_codes, {0}_read_multipliers)
    {0}_padded_shape = Concat <axis = 0> (batch, groups, rest, {0}_padded_width)
    {0}_padded_products = Reshape ({0}_group_products, {0}_padded_shape)
    {0}_products = Slice ({0}_padded_products, i0, {0}_width, rest)
    {0}s = Mul ({0}_products, {0}_scales)
)",
    .encode = nullptr,
    .decode = nullptr,
};

} // namespace kvopt::ir
