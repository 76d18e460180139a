// Sequences of tensors whose elements are known from the graph alone.
#pragma once

#include "ir/graph.h"

#include "llvm/ADT/DenseMap.h"

namespace kvopt::runtime {

/// Replaces operators on sequences by operators on their elements while a graph is copied, so that
/// no kernel needs to know sequences: SequenceEmpty, SequenceConstruct, SequenceInsert,
/// SequenceErase, SequenceAt, SequenceLength, SequenceMap, SplitToSequence (without sizes, of a
/// fixed extent), ConcatFromSequence, and Identity of a sequence. Positions must be constants.
/// Sequences that are inputs or outputs of a graph, or that branches and loops hand out, are not
/// known.
class StaticSequences {
public:
  using ValueMap = llvm::DenseMap<const ir::Value*, ir::Value*>;
  using Elements = std::vector<ir::Value*>;
  /// The copy of a value that is not a sequence.
  using Mapped = llvm::function_ref<ir::Value*(const ir::Value*)>;
  /// Copies a body with these values for its inputs; its outputs.
  using CopyBody = llvm::function_ref<llvm::Expected<Elements>(const ir::Graph& body,
                                                               llvm::ArrayRef<ir::Value*>)>;

  static bool isSequenceOperator(const ir::Node& node);
  /// Null for a value that is not a known sequence.
  const Elements* find(const ir::Value* value) const;
  void set(const ir::Value& value, Elements elements) { known[&value] = std::move(elements); }

  /// Whether the node was replaced: its results, as far as they are tensors, are in `values`.
  /// Otherwise it is to be copied like any other, and reads nothing that is known here. An error
  /// names a node that reads a known sequence in a way that is not supported.
  llvm::Expected<bool> replace(const ir::Node& node, ir::Graph& target, ValueMap& values,
                               Mapped mapped, CopyBody copyBody);

private:
  llvm::Expected<bool> replaceSequence(const ir::Node& node, const Elements& sequence,
                                       ir::Graph& target, ValueMap& values, Mapped mapped);
  llvm::Expected<bool> replaceMap(const ir::Node& node, Mapped mapped, CopyBody copyBody);
  llvm::Expected<bool> split(const ir::Node& node, ir::Graph& target, Mapped mapped);

  llvm::DenseMap<const ir::Value*, Elements> known;
};

} // namespace kvopt::runtime
