// Sequences of tensors whose elements are known from the graph alone.
#pragma once

#include "ir/graph.h"

#include "llvm/ADT/DenseMap.h"

namespace kvopt {

/// Replaces operators on sequences by operators on their elements while a graph is copied, so that
/// no kernel needs to know sequences: SequenceEmpty, SequenceConstruct, SequenceInsert,
/// SequenceErase, SequenceAt, SequenceLength, SequenceMap, SplitToSequence (without sizes, of a
/// fixed extent), ConcatFromSequence, and Identity of a sequence. Positions must be constants.
/// Sequences that are inputs or outputs of a graph, or that branches and loops hand out, are not
/// known.
class StaticSequences {
public:
  using ValueMap = llvm::DenseMap<const Value*, Value*>;
  using Elements = std::vector<Value*>;
  /// The copy of a value that is not a sequence.
  using Mapped = llvm::function_ref<Value*(const Value*)>;
  /// Copies a body with these values for its inputs; its outputs.
  using CopyBody =
      llvm::function_ref<llvm::Expected<Elements>(const Graph& body, llvm::ArrayRef<Value*>)>;

  static bool isSequenceOperator(const Node& node);
  /// Null for a value that is not a known sequence.
  const Elements* find(const Value* value) const;
  void set(const Value& value, Elements elements) { known[&value] = std::move(elements); }

  /// Whether the node was replaced: its results, as far as they are tensors, are in `values`.
  /// Otherwise it is to be copied like any other, and reads nothing that is known here. An error
  /// names a node that reads a known sequence in a way that is not supported.
  llvm::Expected<bool> replace(const Node& node, Graph& target, ValueMap& values, Mapped mapped,
                               CopyBody copyBody);

private:
  llvm::Expected<bool> replaceSequence(const Node& node, const Elements& sequence, Graph& target,
                                       ValueMap& values, Mapped mapped);
  llvm::Expected<bool> replaceMap(const Node& node, Mapped mapped, CopyBody copyBody);
  llvm::Expected<bool> split(const Node& node, Graph& target, Mapped mapped);

  llvm::DenseMap<const Value*, Elements> known;
};

} // namespace kvopt
