// Progress and cancellation of calls of the C interface.
#pragma once

#include "kvopt/kvopt.h"
#include "support/progress.h"

#include "llvm/Support/Error.h"

namespace kvopt::api {

/// Thrown where a callback asks to stop; guarded() turns it into an error.
struct Cancelled {};

/// The listener of every toolkit of the interface: it passes on to the callback of the call that
/// runs on the same thread, if any.
ProgressListener& progressListener();

/// Sets the callback of the calls on this thread until it is destroyed. Null: none.
class ProgressScope {
public:
  explicit ProgressScope(const kvopt_progress* callback);
  ProgressScope(const ProgressScope&) = delete;
  ProgressScope& operator=(const ProgressScope&) = delete;
  ~ProgressScope();
};

/// A usage error for a structure of an unknown size or without a callback. Null is fine.
llvm::Error checkProgress(const kvopt_progress* callback);

} // namespace kvopt::api
