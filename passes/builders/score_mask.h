// The mask of a score chain as one operand of ai.kvopt::Sdpa.
#pragma once

#include "passes/analysis/scores/score_chain.h"
#include "passes/pattern/rewriter.h"

namespace kvopt::builders {

/// Plan of the mask operand. Adding it to the scores gives the softmax the same input as the
/// chain's own steps, or one with the same softmax:
///
/// * `Fill` with -inf is a boolean mask, or -inf in the sum. (A row without any allowed key is NaN
///   in the original and zeros here.)
/// * `Fill` with a number f <= -1e30 is Where(condition, mask so far, f): f + score = f in f32.
/// * `Fill` with -1e30 < f <= -1e4, as in -1e4 or -1e9, does not absorb scores. In a row with an
///   allowed key such an entry has the weight exp(f - top) = 0 for every score that attention
///   produces (scores above f + 104); in a row without one all filled entries are equal. -1e30 in
///   place of f preserves both if every other mask value is 0, the same fill, or a value
///   (<= -1e31, -inf) that is below -1e30 as well. Alternatively, every row has a key that no fill
///   hides and that a later mask hides only together with all others: then filled entries have no
///   weight in any row. The chain is refused unless one of the two is proved.
/// * float16 masks end at -65504, which absorbs float16 scores but not the float32 scores of Sdpa.
///   A mask that is provably "0 or -65504" is rebuilt with the lowest float32; any other is used
///   unchanged, and only rows without an allowed key differ.
struct ScoreMask {
  struct Piece {
    analysis::MaskStep step;
    double number = 0.0; ///< for Fill and for a rebuilt Add
    /// Add: the operand is Where(condition, 0, low) or Where(condition, low, 0).
    ir::Value* condition = nullptr;
    bool keepsTrue = true;
  };
  /// Bool for a boolean mask; Undefined if there is none.
  ir::ElementType element = ir::ElementType::Undefined;
  llvm::SmallVector<Piece, 4> pieces;
};

/// Fails with `mask-fill-inexact`.
std::optional<ScoreMask> planScoreMask(const analysis::ScoreChain& chain,
                                       pattern::MatchFailure& failure);

/// The mask operand, with new nodes where needed; null if there is no mask.
ir::Value* buildScoreMask(const ScoreMask& plan, pattern::Rewriter& rewriter);

} // namespace kvopt::builders
