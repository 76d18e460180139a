// Rotations of queries and keys that GroupQueryAttention computes itself.
#pragma once

#include "passes/builders/attention_builder.h"

namespace kvopt::targets {

/// Operands of GroupQueryAttention with do_rotary. All batch rows have the angles of the first one,
/// because the operator reads the positions of a prompt from its first batch row.
struct OperatorRotation {
  ir::Value* query = nullptr; ///< rows [B,S,H*D] before the rotation
  ir::Value* key = nullptr;   ///< rows [B,S,G*D] before the rotation
  /// [T,pairs]: rows for the S new tokens, so that any positions are possible, and rows that are
  /// not read, because ONNX Runtime requires a row for each key.
  ir::Value* cosines = nullptr;
  ir::Value* sines = nullptr;
  ir::Value* rows = nullptr; ///< int64 [B,S]: row of the tables for each token
  bool interleaved = false;
};

/// The rotation that precedes the heads `query` [B,H,S,D] and `key` [B,G,S,D]; nullopt if they are
/// rotated by different angles or in a form that ONNX Runtime's kernel refuses, or if batch rows
/// may have different angles. `total` is T, and `isUnpadded` as in LowerOptions.
std::optional<OperatorRotation> operatorRotation(ir::Value& query, ir::Value& key, ir::Value& total,
                                                 bool isUnpadded,
                                                 builders::AttentionBuilder& build);

} // namespace kvopt::targets
