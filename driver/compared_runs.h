// ComparedRuns: what runs of two models have shown.
#pragma once

#include "support/json_fwd.h"

#include <string>
#include <vector>

namespace kvopt::driver {

/// The report of a Runner, which has its own types for steps and tensors
/// (driver/verify/verification.h).
class ComparedRuns {
public:
  virtual ~ComparedRuns() = default;

  virtual bool isDifferent() const = 0;
  /// Whether the models are equal in all runs. The runs need not have reached every block.
  virtual bool isEqualWhereRun() const = 0;
  /// Whether they are equal, and enough was compared for a verdict.
  virtual bool equal() const = 0;
  /// Adds a part that was not compared, once.
  virtual void noteGap(std::string gap) = 0;

  /// The document `kvopt/verify/1`.
  virtual OrderedJson json() const = 0;
  /// Lines of the report: the verdict with its measurements, and what was covered.
  virtual std::vector<std::string> verdict() const = 0;
  /// The lines as one text; with `isDetailed`, also numbers for developers of kernels.
  virtual std::string summary(bool isDetailed) const = 0;
};

} // namespace kvopt::driver
