// Positions of rows that follow the rows of a cache.
#pragma once

#include "passes/builders/attention_builder.h"

namespace kvopt::builders {

/// Rewrites operands of nodes that count rows from 0, so that they count from the number of rows in
/// the cache.
class PlacesAfter {
public:
  /// `past` is the cache, with its rows along `axis`.
  PlacesAfter(AttentionBuilder& builder, ir::Value& past, unsigned axis)
      : build(builder), cache(past), rowAxis(axis) {}

  using Operands = llvm::SmallVector<ir::Value*, 5>;

  /// Operands of Range(0, n, 1) become P, P + n, 1.
  Operands ofRange(Operands operands);
  /// Operands of Slice(table, 0, n, …) become table, P, P + n, ….
  Operands ofTable(Operands operands);

private:
  /// The number of rows P, with the element type (int64 or int32) and the rank of `like`.
  ir::Value& pastRows(const ir::Value& like, bool isScalar);

  AttentionBuilder& build;
  ir::Value& cache;
  unsigned rowAxis;
};

} // namespace kvopt::builders
