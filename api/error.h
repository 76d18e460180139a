// Errors of the C interface, and the boundary that no exception crosses.
#pragma once

#include "api/progress.h"
#include "kvopt/kvopt.h"
#include "support/diagnostic.h"

#include <exception>
#include <memory>
#include <new>
#include <string>

/// A failure with texts that live as long as it does.
struct kvopt_error {
  kvopt_error_kind kind = KVOPT_ERROR_INTERNAL;
  kvopt::Diagnostic diagnostic;
  std::string text;
  std::string report; ///< JSON of a refusal; empty for other errors
  std::string reason; ///< reason code of a refusal; empty for other errors
};

namespace kvopt::api {

/// A refused rewrite or a failed comparison, with its report as JSON.
class ReportedError : public llvm::ErrorInfo<ReportedError, DiagnosticError> {
public:
  using Base = llvm::ErrorInfo<ReportedError, DiagnosticError>;
  ReportedError(Diagnostic diagnostic, std::string json, std::string code)
      : Base(std::move(diagnostic)), reportText(std::move(json)), reasonCode(std::move(code)) {}

  const std::string& report() const { return reportText; }
  const std::string& reason() const { return reasonCode; }
  /// LLVM identifies an error class by this address.
  static const char ID;

private:
  std::string reportText;
  std::string reasonCode;
};

/// The error for memory that is exhausted. It is static: kvopt_error_free leaves it alone.
kvopt_error* outOfMemory();

/// A failure of the library as an error of the interface; null for success.
kvopt_error* toError(llvm::Error error);

/// The error for a call that was cancelled. It is static, too.
kvopt_error* cancelled();

/// The error for a defect of kvopt.
kvopt_error* internalError(const char* what);

/// Makes containers that run out of memory throw std::bad_alloc in place of ending the process.
void throwWhenOutOfMemory();

/// Runs `body`, which returns an llvm::Error, and returns what it or an exception says.
template <class Body> kvopt_error* guarded(const Body& body) noexcept {
  try {
    throwWhenOutOfMemory();
    return toError(body());
  } catch (const std::bad_alloc&) {
    return outOfMemory();
  } catch (const Cancelled&) {
    return cancelled();
  } catch (const std::exception& exception) {
    try {
      return internalError(exception.what());
    } catch (...) {
      return outOfMemory();
    }
  } catch (...) {
    return outOfMemory();
  }
}

/// A usage error for an argument that is null.
llvm::Error checkArgument(const void* argument, const char* name);

} // namespace kvopt::api
