// ModelDifference: differences between two models.
#pragma once

#include "driver/diff/attention_blocks.h"

namespace kvopt::driver {

enum class Change { Same, Changed, Renamed, Added, Removed };

/// An input or output of the model.
struct InterfaceChange {
  Change change = Change::Changed;
  std::string before; ///< name; empty if it was added
  std::string after;  ///< name; empty if it was removed
  std::string typeBefore;
  std::string typeAfter;

  const std::string& name() const { return after.empty() ? before : after; }
};

/// One attention block in both models; null if a model has none for that layer.
struct BlockChange {
  Change change = Change::Same;
  const AttentionSubgraph* before = nullptr;
  const AttentionSubgraph* after = nullptr;

  const AttentionSubgraph& either() const { return before ? *before : *after; }
};

/// Comparison of two models, to which it refers.
struct ModelDifference {
  ir::OpsetImports opsetsBefore;
  ir::OpsetImports opsetsAfter;
  int64_t irBefore = 0;
  int64_t irAfter = 0;
  OpCounts opsBefore;
  OpCounts opsAfter;
  std::vector<InterfaceChange> inputs;  ///< changed ones only
  std::vector<InterfaceChange> outputs; ///< changed ones only
  std::vector<BlockChange> blocks;      ///< all, by layer

  /// Whether the models agree in all members of this struct. They may differ elsewhere.
  bool isEmpty() const;
  /// `same`, `changed`, `renamed`, `added` or `removed`.
  static const char* name(Change change);
};

ModelDifference differenceOf(const BlockedModel& before, const BlockedModel& after);

/// Whether two nodes perform the same operation on values of the same names.
bool isSameNode(const ir::Node& a, const ir::Node& b);

/// Nodes of `block` that `other` also has.
llvm::DenseSet<const ir::Node*> nodesKept(const AttentionSubgraph& block,
                                          const AttentionSubgraph& other);

} // namespace kvopt::driver
