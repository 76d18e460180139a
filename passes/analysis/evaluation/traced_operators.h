// The operators that linear forms are followed through other than by selecting elements.
#pragma once

#include "passes/analysis/evaluation/evaluation.h"

#include "llvm/ADT/FunctionExtras.h"

namespace kvopt::analysis {

enum class TraceResult {
  Followed, ///< the forms are set
  Block,    ///< the result is a block of its own
  TooMuch,  ///< too much work
};

/// The forms of the elements of `node`'s first result at `indices`.
TraceResult traceThrough(const ir::Node& node, llvm::ArrayRef<int64_t> indices,
                         Evaluation& evaluation, std::vector<LinearForm>& forms);

/// How a product of matrices sums: element `result` is the sum over k < depth of
/// left[k] * right[k], elements of the two operands.
struct ProductElements {
  unsigned left = 0;  ///< operand
  unsigned right = 1; ///< operand
  int64_t depth = 0;
  llvm::unique_function<void(int64_t result, int64_t k, int64_t& leftElement,
                             int64_t& rightElement)>
      at;
};

/// Of MatMul, Einsum of two operands, and FusedMatMul; nullopt for other nodes.
std::optional<ProductElements> productOf(const ir::Node& node, Evaluation& evaluation);

/// Extents of the first result, where the operator's definition tells them from those of its
/// operands; nullopt otherwise.
std::optional<Extents> computedExtents(const ir::Node& node, Evaluation& evaluation);

} // namespace kvopt::analysis
