// Sequences of tensors whose elements are determined by the graph.
#pragma once

#include "ir/graph.h"

#include "llvm/ADT/DenseMap.h"

namespace kvopt::runtime {

/// Replaces operators on sequences by operators on their elements while a graph is copied, so that
/// no kernel needs to support sequences: SequenceEmpty, SequenceConstruct, SequenceInsert,
/// SequenceErase, SequenceAt, SequenceLength, SequenceMap, SplitToSequence (without sizes, with a
/// fixed extent), ConcatFromSequence, and Identity of a sequence. Positions must be constant.
/// Sequences that are inputs or outputs of a graph, or that branches and loops return, are not
/// supported.
class StaticSequences {
public:
  using ValueMap = llvm::DenseMap<const ir::Value*, ir::Value*>;
  using Elements = std::vector<ir::Value*>;
  /// Returns the copy of a value that is not a sequence.
  using Mapped = llvm::function_ref<ir::Value*(const ir::Value*)>;
  /// Copies a body with these values for its inputs, and returns its outputs.
  using CopyBody = llvm::function_ref<llvm::Expected<Elements>(const ir::Graph& body,
                                                               llvm::ArrayRef<ir::Value*>)>;

  static bool isSequenceOperator(const ir::Node& node);
  /// Elements of a sequence; null for a value that is not a known sequence.
  const Elements* find(const ir::Value* value) const;
  void set(const ir::Value& value, Elements elements) { known[&value] = std::move(elements); }

  /// Replaces the node and returns true if it uses known sequences. Its results that are tensors
  /// are then in `values`. Otherwise returns false: the node reads no known sequence and must be
  /// copied. An error names a node with an unsupported use of a known sequence.
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
