// What a model computes of each row of a cache before attention reads it.
#pragma once

#include "ir/model.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace kvopt::analysis {

/// A function of single rows, in a graph of its own.
struct RowFunction {
  /// The input `rows`, with the model's extents but for any number of rows and any batch, and one
  /// output.
  std::unique_ptr<ir::Model> body;
  /// Nodes of the body, Range(0, n, 1), that count the rows.
  std::vector<ir::Node*> places;
  /// Values of the body that are one extent of `rows`, with the axis that it is along.
  llvm::DenseMap<const ir::Value*, unsigned> extents;
  /// For other values of the body, those of the model that they are copies of.
  llvm::DenseMap<const ir::Value*, ir::Value*> origins;
  /// The nodes that were copied.
  llvm::DenseSet<const ir::Node*> region;
};

/// The function that makes `result` of `rows`, which lie along `axis`. Of their other extents, one,
/// the batch's, need not be a number. Each row of the result is a
/// function of the same row, of its index and of constants, and no row of the batch has a part in
/// another's. Otherwise, why that is not so.
std::variant<RowFunction, std::string> findRowFunction(ir::Value& rows, unsigned axis,
                                                       ir::Value& result);

/// Gives the function an output of the type of its input. Axis i of that is axis result[i] of what
/// it was; empty: of the same axis. nullopt, and nothing changed, where the two are no orders of
/// one shape.
std::optional<std::vector<int64_t>> orderLikeRows(RowFunction& function);

} // namespace kvopt::analysis
