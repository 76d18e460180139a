// Rows of codes as numbers, for attention that has no kernel for the codes.
#pragma once

#include "ir/rows/row_code.h"
#include "runtime/exec/kernel.h"

namespace kvopt::runtime {

/// Codes [B,G,C,·] or, transposed, [B,G,·,C], and their scales [B,G,C].
struct CodedRows {
  TensorView codes;
  TensorView scales;
  bool isTransposed = false;
};

/// Rows of `columns` numbers that the codes represent: float [B,G,C,columns] in scratch memory.
llvm::Expected<TensorView> decodedRows(KernelContext& context, const ir::RowCode& code,
                                       const CodedRows& rows, int64_t columns);

} // namespace kvopt::runtime
