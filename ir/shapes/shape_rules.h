// Functions that shape rules of several operator families share.
#pragma once

#include "ir/shapes/shape_inference.h"
#include "support/format.h"

namespace kvopt::ir {

/// Elements of an integer or bool tensor of rank 0 or 1; each may be unknown.
using Integers = llvm::SmallVector<Dim, 4>;

/// Maximum length of a list of elements that is tracked.
inline constexpr int64_t maxTrackedIntegers = 64;

/// `element` with `dims`, or without a rank if `dims` is nullopt.
TensorType typeOf(ElementType element, std::optional<Shape> dims);
Shape shapeOf(const TensorType& type);
Shape unknownShape(size_t rank);

/// Value of an integer operand with one element.
std::optional<Dim> scalarInteger(const ShapeContext& context, unsigned operand);

/// The element, or unknown if it is a constant that does not fit into `element`, because integer
/// arithmetic wraps. Symbols are tensor extents, which fit into 32 bits.
Dim heldBy(ElementType element, const Dim& value);

/// One of two extents that are equal in every valid model: the more specific one.
Dim mergedExtent(const Dim& a, const Dim& b);

/// Extents of the rows of an operand that a Scan iterates over: all but the scanned axis. `index`
/// counts scanned operands. nullopt if the rank is unknown.
std::optional<Shape> scannedRow(const Node& scan, size_t index, const TensorType& type);

/// A symbol for a data-dependent extent of a result. Unknown in graphs of attributes, where
/// branches and iterations would use a name more than once.
Dim ownExtent(const Value& result, unsigned axis);
/// Whether an extent is unknown or a symbol from `ownExtent`.
bool isOpenExtent(const Dim& extent);

/// Fails if the extents cannot be equal; `what` describes them in the error.
llvm::Error requireEqual(const ShapeContext& context, const Dim& a, const Dim& b,
                         llvm::StringRef what);
/// Fails if the operand's rank is known and differs.
llvm::Error requireRank(const ShapeContext& context, unsigned operand, unsigned rank);

} // namespace kvopt::ir
