// The operators that evaluation computes numbers with.
#pragma once

#include "passes/analysis/evaluation/evaluation.h"

namespace kvopt::analysis {

/// The first result of `node`, all of whose operands are of numbers. Null where the operator is not
/// in the table, where an operand is unknown, and where the result would be too large or not exact.
std::unique_ptr<NumberTensor> numbersFrom(const ir::Node& node, Evaluation& evaluation);

/// Whether the operator combines the elements along axes (ReduceSum and its like).
bool isReduction(const ir::Node& node);

/// The axes that such an operator combines, ascending; nullopt where they are not known.
std::optional<llvm::SmallVector<unsigned, 4>> reducedAxes(const ir::Node& node, size_t rank,
                                                          Evaluation& evaluation);

/// The most elements of a tensor of numbers.
inline constexpr int64_t mostNumbers = int64_t{1} << 18;

} // namespace kvopt::analysis
