// AttentionCall: passes tensors and attributes of a node to the SIMD attention kernel. Every
// attention operator runs through it, so that different spellings of an attention give the same
// bits.
#pragma once

#include "runtime/exec/kernel.h"
#include "runtime/simd/attention/attention.h"

#include <optional>

namespace kvopt::runtime {

/// Operands of one attention with layout BHSD. Strides are arbitrary, but the last axis is
/// contiguous.
struct AttentionOperands {
  TensorView query; ///< [B,H,S,D]
  TensorView key;   ///< [B,G,C,D], or [B,G,D,C] with keyTransposed; C >= every total length
  TensorView value; ///< [B,G,C,Dv]
  bool keyTransposed = false;
  /// If not empty, all keys and values, `segmentTokens` rows in total, as segments. `key` and
  /// `value` are the last segment, and have the extents and element type of all.
  std::span<const simd::KeyValueSegment> segments;
  int64_t segmentTokens = 0;
  /// Scales of the rows of `key` and `value`, float [B,G,C]; both or neither. The rows are then
  /// int8 codes, or four-bit codes in uint8.
  std::optional<TensorView> keyScales;
  std::optional<TensorView> valueScales;
  /// Dv for values of four-bit codes, because their row size does not determine it.
  int64_t fourBitColumns = 0;
  /// Storage format of rows of four-bit codes.
  simd::CodeForm fourBitForm = simd::CodeForm::fourBitRows;
  /// Mask that broadcasts to [B,H,S,T] from the right; additive float or boolean; null without a
  /// mask. T is maskTokens or, if that is absent, the largest total length.
  const TensorView* mask = nullptr;
  /// Sinks, float [H]; null without sinks.
  const TensorView* sinks = nullptr;
  /// Number of valid keys per batch row. Empty: all keys are valid.
  llvm::ArrayRef<int64_t> totalLengths;
  /// At least the largest total length.
  std::optional<int64_t> maskTokens;

  float scale = 1.0f;
  bool causal = false;
  int64_t window = 0;
  float softcap = 0.0f;
};

/// Attributes and optional operands that kvopt's operators have in common. Fails if mask_boolean
/// contradicts the mask.
llvm::Expected<AttentionOperands> attentionOperands(const KernelContext& context, unsigned mask,
                                                    unsigned sinks);

/// Strides of a tensor of rank 4, without that of the last axis.
simd::RowStrides rowStrides(const TensorView& tensor);

/// `count` segments in scratch memory.
llvm::Expected<std::span<simd::KeyValueSegment>> scratchSegments(KernelContext& context,
                                                                 size_t count);

/// Makes int8 keys and values plain numbers: rows with scale 1.
void readBytesAsNumbers(AttentionOperands& operands);

/// Checks everything that the kernel assumes: ranks, extents, element types, and the mask's shape.
/// Writes nothing.
llvm::Error checkAttention(const KernelContext& context, const AttentionOperands& operands);

/// Computes attention into `output` [B,H,S,Dv], which has contiguous rows of a floating-point type
/// of at most 32 bits. Requires that checkAttention succeeded. Distributes the work over the
/// context's threads.
llvm::Error runAttention(KernelContext& context, const AttentionOperands& operands,
                         const TensorView& output);

/// The computation of runAttention as a job. Refers to the memory of the operands' lengths and
/// segments.
simd::AttentionView attentionView(const AttentionOperands& operands, const TensorView& output);
/// The same for several calls with disjoint outputs, whose work is distributed together.
llvm::Error runAttentions(KernelContext& context, llvm::ArrayRef<simd::AttentionView> views);

/// Calls checkAttention and runAttention; result `result` of the node is the output.
llvm::Error attentionResult(KernelContext& context, const AttentionOperands& operands,
                            unsigned result);

} // namespace kvopt::runtime
