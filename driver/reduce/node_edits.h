// Edits that remove nodes from a model.
#pragma once

#include "ir/model.h"

#include <string>
#include <vector>

namespace kvopt::driver {

/// Replacement of the results that a removed node computed.
enum class Replacement {
  Input,   ///< A new graph input of the same type.
  Operand, ///< A value of the same type that a removed node reads, or else zeros.
};

/// Names of the nodes of the main graph, in order: each is the name of the first result.
std::vector<std::string> nodeNames(const ir::Graph& graph);

/// Removes nodes of the main graph. Results that other nodes read are replaced. Outputs that the
/// nodes compute are removed, and inputs that only they read. With `keepsOperands`, values of other
/// nodes that only the removed ones read become outputs; otherwise nothing reads them afterwards.
/// False, with the graph in an undefined state, if a replacement is not possible.
bool removeNodes(ir::Graph& graph, llvm::ArrayRef<std::string> names, Replacement replacement,
                 bool keepsOperands);

/// Keys of the nodes in subgraphs and functions.
std::vector<std::string> nestedNodeKeys(ir::Model& model);

/// Removes nodes of subgraphs and functions; results are replaced as by `Replacement::Operand`. In
/// functions, whose values have no types, any operand replaces a result. False if a replacement is
/// not possible.
bool removeNestedNodes(ir::Model& model, llvm::ArrayRef<std::string> keys);

/// Replaces a node of the main graph by the nodes of one of its subgraphs. False for a subgraph
/// with inputs or with subgraphs, and for a number of outputs that differs.
bool takeBranch(ir::Graph& graph, llvm::StringRef node, unsigned branch);

} // namespace kvopt::driver
