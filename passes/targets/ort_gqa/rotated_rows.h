// Rotations of queries and keys as one operator on rows of tokens.
#pragma once

#include "passes/builders/attention_builder.h"

namespace kvopt::targets {

/// Heads [B,H,S,D] as rows of tokens [B,S,H*D], as tokenRows() makes them. A rotation that precedes
/// the heads becomes com.microsoft::RotaryEmbedding on the rows. Its caches are the cosines and
/// sines of the step itself, one row for each token, so that any positions are possible.
ir::Value& rotatedRows(ir::Value& heads, builders::AttentionBuilder& build);

} // namespace kvopt::targets
