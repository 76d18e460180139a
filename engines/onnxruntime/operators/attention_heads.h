// Heads of attention operands: layouts, rows after a past, and the view of an attention.
#pragma once

#include "engines/onnxruntime/operators/present.h"

namespace kvopt::onnxruntime {

/// Heads of a tensor [B,H,S,D], or [B,S,heads * D]. Fails for other tensors; `what` names the
/// operand in the message.
HeadRows headsOf(const Call& call, const Tensor& tensor, int64_t heads, const char* what);

/// The past in operand `operand`, which must be [B,H,P,D] of the element type of the new rows;
/// nullopt if it is omitted.
std::optional<Tensor> pastOf(const Call& call, unsigned operand, const HeadRows& fresh);

/// The rows of a past, followed by new ones.
struct JoinedRows {
  HeadRows rows; ///< all rows; `fresh` itself if nothing is copied
  HeadRows past;
  HeadRows fresh;
  bool isCopied = false;  ///< whether copyHead must be called for every head
  bool isInPlace = false; ///< whether `rows` begins with the past already

  /// Writes one head of `rows`.
  void copyHead(int64_t batch, int64_t head) const;
};

/// Memory for the rows of `past`, followed by the new rows: result `result`, [B,H,P+L,D]. Without a
/// past, and if no node reads the result, the new rows themselves are used.
JoinedRows joinedRows(Call& call, unsigned result, const std::optional<Tensor>& past,
                      const HeadRows& fresh, const CopyNotice& notice);

/// Checks that the heads fit together, and returns an attention over all rows with the scale
/// 1 / sqrt(D), without a mask and an output.
simd::AttentionView viewOfHeads(const Call& call, const HeadRows& query, const HeadRows& key,
                                const HeadRows& value);

/// Copies the rows of keys and values, makes `output` the output of the view, and computes it.
void attendInto(Call& call, const JoinedRows& keys, const JoinedRows& values,
                const HeadRows& output, simd::AttentionView view);

} // namespace kvopt::onnxruntime
