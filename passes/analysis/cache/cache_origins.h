// CacheOrigins: which values hold the rows of which graph input, found in one walk over the graph.
#pragma once

#include "ir/graph.h"

#include "llvm/ADT/DenseMap.h"

namespace kvopt {

/// A value that is made of the elements of a graph input, element by element.
struct CacheOrigin {
  const Value* input = nullptr; ///< null: of several
  /// The operator that joined new rows to the input's or wrote them over some; null: none so far.
  const Node* update = nullptr;
};

/// Follows every floating-point graph input that could be a cache (three axes or more) forward
/// through operators that keep its rows apart: data movement, concatenation, scattering,
/// elementwise arithmetic, and, once rows have been added, products with weights (a compressed
/// cache that is expanded). Attention, softmax, reductions and other products end it: what a model
/// computes from what it attended to is no cache. Branches see what is handed into them; what they
/// hand out is not followed.
class CacheOrigins {
public:
  explicit CacheOrigins(const Graph& graph);

  /// Null if the value does not come from such an input.
  const CacheOrigin* find(const Value& value) const {
    auto found = origins.find(&value);
    return found == origins.end() ? nullptr : &found->second;
  }

private:
  void walk(const Graph& graph);
  void visit(const Node& node);
  bool selectsNewRows(const Node& node) const;

  llvm::DenseMap<const Value*, CacheOrigin> origins;
};

/// Whether the node adds rows to a cache, or writes them into it: Concat, AppendRows, ScatterND,
/// ScatterElements, TensorScatter.
bool mayUpdateCache(const Node& node);

/// The results of a fused attention operator that are its caches after the step, with the operand
/// that each was before: (operand, result).
llvm::ArrayRef<std::pair<unsigned, unsigned>> fusedCaches(const Node& node);

/// Whether the node is a fused attention operator of ONNX or of com.microsoft.
bool isAttentionOperator(const Node& node);

} // namespace kvopt
