// FirstStep: what a model's manifest calls its first step, in a comparison.
#pragma once

#include "runtime/session/session.h"

#include <vector>

namespace kvopt::runtime {

std::vector<NamedView> viewsOf(llvm::ArrayRef<NamedTensor> inputs);

/// Run once, on what the other model of the comparison is fed at its first step. What that model is
/// fed later has no part in it: a result that depended on it would show.
class FirstStep {
public:
  /// Of the model's first step; null for a model without one. The session must outlive it.
  explicit FirstStep(Session* ofModel) : session(ofModel) {}

  /// Runs it, unless it was run, on those of the inputs that it takes.
  llvm::Error take(llvm::ArrayRef<NamedTensor> inputs, int64_t tokens);
  /// Replaces the inputs that it computes.
  void give(std::vector<NamedTensor>& inputs) const;

private:
  Session* session;
  std::vector<NamedTensor> results;
};

} // namespace kvopt::runtime
