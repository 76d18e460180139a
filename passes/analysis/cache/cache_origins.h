// CacheOrigins: values that hold the rows of graph inputs, found in one walk over the graph.
#pragma once

#include "ir/graph.h"

#include "llvm/ADT/DenseMap.h"

namespace kvopt::analysis {

/// Origin of a value that consists of elements of a graph input.
struct CacheOrigin {
  const ir::Value* input = nullptr; ///< null: several inputs
  /// Operator that joined new rows to the input's, or overwrote some; null if there is none yet.
  const ir::Node* update = nullptr;

  bool operator==(const CacheOrigin&) const = default;
};

/// Follows every graph input that could be a cache (floating-point numbers or codes of eight bits,
/// three or more axes) forward through operators that keep its rows separate: data movement,
/// concatenation, scattering, elementwise arithmetic and, once rows have been added, products with
/// weights (expansion of a compressed cache). Attention, softmax, reductions and other products end
/// the walk, because results of attention are not caches. Captured values are followed into
/// branches; results of branches are not followed.
class CacheOrigins {
public:
  explicit CacheOrigins(const ir::Graph& graph);

  /// Null if the value does not come from such an input.
  const CacheOrigin* find(const ir::Value& value) const {
    auto found = origins.find(&value);
    return found == origins.end() ? nullptr : &found->second;
  }

  /// Updates the origins of rows after an edit, from added inputs and from nodes that were created
  /// or have new operands, all in this graph. The cost is linear in what follows from them. Erased
  /// values must have been forgotten.
  void follow(llvm::ArrayRef<const ir::Value*> inputs, llvm::ArrayRef<const ir::Node*> nodes);
  /// Forgets a value that will be erased, because another may get its address.
  void forget(const ir::Value& value) { origins.erase(&value); }

private:
  void begin(const ir::Value& input);
  void walk(const ir::Graph& graph);
  bool revisit(const ir::Node& node);
  void visit(const ir::Node& node);
  bool selectsNewRows(const ir::Node& node) const;

  const ir::Graph& followed;
  llvm::DenseMap<const ir::Value*, CacheOrigin> origins;
};

/// Whether the node adds rows to a cache, or overwrites rows: Concat, AppendRows, ScatterND,
/// ScatterElements, TensorScatter.
bool mayUpdateCache(const ir::Node& node);

/// The results of a fused attention operator that are caches after the step, each with the operand
/// that holds the cache before: (operand, result).
llvm::ArrayRef<std::pair<unsigned, unsigned>> fusedCaches(const ir::Node& node);

/// Whether the node is a fused attention operator of ONNX or com.microsoft.
bool isAttentionOperator(const ir::Node& node);

} // namespace kvopt::analysis
