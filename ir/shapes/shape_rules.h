// What the shape rules of several operator families share.
#pragma once

#include "ir/shapes/shape_inference.h"
#include "support/format.h"

namespace kvopt::ir {

/// Elements of an integer or bool tensor of rank 0 or 1, each of which may be unknown.
using Integers = llvm::SmallVector<Dim, 4>;

/// No longer list of elements is tracked.
inline constexpr int64_t maxTrackedIntegers = 64;

/// Result 0 has the type of operand 0.
llvm::Error inferSameAsFirst(ShapeContext& context);
/// The same, and the elements of operand 0.
llvm::Error inferCopyOfFirst(ShapeContext& context);
/// Result 0 has operand 0's element type and the broadcast shape of all operands.
llvm::Error inferBroadcast(ShapeContext& context);

/// The broadcast shape of the operands [first, last); nullopt inside when a rank is unknown.
llvm::Expected<std::optional<Shape>> broadcastOperands(ShapeContext& context, unsigned first,
                                                       unsigned last);

/// `element` with `dims`, or without a rank when there are none.
TensorType typeOf(ElementType element, std::optional<Shape> dims);
Shape shapeOf(const TensorType& type);
Shape unknownShape(size_t rank);

/// The value of a one-element integer operand.
std::optional<Dim> scalarInteger(const ShapeContext& context, unsigned operand);
std::optional<int64_t> constantScalar(const ShapeContext& context, unsigned operand);

/// The attribute as an axis of `rank`; an error when it lies outside.
llvm::Expected<unsigned> axisAttr(const ShapeContext& context, llvm::StringRef name,
                                  int64_t otherwise, unsigned rank);
/// Every axis in [0, rank); an error when one lies outside or occurs twice.
llvm::Expected<llvm::SmallVector<unsigned, 4>>
normalizedAxes(const ShapeContext& context, llvm::ArrayRef<int64_t> axes, unsigned rank);

/// The element, or unknown where it is a constant that `element` cannot hold: integer arithmetic
/// wraps. Symbols stand for tensor extents, which 32 bits hold.
Dim heldBy(ElementType element, const Dim& value);

/// One extent of two that are equal in every valid model; prefers the one that says more.
Dim mergedExtent(const Dim& a, const Dim& b);

/// ⌈value / divisor⌉ where it can be had; requires divisor > 0.
Dim ceilDivide(const Dim& value, int64_t divisor);

/// The extents of the rows of an operand that a Scan takes apart: without the axis that is scanned.
/// `index` counts scanned operands. nullopt where the rank is not known.
std::optional<Shape> scannedRow(const Node& scan, size_t index, const TensorType& type);

/// A name for an extent of a result that depends on values: what has it is as long as the result.
/// Unknown in graphs of attributes, where branches and iterations have a name more than once.
Dim ownExtent(const Value& result, unsigned axis);
/// Whether nothing is known of an extent, or only such a name.
bool isOpenExtent(const Dim& extent);

/// The product of extents; 1 for none.
Dim productOf(llvm::ArrayRef<Dim> extents);

/// The shape of a matrix product with batch axes (numpy's matmul).
llvm::Expected<std::optional<Shape>> matMulShape(const ShapeContext& context, const TensorType& a,
                                                 const TensorType& b);

/// Fails when the extents cannot be equal; `what` says what they are.
llvm::Error requireEqual(const ShapeContext& context, const Dim& a, const Dim& b,
                         llvm::StringRef what);
/// Fails when the operand's rank is known and another.
llvm::Error requireRank(const ShapeContext& context, unsigned operand, unsigned rank);

} // namespace kvopt::ir
