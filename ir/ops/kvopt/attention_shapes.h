// Shape checks shared by kvopt's attention operators.
#pragma once

#include "ir/rows/row_code.h"
#include "ir/shapes/shape_rules.h"

namespace kvopt::ir {

/// Fails if Q[B,H,S,D], K[B,G,T,D] and V[B,G,T,Dv] (operands 0, 1 and 2) provably contradict each
/// other: a different rank, unequal B, D, G or T, or a number of heads that is not a multiple of
/// the number of groups.
llvm::Error checkAttentionOperands(const ShapeContext& context);

/// [B,H,S,Dv] with the query's element type.
TensorType attentionResultType(const ShapeContext& context);

/// The same for Q[B,H,S,D] and rows R[B,G,S,D] that hold keys, some of whose columns are the values
/// (operands 0 and 1).
llvm::Error checkLatentOperands(const ShapeContext& context);

/// [B,H,S,v_width] with the query's element type. Fails if the columns from v_offset on exceed the
/// rows.
llvm::Expected<TensorType> latentResultType(const ShapeContext& context);

/// Fails if the mask does not broadcast to [B,H,S,T]; `tokens` is T, which may be unknown.
llvm::Error checkMask(const ShapeContext& context, unsigned operand, const Dim& tokens);

/// Fails if the number of heads is not a multiple of the number of groups.
llvm::Error checkHeads(const ShapeContext& context, const Dim& heads, const Dim& groups);

/// A cache and its new rows.
struct CacheSide {
  unsigned added; ///< operand: [B,G,S,W]
  unsigned past;  ///< operand: laid out as ir/cache_layout.h says
  const char* axisName;
  /// The codes that the new rows are stored as; null: they are stored as they are.
  const RowCode* code = nullptr;
  /// More new rows than the cache has place for are taken: the last ones stay.
  bool isRing = false;
};

/// Capacity of the cache. Fails if the rows do not fit the cache.
llvm::Expected<Dim> checkCache(const ShapeContext& context, const CacheSide& side);

/// Fails unless operand `scales` is float, with the shape of the side's cache and one column.
llvm::Error checkCacheScales(const ShapeContext& context, const CacheSide& side, unsigned scales);

/// Fails unless the rows of operand `codes` are int8, and operand `scales` is float with the same
/// extents and one column.
llvm::Error checkNewScales(const ShapeContext& context, unsigned codes, unsigned scales);

/// Fails if the attribute mask_boolean contradicts the mask's element type.
llvm::Error checkMaskElements(const ShapeContext& context, unsigned operand);

/// Fails if the shape of the sinks is not [H].
llvm::Error checkSinks(const ShapeContext& context, unsigned operand);

/// Applies checkMask for any number of tokens, checkMaskElements, and checkSinks to the operand
/// after the mask.
llvm::Error checkMaskAndSinks(const ShapeContext& context, unsigned mask);

/// Adds the attributes of every attention operator over a cache, except axes. `mask_boolean` is 0
/// if it is absent.
void addAttentionAttributes(OpDefBuilder& definition);

/// Fails if the operand is not int64 of shape [1] or [B]; `batch` is B.
llvm::Error checkPastLength(const ShapeContext& context, unsigned operand, const Dim& batch);

} // namespace kvopt::ir
