// CacheOrigins: which values hold the rows of which graph input, found in one walk over the graph.
#pragma once

#include "ir/graph.h"

#include "llvm/ADT/DenseMap.h"

namespace kvopt::analysis {

/// A value that is made of the elements of a graph input, element by element.
struct CacheOrigin {
  const ir::Value* input = nullptr; ///< null: of several
  /// The operator that joined new rows to the input's or wrote them over some; null: none so far.
  const ir::Node* update = nullptr;

  bool operator==(const CacheOrigin&) const = default;
};

/// Follows every graph input of floating-point numbers or codes of eight bits that could be a cache
/// (three axes or more) forward
/// through operators that keep its rows apart: data movement, concatenation, scattering,
/// elementwise arithmetic, and, once rows have been added, products with weights (a compressed
/// cache that is expanded). Attention, softmax, reductions and other products end it: what a model
/// computes from what it attended to is no cache. Branches see what is handed into them; what they
/// hand out is not followed.
class CacheOrigins {
public:
  explicit CacheOrigins(const ir::Graph& graph);

  /// Null if the value does not come from such an input.
  const CacheOrigin* find(const ir::Value& value) const {
    auto found = origins.find(&value);
    return found == origins.end() ? nullptr : &found->second;
  }

  /// Follows rows anew after an edit, from inputs that were added and nodes that were created or
  /// read other values than before, all of the graph. Costs what comes from them. Values that are
  /// gone must have been forgotten.
  void follow(llvm::ArrayRef<const ir::Value*> inputs, llvm::ArrayRef<const ir::Node*> nodes);
  /// For a value that is about to go: another may get its address.
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

/// Whether the node adds rows to a cache, or writes them into it: Concat, AppendRows, ScatterND,
/// ScatterElements, TensorScatter.
bool mayUpdateCache(const ir::Node& node);

/// The results of a fused attention operator that are its caches after the step, with the operand
/// that each was before: (operand, result).
llvm::ArrayRef<std::pair<unsigned, unsigned>> fusedCaches(const ir::Node& node);

/// Whether the node is a fused attention operator of ONNX or of com.microsoft.
bool isAttentionOperator(const ir::Node& node);

} // namespace kvopt::analysis
