// Operators that evaluation computes numbers with.
#pragma once

#include "passes/analysis/evaluation/evaluation.h"

#include <cmath>

namespace kvopt::analysis {

/// The numbers of a node's result, by the operator's definition. Null if the operator is not
/// defined, if an operand is unknown, or if the result would be too large or not exact.
std::unique_ptr<NumberTensor> numbersFrom(const ir::Value& value, Evaluation& evaluation);

/// The extents of a node's result, by the operator's definition; nullopt if they are unknown.
std::optional<Extents> definedExtents(const ir::Value& value, Evaluation& evaluation);

/// Whether the operator combines elements along axes, as ReduceSum does.
bool isReduction(const ir::Node& node);

/// Axes that such an operator combines, ascending; nullopt if they are unknown.
std::optional<llvm::SmallVector<unsigned, 4>> reducedAxes(const ir::Node& node, size_t rank,
                                                          Evaluation& evaluation);

/// Whether a double holds each integer of this size. A larger one may be rounded.
inline bool isExact(double integer) {
  constexpr double mostInteger = 9007199254740992.0;
  return std::abs(integer) <= mostInteger;
}

/// Maximum number of elements of a tensor of numbers.
inline constexpr int64_t mostNumbers = int64_t{1} << 18;

} // namespace kvopt::analysis
