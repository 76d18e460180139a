// Operators that treat the rows of a tensor separately.
#pragma once

#include "ir/graph.h"

#include <optional>

namespace kvopt::analysis {

/// Axes whose elements an operator on a tensor of that rank combines: some of the last, or one.
/// nullopt for other operators, and if the axes are unknown.
std::optional<llvm::SmallVector<int64_t, 4>> combinedAxes(const ir::Node& node, int64_t rank);

/// Whether the node quantizes a tensor with one scale that it computes from all elements.
bool quantizesDynamically(const ir::Node& node);

/// Whether the node multiplies rows of the first operand by a matrix.
bool isRowProduct(const ir::Node& node);

/// Whether the node is Gemm, also with an activation.
bool isGemm(const ir::Node& node);

/// Whether the node is a scaled MatMul that does not exchange axes of its first operand, nor batch
/// axes.
bool isScaledProduct(const ir::Node& node);

} // namespace kvopt::analysis
