// OnnxAttention: describes a node of ONNX's own Attention (since opset 23) without its alignment
// rules.
#pragma once

#include "passes/targets/support/key_visibility.h"

namespace kvopt::targets {

/// Operands of one attention. Letters: B batch, H query heads, G key heads, S rows, T keys.
struct OnnxAttention {
  ir::Value* query = nullptr; ///< [B,H,S,D]
  /// [B,G,T,D] and [B,G,T,Dv]; with `past`, only the new rows. If `heads` is not 0: [B,T,G*D], with
  /// that number of heads.
  ir::Value* key = nullptr;
  ir::Value* value = nullptr;
  int64_t heads = 0;

  /// Rows that precede `key` and `value`, [B,G,P,·]; the node then returns the presents.
  ir::Value* pastKey = nullptr;
  ir::Value* pastValue = nullptr;
  /// int64 [B]: number of keys of each batch row; since opset 24. Row i is then at position
  /// totalLengths[b] - S + i.
  ir::Value* totalLengths = nullptr;

  double scale = 1;
  float softcap = 0;
  /// Whether an attribute of the node hides the keys after a row's position. Positions count from
  /// the past's length, from `totalLengths`, or from 0.
  bool causal = false;

  /// Boolean, or additive of the query's type or a narrower one, broadcastable to [B,H,S,C]; null
  /// if there is no mask. C is `maskColumns`, at most T; keys from C on are hidden.
  ir::Value* mask = nullptr;
  ir::Dim maskColumns;
  /// maskColumns as int64 [1], for masks whose number of columns is not proved to equal it.
  builders::BuilderOperand maskColumnCount{static_cast<ir::Value*>(nullptr)};
  /// Whether every row provably sees a key, given `mask` and all other conditions that hide keys.
  bool everyRowSeesAKey = false;

  /// Conditions that the node has no attribute for; they are written into the mask.
  KeyVisibility hidden;
  /// Keys that are visible if `mask` and `hidden` allow them: bool, broadcastable to [1,1,S,T];
  /// null for all keys.
  ir::Value* visible = nullptr;
};

/// The node. Its results are the output in [B,H,S,Dv], which may be the result of another node, and
/// with a past the presents.
struct OnnxAttentionNode {
  ir::Node* node = nullptr;
  ir::Value* output = nullptr;
};
OnnxAttentionNode writeOnnxAttention(const OnnxAttention& attention, pattern::Rewriter& rewriter);

/// Reason why ai.kvopt::Sdpa `sdpa` cannot be an ONNX Attention, whatever its caches are; nullopt
/// if it can.
std::optional<pattern::MatchFailure> onnxAttentionObstacle(const ir::Node& sdpa);

/// Expands lengths, int64 [1] or [B], to [B] for the batch of `like`.
ir::Value& lengthsPerRow(ir::Value& lengths, ir::Value& like, builders::AttentionBuilder& build);

} // namespace kvopt::targets
