// Operators that treat the rows of a tensor apart.
#pragma once

#include "ir/graph.h"

#include <optional>

namespace kvopt::analysis {

/// The axes whose elements an operator on a tensor of that rank combines: some of the last, or one.
/// nullopt for other operators, and where that is not known.
std::optional<llvm::SmallVector<int64_t, 4>> combinedAxes(const ir::Node& node, int64_t rank);

/// Whether the node rounds a tensor to codes with one scale that it computes from all elements.
bool quantizesDynamically(const ir::Node& node);

/// Whether the node multiplies rows of the first operand by a matrix.
bool isRowProduct(const ir::Node& node);

/// Gemm, also with an activation.
bool isGemm(const ir::Node& node);

/// A scaled MatMul that does not exchange axes of its first operand, nor batch axes.
bool isScaledProduct(const ir::Node& node);

} // namespace kvopt::analysis
