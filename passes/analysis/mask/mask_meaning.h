// Meaning of a mask's element: the keys that it hides, and the bias that it adds to the scores of
// the others.
#pragma once

#include "passes/analysis/mask/mask_expression.h"

namespace kvopt::analysis {

/// The largest number that hides a key. A softmax in f32 gives weight 0 to scores more than 104
/// below the largest, so scores would have to differ by thousands to outweigh this number.
inline constexpr double hidingThreshold = -1e4;

/// Decomposition of an additive mask's element.
struct MaskMeaning {
  ExprRef hidden = nullptr; ///< whether the element hides its key
  ExprVector bias;          ///< other terms that the element depends on
  bool isUnderstood = true; ///< false if large numbers may cancel
  bool isExact = true;      ///< every hiding number is -inf
  double hiddenValue = 0;   ///< the largest finite hiding number
};

/// Requires a numeric element.
MaskMeaning meaningOf(MaskExpressions& made, ExprRef element);

/// Parts of a conjunction; empty for "true".
ExprVector partsOf(ExprRef predicate);

/// Whether the expression stays the same when row and key both increase by one.
bool dependsOnDistanceOnly(ExprRef expression);

/// Text of an expression: `attention_mask[b, j]`, `(j < 4 or prefix[b, j])`; abbreviated if long.
std::string printExpression(ExprRef expression);

/// Tensors whose elements are leaves of the expressions, distinct, in order of appearance.
llvm::SmallVector<const ir::Value*, 4> leafValues(ExprList expressions);

/// A row `i` of S and a key `j` for which the predicate contradicts the frontier j <= i + T - S,
/// for some assignment of small numbers to the symbols of S and T; "" if none of the tried
/// assignments has one. Undetermined values of `predicate` are not counter-examples.
std::string causalCounterExample(const IndexSpace& space, ExprRef predicate);

} // namespace kvopt::analysis
