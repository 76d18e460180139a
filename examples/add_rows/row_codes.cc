// Codes of this program: those of kvopt and float8. In the tree this would be a line of
// ir/rows/row_codes.cc, which is not linked into a program that defines this function.
#include "ir/rows/row_code.h"

namespace kvopt::ir {

extern const RowCode float8Rows;

namespace {

constexpr const RowCode* all[] = {&int8Rows, &fourBitRows, &float8Rows};

} // namespace

llvm::ArrayRef<const RowCode*> rowCodes() { return all; }

} // namespace kvopt::ir
