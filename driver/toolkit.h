// Toolkit: the registries of kvopt.
#pragma once

#include "driver/runner.h"
#include "ir/op.h"
#include "ir/verify/model_gate.h"
#include "passes/pass.h"
#include "passes/targets/target.h"
#include "support/file_access.h"

#include <memory>

namespace kvopt {
class ProgressListener;
} // namespace kvopt

namespace kvopt::driver {

/// The built-in operators, rules, passes, targets and, with the runtime, kernels. A program creates
/// a toolkit and may add its own definitions before it opens models. The toolkit must outlive the
/// models.
struct Toolkit {
  Toolkit();

  ir::OpRegistry ops;
  pattern::RuleRegistry rules;
  passes::PassRegistry passes;
  targets::TargetRegistry targets;
  /// Runs models, and has the kernels; null in a build without the runtime.
  std::unique_ptr<Runner> runner;
  /// Limits on the cost of opening models.
  ir::ModelLimits limits;
  /// The files of this run of the program: openModel registers each file that it opens. Null for a
  /// program that reads files that it has written, or that writes none.
  std::shared_ptr<FileAccess> files;
  /// Receives the progress of long computations; null if none is shown.
  ProgressListener* progress = nullptr;
};

} // namespace kvopt::driver
