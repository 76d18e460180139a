// Attention and rotation of heads, as rules of several operators use them.
#pragma once

#include "check/arithmetic/call.h"

#include <functional>

namespace kvopt::check {

/// Rows [B,S,H*D] as heads [B,H,S,D]; null if the width is not a multiple.
Ref asHeads(const Ref& rows, int64_t heads);
/// Heads [B,H,S,D] as rows [B,S,H*D].
Ref asRows(const Ref& heads);

/// Attention over heads.
struct Attended {
  Ref query, key, value; ///< [B,H,S,D], [B,G,T,D], [B,G,T,E]
  Ref mask;         ///< broadcasts to [B,H,S,T]; true where a key is visible, or added; or null
  double scale = 0; ///< 0 is 1 / sqrt(D)
  double softcap = 0;
  /// Whether the operator itself shows a key to a query; empty if it shows all.
  std::function<bool(int64_t batch, int64_t query, int64_t key)> shows;
};

/// The result of attention [B,H,S,E]; null if the operands do not fit.
Ref attendedRows(Call& call, const Attended& job);

/// x [B,H,S,D] with its first `width` columns rotated in pairs; cosines and sines are
/// [B,S,width/2]. null if they do not fit.
Ref rotated(Call& call, const Ref& x, const Ref& cosine, const Ref& sine, bool isInterleaved,
            int64_t width);

/// Rows of an operand, a table [positions, width], at positions [B,S], as [B,S,width]; null if one
/// is outside.
Ref tableRows(const Call& call, unsigned operand, const Ref& positions);

/// Rule of com.microsoft::PagedAttention.
Results pagedAttention(Call& call);

} // namespace kvopt::check
