// Functions that shape rules of several operator families share.
#pragma once

#include "ir/shapes/shape_inference.h"
#include "support/format.h"

namespace kvopt::ir {

/// Elements of an integer or bool tensor of rank 0 or 1; each may be unknown.
using Integers = llvm::SmallVector<Dim, 4>;

/// Maximum length of a list of elements that is tracked.
inline constexpr int64_t maxTrackedIntegers = 64;

/// Gives result 0 the type of operand 0.
llvm::Error inferSameAsFirst(ShapeContext& context);
/// The same, including the elements of operand 0.
llvm::Error inferCopyOfFirst(ShapeContext& context);
/// Gives result 0 the element type of operand 0 and the broadcast shape of all operands.
llvm::Error inferBroadcast(ShapeContext& context);

/// Broadcast shape of the operands [first, last). The inner nullopt means that a rank is unknown.
llvm::Expected<std::optional<Shape>> broadcastOperands(ShapeContext& context, unsigned first,
                                                       unsigned last);

/// `element` with `dims`, or without a rank if `dims` is nullopt.
TensorType typeOf(ElementType element, std::optional<Shape> dims);
Shape shapeOf(const TensorType& type);
Shape unknownShape(size_t rank);

/// Value of an integer operand with one element.
std::optional<Dim> scalarInteger(const ShapeContext& context, unsigned operand);
std::optional<int64_t> constantScalar(const ShapeContext& context, unsigned operand);

/// The attribute as an axis of `rank`; an error if it is out of range.
llvm::Expected<unsigned> axisAttr(const ShapeContext& context, llvm::StringRef name,
                                  int64_t otherwise, unsigned rank);
/// The axes in [0, rank); an error if one is out of range or occurs twice.
llvm::Expected<llvm::SmallVector<unsigned, 4>>
normalizedAxes(const ShapeContext& context, llvm::ArrayRef<int64_t> axes, unsigned rank);

/// The element, or unknown if it is a constant that does not fit into `element`, because integer
/// arithmetic wraps. Symbols are tensor extents, which fit into 32 bits.
Dim heldBy(ElementType element, const Dim& value);

/// One of two extents that are equal in every valid model: the more specific one.
Dim mergedExtent(const Dim& a, const Dim& b);

/// ⌈value / divisor⌉, or unknown; requires divisor > 0.
Dim ceilDivide(const Dim& value, int64_t divisor);

/// Extents of the rows of an operand that a Scan iterates over: all but the scanned axis. `index`
/// counts scanned operands. nullopt if the rank is unknown.
std::optional<Shape> scannedRow(const Node& scan, size_t index, const TensorType& type);

/// A symbol for a data-dependent extent of a result. Unknown in graphs of attributes, where
/// branches and iterations would use a name more than once.
Dim ownExtent(const Value& result, unsigned axis);
/// Whether an extent is unknown or a symbol from `ownExtent`.
bool isOpenExtent(const Dim& extent);

/// Product of extents; 1 for an empty list.
Dim productOf(llvm::ArrayRef<Dim> extents);

/// Shape of a matrix product with batch axes (numpy's matmul).
llvm::Expected<std::optional<Shape>> matMulShape(const ShapeContext& context, const TensorType& a,
                                                 const TensorType& b);

/// Fails if the extents cannot be equal; `what` describes them in the error.
llvm::Error requireEqual(const ShapeContext& context, const Dim& a, const Dim& b,
                         llvm::StringRef what);
/// Fails if the operand's rank is known and differs.
llvm::Error requireRank(const ShapeContext& context, unsigned operand, unsigned rank);

} // namespace kvopt::ir
