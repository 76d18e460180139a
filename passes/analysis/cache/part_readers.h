// What reads a cache that holds several in one, part by part.
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
  bool hasAxis = true; ///< the axis is still there, with the cell's extent
};

/// The parts that a node reads of its moved operand; none for nodes that do something else.
llvm::SmallVector<PartReader, 2> partsRead(ir::Node& node);

/// Whether all readers of the value drop the axis, which has an extent of 1.
bool isDroppedByReaders(const ir::Value& value, unsigned axis);

/// The graph input that rows come from through movement and updates; null if there is none.
ir::Value* cacheBehind(ir::Value& operand);

/// The graph inputs of whose rows an operand of attention is computed. Other attention is not
/// searched.
void addComputedFrom(ir::Value& operand, const CacheOrigins& origins,
                     llvm::SetVector<const ir::Value*>& inputs);

/// Whether the value is that part of a cache with new rows: made of the input that the part
/// becomes, or of what one of the readers takes of the whole.
bool continuesPart(ir::Value& present, const ir::Value& partInput, const Cell& cell,
                   llvm::ArrayRef<PartReader> readers);

/// Whether no operand of attention is made of several parts.
bool keepOperands(llvm::ArrayRef<PartReader> parts);

/// The one output that the input's rows come out in.
ir::Value* continuationOf(ir::Value& input, const CacheOrigins& origins);

/// Whether the user adds rows to the operand, or writes them over some, and keeps all others.
bool appendsRows(const ir::Use& use);

/// Whether the node gives each element of the operand as it is, or converted.
bool keepsPlaces(const ir::Use& use);

} // namespace kvopt::analysis
