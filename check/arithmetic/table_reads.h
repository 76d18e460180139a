// TableReads: which entries of constants the steps of a scope read.
#pragma once

#include "check/arithmetic/tensor.h"
#include "ir/node.h"

#include "llvm/ADT/BitVector.h"

#include <map>
#include <string>
#include <tuple>

namespace kvopt::check {

/// Bits of the axes along which elements differ as the contents of a constant do. None for contents
/// that all of its elements show to have a closed form along the axis: equal steps, or a triangle
/// of two numbers.
uint32_t tableAxesOf(const Tensor& constant);

/// Entries of tables that nodes select by something that varies, such as tokens, positions and
/// sizes. A table is a tensor along an axis of Tensor::tableAxes. What a scope shows holds for the
/// entries that it reads only: other entries may be any numbers.
class TableReads {
public:
  /// Notes that a node reads some of the entries of a table. `caller` is the node of the main graph
  /// whose function `node` belongs to, or `node` itself. `which` tells several tables of a node
  /// apart.
  void note(const ir::Node& caller, const ir::Node& node, unsigned which, int64_t entries,
            llvm::ArrayRef<int64_t> read);
  /// Which node leaves entries unread in all steps; empty if none does. The longest step counts
  /// for a table of varying length.
  std::string gap() const;
  void clear() { tables.clear(); }

private:
  struct Table {
    std::string node;
    llvm::BitVector read;
  };
  std::map<std::tuple<const ir::Node*, const ir::Node*, unsigned>, Table> tables;
};

} // namespace kvopt::check
