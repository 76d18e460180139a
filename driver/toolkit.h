// Toolkit: everything that kvopt knows.
#pragma once

#include "ir/op.h"
#include "ir/verify/model_gate.h"
#include "passes/pass.h"
#include "passes/targets/target.h"
#include "runtime/exec/kernel.h"
#include "support/file_access.h"

#include <memory>

namespace kvopt {
class ProgressListener;
} // namespace kvopt

namespace kvopt::driver {

/// The operators, rules, passes, targets and kernels that are built in. A program makes one and may
/// add its own before it opens models; the toolkit must outlive the models.
struct Toolkit {
  Toolkit();

  ir::OpRegistry ops;
  pattern::RuleRegistry rules;
  passes::PassRegistry passes;
  targets::TargetRegistry targets;
  runtime::KernelRegistry kernels;
  /// What models that are opened may cost.
  ir::ModelLimits limits;
  /// The files of the program's run: openModel registers what it opens there. Null for a program
  /// that reads what it has written itself, or that writes nothing.
  std::shared_ptr<FileAccess> files;
  /// Receives how far long computations are; null where nothing shows it.
  ProgressListener* progress = nullptr;
};

} // namespace kvopt::driver
