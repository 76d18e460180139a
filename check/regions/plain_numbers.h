// Plain numbers: which floating-point values are never infinite, hidden or not a number.
#pragma once

#include "ir/model.h"
#include "meaning/facts/operator_facts.h"

#include "llvm/ADT/DenseMap.h"

namespace kvopt::check {

/// Finds values that are numbers at all sizes, by the operators that compute them (Making::Finite).
/// Quotients, powers and functions with poles are not plain, nor are masks.
class PlainNumbers {
public:
  explicit PlainNumbers(meaning::OperatorFacts& facts) : operators(facts) {}
  /// Whether the value of the main graph is plain.
  bool isPlain(const ir::Value& value);

private:
  bool compute(const ir::Value& value);

  meaning::OperatorFacts& operators;
  llvm::DenseMap<const ir::Value*, bool> known;
  unsigned depth = 0;
};

} // namespace kvopt::check
