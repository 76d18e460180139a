// OnnxAttention: attention as a node of ONNX's own Attention (opset 23 on), in terms that need no
// knowledge of its alignments.
#pragma once

#include "passes/targets/support/key_visibility.h"

namespace kvopt::targets {

/// What attends to what. Letters: B batch, H query heads, G key heads, S rows, T keys.
struct OnnxAttention {
  ir::Value* query = nullptr; ///< [B,H,S,D]
  /// [B,G,T,D] and [B,G,T,Dv]; with `past` the new rows only. If `heads` is not 0, with that many
  /// heads side by side: [B,T,G*D].
  ir::Value* key = nullptr;
  ir::Value* value = nullptr;
  int64_t heads = 0;

  /// Rows that stand before `key` and `value`, [B,G,P,·]; the node then gives the presents.
  ir::Value* pastKey = nullptr;
  ir::Value* pastValue = nullptr;
  /// int64 [B]: how many keys of each batch row there are; since opset 24. Row i then stands at
  /// position totalLengths[b] - S + i.
  ir::Value* totalLengths = nullptr;

  double scale = 1;
  float softcap = 0;
  /// Row i sees no key behind its position, by an attribute of the node: whose positions count from
  /// the past's length, from `totalLengths`, or from 0.
  bool causal = false;

  /// Boolean, or additive of the query's type or a narrower one, [B,H,S,C] or what broadcasts to
  /// that; null: none. C is `maskColumns`: T at most, and the keys behind are hidden.
  ir::Value* mask = nullptr;
  ir::Dim maskColumns;
  /// maskColumns as int64 [1], for masks that are not known to have as many.
  builders::BuilderOperand maskColumnCount{static_cast<ir::Value*>(nullptr)};
  /// Whether that is proved, of `mask` and of what else hides keys.
  bool everyRowSeesAKey = false;

  /// What the node has no attribute for, written into the mask.
  KeyVisibility hidden;
  /// bool [1,1,S,T] or what broadcasts to that: keys that are seen, as far as `mask` and `hidden`
  /// let them; null: all.
  ir::Value* visible = nullptr;
};

/// The node; its results are the output in [B,H,S,Dv] (which may be another node's) and, with a
/// past, the presents.
struct OnnxAttentionNode {
  ir::Node* node = nullptr;
  ir::Value* output = nullptr;
};
OnnxAttentionNode writeOnnxAttention(const OnnxAttention& attention, pattern::Rewriter& rewriter);

/// Why ai.kvopt::Sdpa `sdpa` cannot be written so, whatever its caches are; nullopt if it can.
std::optional<pattern::MatchFailure> onnxAttentionObstacle(const ir::Node& sdpa);

/// Lengths, int64 [1] or [B], as [B], for the batch of `like`.
ir::Value& lengthsPerRow(ir::Value& lengths, ir::Value& like, builders::AttentionBuilder& build);

} // namespace kvopt::targets
