// What a mask's element says: which keys are hidden, and what is added to the scores of the others.
#pragma once

#include "passes/analysis/mask/mask_expression.h"

namespace kvopt::analysis {

/// The largest number that hides a key: a softmax in f32 gives 0 to what lies more than 104 below
/// the largest score, so that scores would have to differ by thousands to show through it.
inline constexpr double hidingThreshold = -1e4;

/// An additive mask's element taken apart.
struct MaskMeaning {
  ExprRef hidden = nullptr; ///< where the element hides its key
  ExprVector bias;          ///< other things the element depends on
  bool isUnderstood = true; ///< false where large numbers may cancel
  bool isExact = true;      ///< every number that hides is -inf
  double hiddenValue = 0;   ///< the largest finite number that hides
};

/// Requires a numeric element.
MaskMeaning meaningOf(MaskExpressions& made, ExprRef element);

/// The parts of a conjunction; none for "true".
ExprVector partsOf(ExprRef predicate);

/// Whether the expression stays the same when row and key move on by one.
bool dependsOnDistanceOnly(ExprRef expression);

/// `attention_mask[b, j]`, `(j < 4 or prefix[b, j])`; abbreviated when long.
std::string printExpression(ExprRef expression);

/// The tensors that the expression's leaves are elements of, each once, in order of appearance.
llvm::SmallVector<const ir::Value*, 4> leafValues(ExprList expressions);

/// Where row `i` of S sees the key `j` although the frontier j <= i + T - S says otherwise, or the
/// other way round, in some assignment of small numbers to the symbols of S and T; "" when there is
/// none among those that were tried. What `predicate` leaves open is no counter-example.
std::string causalCounterExample(const IndexSpace& space, ExprRef predicate);

} // namespace kvopt::analysis
