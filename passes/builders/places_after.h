// Places of rows behind those of a cache.
#pragma once

#include "passes/builders/attention_builder.h"

namespace kvopt::builders {

/// For nodes that count rows from 0: operands with which they count on from the rows of a cache.
class PlacesAfter {
public:
  /// `past` is the cache, with its rows along `axis`.
  PlacesAfter(AttentionBuilder& builder, ir::Value& past, unsigned axis)
      : build(builder), cache(past), rowAxis(axis) {}

  using Operands = llvm::SmallVector<ir::Value*, 5>;

  /// Of Range(0, n, 1): P, P + n, 1.
  Operands ofRange(Operands operands);
  /// Of Slice(table, 0, n, …): table, P, P + n, ….
  Operands ofTable(Operands operands);

private:
  /// Of the element type of `like`, int64 or int32, and as many axes.
  ir::Value& pastRows(const ir::Value& like, bool isScalar);

  AttentionBuilder& build;
  ir::Value& cache;
  unsigned rowAxis;
};

} // namespace kvopt::builders
