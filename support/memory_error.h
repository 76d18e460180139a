// MemoryError: the operating system has no memory for a request.
#pragma once

#include "support/diagnostic.h"

namespace kvopt {

/// Error: the operating system refused memory, for example to map a file.
class MemoryError : public llvm::ErrorInfo<MemoryError, DiagnosticError> {
public:
  using Base = llvm::ErrorInfo<MemoryError, DiagnosticError>;
  using Base::Base;
  /// LLVM identifies an error class by this address.
  static const char ID;
};

} // namespace kvopt
