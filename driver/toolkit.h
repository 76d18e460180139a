// Toolkit: everything that kvopt knows.
#pragma once

#include "ir/op.h"
#include "ir/verify/model_gate.h"
#include "passes/pass.h"
#include "passes/targets/target.h"
#include "runtime/exec/kernel.h"

namespace kvopt {

/// The operators, rules, passes, targets and kernels that are built in. A program makes one and may
/// add its own before it opens models; the toolkit must outlive the models.
struct Toolkit {
  Toolkit();

  OpRegistry ops;
  RuleRegistry rules;
  PassRegistry passes;
  TargetRegistry targets;
  KernelRegistry kernels;
  /// What models that are opened may cost.
  ModelLimits limits;
};

} // namespace kvopt
