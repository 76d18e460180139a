// The tensors at a decoder's edge: token ids, masks and positions of one step, made by the names
// that exporters document for them.
#pragma once

#include "ir/graph.h"
#include "runtime/buffer.h"

namespace kvopt {

/// One step of a batch: `newTokens` tokens a row after `pastTokens` earlier ones.
struct DecoderStep {
  int64_t batch = 1;
  int64_t newTokens = 1;
  int64_t pastTokens = 0;
  /// [batch, newTokens]
  llvm::ArrayRef<int64_t> tokens;
  /// [batch, pastTokens + newTokens], false for padding; empty when every token is real.
  llvm::ArrayRef<bool> real;
};

struct DecoderInput {
  std::string name;
  Tensor tensor;
};

/// One tensor for each of `inputs`:
///   input_ids      [B, S]      the tokens
///   attention_mask [B, P + S]  1 for real tokens
///   position_ids   [B, S]      real tokens of the row before this one; 0 for padding before any
///   cache_position [S]         P … P + S - 1
/// in the declared element type (int64, int32, bool or float). Inputs of other names are an error
/// that lists them; so are sizes that contradict each other.
llvm::Expected<std::vector<DecoderInput>>
makeDecoderInputs(llvm::ArrayRef<const Value*> inputs, const DecoderStep& step,
                  const std::shared_ptr<Allocator>& allocator);

} // namespace kvopt
