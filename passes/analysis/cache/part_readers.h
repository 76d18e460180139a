// Readers of the parts of a cache that holds several caches.
#pragma once

#include "passes/analysis/cache/cache_origins.h"

#include "llvm/ADT/SetVector.h"

namespace kvopt::analysis {

/// Indices [start, start + count) of an axis.
struct Cell {
  int64_t start = 0;
  int64_t count = 0;

  bool operator==(const Cell&) const = default;
  bool operator<(const Cell& other) const { return start < other.start; }
};

/// A node's result that is one part of a cache.
struct PartReader {
  ir::Value* result = nullptr;
  unsigned axis = 0;
  Cell cell;
  bool hasAxis = true; ///< the axis remains, with the cell's extent
};

/// Parts of its moved operand that a node reads; empty for nodes that do not select parts.
llvm::SmallVector<PartReader, 2> partsRead(ir::Node& node);

/// Whether all readers of the value drop the axis, which has the extent 1.
bool isDroppedByReaders(const ir::Value& value, unsigned axis);

/// The graph input from which rows come through movement and updates; null if there is none.
ir::Value* cacheBehind(ir::Value& operand);

/// Adds the graph inputs from whose rows an operand of attention is computed. The search does not
/// continue through other attention.
void addComputedFrom(ir::Value& operand, const CacheOrigins& origins,
                     llvm::SetVector<const ir::Value*>& inputs);

/// Whether the value is the given part of a cache with new rows: computed from the input that the
/// part becomes, or from the part that one of the readers selects.
bool continuesPart(ir::Value& present, const ir::Value& partInput, const Cell& cell,
                   llvm::ArrayRef<PartReader> readers);

/// Whether no operand of attention combines several parts.
bool keepOperands(llvm::ArrayRef<PartReader> parts);

/// The one output that returns the input's rows.
ir::Value* continuationOf(ir::Value& input, const CacheOrigins& origins);

/// Whether the user adds rows to the operand, or overwrites some, and keeps all others.
bool appendsRows(const ir::Use& use);

/// Whether the node returns each element of the operand unchanged, or converted.
bool keepsPlaces(const ir::Use& use);

} // namespace kvopt::analysis
