// Errors as objects.
#include "api/error.h"

#include "passes/pass.h"
#include "runtime/session/cache_room.h"
#include "support/memory_error.h"

#include "llvm/Support/ErrorHandling.h"

#include <mutex>

namespace kvopt::api {

const char ReportedError::ID = 0;

namespace {

const char* textOf(kvopt_error_kind kind) {
  switch (kind) {
  case KVOPT_ERROR_USAGE:
    return "usage";
  case KVOPT_ERROR_INVALID:
    return "invalid";
  case KVOPT_ERROR_UNSUPPORTED:
    return "unsupported";
  case KVOPT_ERROR_IO:
    return "io";
  case KVOPT_ERROR_OUT_OF_MEMORY:
    return "out_of_memory";
  case KVOPT_ERROR_CANCELLED:
    return "cancelled";
  case KVOPT_ERROR_REFUSED:
    return "refused";
  case KVOPT_ERROR_CAPACITY:
    return "capacity";
  case KVOPT_ERROR_INTERNAL:
    return "internal";
  }
  llvm_unreachable("all kinds have a word");
}

kvopt_error_kind kindOf(Diagnostic::Kind kind) {
  switch (kind) {
  case Diagnostic::Kind::Invalid:
    return KVOPT_ERROR_INVALID;
  case Diagnostic::Kind::Unsupported:
    return KVOPT_ERROR_UNSUPPORTED;
  case Diagnostic::Kind::Io:
    return KVOPT_ERROR_IO;
  case Diagnostic::Kind::Usage:
    return KVOPT_ERROR_USAGE;
  }
  llvm_unreachable("all kinds are known");
}

} // namespace

namespace {

/// An error that is made before it is needed, because memory may be short then.
kvopt_error made(kvopt_error_kind kind, const char* message) {
  kvopt_error error;
  error.kind = kind;
  error.diagnostic.message = message;
  error.text = message;
  return error;
}

} // namespace

kvopt_error* outOfMemory() {
  static kvopt_error error = made(KVOPT_ERROR_OUT_OF_MEMORY, "memory is exhausted");
  return &error;
}

kvopt_error* cancelled() {
  static kvopt_error error = made(KVOPT_ERROR_CANCELLED, "the call was cancelled");
  return &error;
}

void throwWhenOutOfMemory() {
  // Made now, while there is memory.
  outOfMemory();
  static std::once_flag installed;
  std::call_once(installed, [] {
    llvm::install_bad_alloc_error_handler([](void*, const char*, bool) { throw std::bad_alloc(); });
  });
}

kvopt_error* toError(llvm::Error error) {
  if (!error)
    return nullptr;
  const bool isRefused = error.isA<passes::RefusedError>() || error.isA<ReportedError>();
  const bool isCapacity = error.isA<runtime::CapacityError>();
  const bool isMemory = error.isA<MemoryError>();
  auto made = std::make_unique<kvopt_error>();
  error = llvm::handleErrors(std::move(error), [&](std::unique_ptr<ReportedError> reported) {
    made->report = reported->report();
    made->reason = reported->reason();
    return makeError(reported->diagnostic());
  });
  made->diagnostic = takeDiagnostic(std::move(error));
  made->text = made->diagnostic.str();
  made->kind = isRefused    ? KVOPT_ERROR_REFUSED
               : isCapacity ? KVOPT_ERROR_CAPACITY
               : isMemory   ? KVOPT_ERROR_OUT_OF_MEMORY
                            : kindOf(made->diagnostic.kind);
  return made.release();
}

kvopt_error* internalError(const char* what) {
  auto made = std::make_unique<kvopt_error>();
  made->diagnostic.message = what;
  made->text = made->diagnostic.str();
  return made.release();
}

llvm::Error checkArgument(const void* argument, const char* name) {
  if (argument)
    return llvm::Error::success();
  return usageError("the argument '{}' is null", name);
}

} // namespace kvopt::api

using kvopt::api::outOfMemory;

kvopt_error_kind kvopt_error_get_kind(const kvopt_error* error) {
  return error ? error->kind : KVOPT_ERROR_INTERNAL;
}
const char* kvopt_error_code(const kvopt_error* error) {
  if (error && !error->reason.empty())
    return error->reason.c_str();
  return kvopt::api::textOf(kvopt_error_get_kind(error));
}
const char* kvopt_error_message(const kvopt_error* error) {
  return error ? error->diagnostic.message.c_str() : "";
}
const char* kvopt_error_file(const kvopt_error* error) {
  return error ? error->diagnostic.file.c_str() : "";
}
const char* kvopt_error_node(const kvopt_error* error) {
  return error ? error->diagnostic.node.c_str() : "";
}
const char* kvopt_error_op(const kvopt_error* error) {
  return error ? error->diagnostic.op.c_str() : "";
}
const char* kvopt_error_value(const kvopt_error* error) {
  return error ? error->diagnostic.value.c_str() : "";
}
const char* kvopt_error_hint(const kvopt_error* error) {
  return error ? error->diagnostic.hint.c_str() : "";
}
const char* kvopt_error_report(const kvopt_error* error) {
  return error ? error->report.c_str() : "";
}
const char* kvopt_error_text(const kvopt_error* error) { return error ? error->text.c_str() : ""; }
void kvopt_error_free(kvopt_error* error) {
  if (error != outOfMemory() && error != kvopt::api::cancelled())
    delete error;
}
