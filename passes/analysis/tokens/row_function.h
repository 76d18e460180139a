// Functions that a model applies to each row of a cache before attention reads it.
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

/// A function of single rows, as a separate graph.
struct RowFunction {
  /// A model with the input `rows`, which has the model's extents but any number of rows and any
  /// batch, and one output.
  std::unique_ptr<ir::Model> body;
  /// Nodes of the body, Range(0, n, 1), that enumerate the rows.
  std::vector<ir::Node*> places;
  /// Values of the body that equal one extent of `rows`, with the axis of that extent.
  llvm::DenseMap<const ir::Value*, unsigned> extents;
  /// For other values of the body, the values of the model that they copy.
  llvm::DenseMap<const ir::Value*, ir::Value*> origins;
  /// Nodes that were copied.
  llvm::DenseSet<const ir::Node*> region;
};

/// The function that computes `result` from `rows`, whose row axis is `axis`. Among the other
/// extents, only the batch may be symbolic. Each row of the result is a function of the same row,
/// of its index and of constants; batch rows are independent. Otherwise the reason why there is no
/// such function.
std::variant<RowFunction, std::string> findRowFunction(ir::Value& rows, unsigned axis,
                                                       ir::Value& result);

/// Gives the output of the function the type of its input. Axis i of the new output is axis
/// result[i] of the former one; an empty list keeps the order. nullopt, with no change, unless the
/// two are permutations of one shape.
std::optional<std::vector<int64_t>> orderLikeRows(RowFunction& function);

} // namespace kvopt::analysis
