// Shape checks that kvopt's attention operators share.
#pragma once

#include "ir/shapes/shape_rules.h"

namespace kvopt::ir {

/// Fails when Q[B,H,S,D], K[B,G,T,D] and V[B,G,T,Dv] (operands 0, 1 and 2) provably contradict each
/// other: another rank, unequal B, D, G or T, or heads that groups do not divide.
llvm::Error checkAttentionOperands(const ShapeContext& context);

/// [B,H,S,Dv] of the query's element type.
TensorType attentionResultType(const ShapeContext& context);

/// The same of Q[B,H,S,D] and of rows R[B,G,S,D] that hold keys with values among their columns
/// (operands 0 and 1).
llvm::Error checkLatentOperands(const ShapeContext& context);

/// [B,H,S,v_width] of the query's element type; fails where the columns from v_offset on are not in
/// the rows.
llvm::Expected<TensorType> latentResultType(const ShapeContext& context);

/// Fails when the mask does not broadcast to [B,H,S,T]; `tokens` is T, which may be unknown.
llvm::Error checkMask(const ShapeContext& context, unsigned operand, const Dim& tokens);

/// Fails where groups do not divide heads.
llvm::Error checkHeads(const ShapeContext& context, const Dim& heads, const Dim& groups);

/// A cache and the rows that are written into it.
struct CacheSide {
  unsigned added; ///< operand: [B,G,S,W]
  unsigned past;  ///< operand: laid out as ir/cache_layout.h says
  const char* axisName;
  /// What the cache holds; Undefined: what the new rows are of. UInt8: rows of four-bit codes
  /// (support/four_bit_row.h).
  ElementType held = ElementType::Undefined;
  /// More new rows than the cache has place for are taken: the last ones stay.
  bool isRing = false;
};

/// Fails when the rows do not fit the cache; its capacity.
llvm::Expected<Dim> checkCache(const ShapeContext& context, const CacheSide& side);

/// Fails unless operand `scales` is float and shaped as the side's cache with one column.
llvm::Error checkCacheScales(const ShapeContext& context, const CacheSide& side, unsigned scales);

/// Fails unless the rows of operand `codes` are int8, and operand `scales` is float of their
/// extents with one column.
llvm::Error checkNewScales(const ShapeContext& context, unsigned codes, unsigned scales);

/// Fails when the attribute mask_boolean contradicts the mask's element type.
llvm::Error checkMaskElements(const ShapeContext& context, unsigned operand);

/// Fails when the sinks are not [H].
llvm::Error checkSinks(const ShapeContext& context, unsigned operand);

/// checkMask over any number of tokens, checkMaskElements, and checkSinks of the operand behind.
llvm::Error checkMaskAndSinks(const ShapeContext& context, unsigned mask);

/// What every attention operator over a cache is told apart from axes; `mask_boolean` is 0 where it
/// is not written.
void addAttentionAttributes(OpDefBuilder& definition);

/// Fails when the operand is not int64 of shape [1] or [B]; `batch` is B.
llvm::Error checkPastLength(const ShapeContext& context, unsigned operand, const Dim& batch);

} // namespace kvopt::ir
