// FirstStep: the first step that a model's manifest names, in a comparison.
#pragma once

#include "runtime/session/session.h"

#include <vector>

namespace kvopt::runtime {

std::vector<NamedView> viewsOf(llvm::ArrayRef<NamedTensor> inputs);

/// Runs once, on the inputs of the other model at its first step. Later inputs of that model are
/// not used, so a result that depends on them would show as a difference.
class FirstStep {
public:
  /// First step of a model; null for a model without one. The session must outlive this object.
  explicit FirstStep(Session* ofModel) : session(ofModel) {}

  /// Runs it on those of the inputs that it takes, unless it was run before.
  llvm::Error take(llvm::ArrayRef<NamedTensor> inputs, int64_t tokens);
  /// Replaces the inputs that it computes.
  void give(std::vector<NamedTensor>& inputs) const;

private:
  Session* session;
  std::vector<NamedTensor> results;
};

} // namespace kvopt::runtime
