// Writing and reading of codes and scales of rows.
#include "ir/ops/kvopt/code_row_parts.h"

#include "ir/ops/kvopt/function_body_parts.h"
#include "support/format.h"

namespace kvopt::ir {

namespace {

std::string ofSide(const char* text, const std::string& side) { return formattedAs(text, side); }

/// Scales of new rows of one side, and their divisors. Requires largest_product, the value to which
/// a row's largest element is scaled.
constexpr const char* scales = R"(
    {0}_new_as_float = Cast <to = 1> ({0}_new)
    {0}_new_nan = IsNaN ({0}_new_as_float)
    {0}_new_infinite = IsInf ({0}_new_as_float)
    {0}_no_number = Or ({0}_new_nan, {0}_new_infinite)
    {0}_numbers = Where ({0}_no_number, zero, {0}_new_as_float)
    {0}_magnitudes = Abs ({0}_numbers)
    {0}_no_number_as_float = Cast <to = 1> ({0}_no_number)
    {0}_any_no_number = @reduce_max ({0}_no_number_as_float)
    {0}_row_has_no_number = Greater ({0}_any_no_number, zero)
    {0}_largest = @reduce_max ({0}_magnitudes)
    {0}_finite_scale = Div ({0}_largest, largest_product)
    {0}_scale_new = Where ({0}_row_has_no_number, not_a_number, {0}_finite_scale)
    {0}_scale_zero = Equal ({0}_finite_scale, zero)
    {0}_divisor = Where ({0}_scale_zero, one, {0}_finite_scale)
)";

} // namespace

std::string pastCodesText(const std::string& side) {
  return formatted("    past_{0}_code = Cast <to = 1> (past_{0})\n", side);
}

std::string codeColumnsText(const std::string& side, const RowCode& code) {
  return ofSide(code.columnsText, side);
}

std::string codesByLengthText(const std::string& side) {
  return formatted(R"(
    {0}_read = Slice ({0}, i0, longest_list, i2)
    {0}_codes = Cast <to = 1> ({0}_read)
    {0}_scales = Slice ({0}_scale, i0, longest_list, i2)
)",
                   side);
}

std::string writtenCodesText(const std::string& side, const RowCode& code, int64_t opset) {
  return reducingMaximum(
      codeColumnsText(side, code) + ofSide(scales, side) + ofSide(code.writtenText, side), opset);
}

std::string readCodesText(const std::string& side, const RowCode& code) {
  return ofSide(code.readText, side);
}

std::string presentCodesText(const std::string& side, const RowCode& code) {
  return formatted("    present_{0} = Cast <to = {1}> (present_{0}_code)\n", side,
                   static_cast<int32_t>(code.element));
}

} // namespace kvopt::ir
