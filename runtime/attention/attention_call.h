// AttentionCall: from tensors and attributes of a node to the SIMD attention kernel. The one way in
// which every attention operator runs, so that two spellings of it give the same bits.
#pragma once

#include "runtime/exec/kernel.h"
#include "runtime/simd/attention/attention.h"

#include <optional>

namespace kvopt::runtime {

/// Operands of one attention in layout BHSD; strides are honoured, the last axis is contiguous.
struct AttentionOperands {
  TensorView query; ///< [B,H,S,D]
  TensorView key;   ///< [B,G,C,D], or [B,G,D,C] with keyTransposed; C >= every total length
  TensorView value; ///< [B,G,C,Dv]
  bool keyTransposed = false;
  /// Where not empty, all keys and values, `segmentTokens` of them, in segments: the last is `key`
  /// and `value`, which stand for the extents and the element type of all.
  std::span<const simd::KeyValueSegment> segments;
  int64_t segmentTokens = 0;
  /// float [B,G,C], the scales of key's and value's rows, which are then int8, or uint8: four-bit
  /// codes; both or neither.
  std::optional<TensorView> keyScales;
  std::optional<TensorView> valueScales;
  /// Dv, where values are four-bit codes: their rows do not tell.
  int64_t fourBitColumns = 0;
  /// How rows of four-bit codes are stored.
  simd::CodeForm fourBitForm = simd::CodeForm::fourBitRows;
  /// Broadcastable to [B,H,S,T] from the right, T being maskTokens or, where that is absent, the
  /// largest total length; additive float or boolean; null: none.
  const TensorView* mask = nullptr;
  /// float [H]; null: none.
  const TensorView* sinks = nullptr;
  /// Valid keys: one number per batch row. Empty: all of them.
  llvm::ArrayRef<int64_t> totalLengths;
  /// Not below any total length.
  std::optional<int64_t> maskTokens;

  float scale = 1.0f;
  bool causal = false;
  int64_t window = 0;
  float softcap = 0.0f;
};

/// The attributes and optional operands that kvopt's operators have in common; fails where
/// mask_boolean contradicts the mask.
llvm::Expected<AttentionOperands> attentionOperands(const KernelContext& context, unsigned mask,
                                                    unsigned sinks);

/// Distances in a tensor of rank 4, without those within rows.
simd::RowStrides rowStrides(const TensorView& tensor);

/// `count` segments in scratch memory.
llvm::Expected<std::span<simd::KeyValueSegment>> scratchSegments(KernelContext& context,
                                                                 size_t count);

/// Where keys and values are int8, makes them the numbers that they are: rows with scales of 1.
void readBytesAsNumbers(AttentionOperands& operands);

/// Checks everything the kernel assumes: ranks, extents, element types, the mask's shape. Nothing
/// is written.
llvm::Error checkAttention(const KernelContext& context, const AttentionOperands& operands);

/// Computes into `output` [B,H,S,Dv], whose rows are contiguous, of any floating-point type of at
/// most 32 bits. Requires that checkAttention succeeded. Distributes units over the context's
/// threads.
llvm::Error runAttention(KernelContext& context, const AttentionOperands& operands,
                         const TensorView& output);

/// What runAttention computes, as a job of its own; refers to the memory of the operands' lengths
/// and segments.
simd::AttentionView attentionView(const AttentionOperands& operands, const TensorView& output);
/// The same for several calls whose outputs are disjoint: their units are distributed together.
llvm::Error runAttentions(KernelContext& context, llvm::ArrayRef<simd::AttentionView> views);

/// checkAttention and runAttention, with the output as result `result` of the node.
llvm::Error attentionResult(KernelContext& context, const AttentionOperands& operands,
                            unsigned result);

} // namespace kvopt::runtime
