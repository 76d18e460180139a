// List of codes.
#include "ir/rows/row_code.h"

namespace kvopt::ir {

namespace {

constexpr const RowCode* all[] = {&int8Rows, &fourBitRows};

} // namespace

llvm::ArrayRef<const RowCode*> rowCodes() { return all; }

} // namespace kvopt::ir
