// Operators through which linear forms are followed, other than selecting ones.
#pragma once

#include "passes/analysis/evaluation/evaluation.h"

#include "llvm/ADT/FunctionExtras.h"

namespace kvopt::analysis {

enum class TraceResult {
  Followed, ///< the forms are set
  Block,    ///< the result is a separate block
  TooMuch,  ///< too much work
};

/// The forms of the elements of `node`'s first result at `indices`.
TraceResult traceThrough(const ir::Node& node, llvm::ArrayRef<int64_t> indices,
                         Evaluation& evaluation, std::vector<LinearForm>& forms);

/// Summation of a matrix product: element `result` is the sum over k < depth of left[k] * right[k],
/// elements of the two factors.
struct ProductElements {
  const ir::Value* left = nullptr;
  const ir::Value* right = nullptr;
  int64_t depth = 0;
  llvm::unique_function<void(int64_t result, int64_t k, int64_t& leftElement,
                             int64_t& rightElement)>
      at;
};

/// Supports MatMul, Einsum with two operands, and a ReduceSum over one axis of a Mul; nullopt for
/// other nodes.
std::optional<ProductElements> productOf(const ir::Node& node, Evaluation& evaluation);

} // namespace kvopt::analysis
