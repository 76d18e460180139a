// Edits that remove outputs, inputs, attributes, operands, functions and metadata from a model.
#pragma once

#include "ir/model.h"

#include <string>
#include <vector>

namespace kvopt::driver {

std::vector<std::string> outputNames(const ir::Graph& graph);
/// Removes outputs with these names. False if none would remain.
bool removeOutputs(ir::Graph& graph, llvm::ArrayRef<std::string> names);

/// Names of inputs that nothing reads.
std::vector<std::string> unreadInputs(const ir::Graph& graph);
bool removeInputs(ir::Graph& graph, llvm::ArrayRef<std::string> names);

/// Keys of attributes of nodes in the main graph that the operators do not require.
std::vector<std::string> attributeKeys(const ir::Graph& graph);
bool removeAttributes(ir::Graph& graph, llvm::ArrayRef<std::string> keys);

/// Keys of operands that the operators do not require, and of the last operands of operators with
/// any number of them.
std::vector<std::string> operandKeys(const ir::Graph& graph);
bool removeOperands(ir::Graph& graph, llvm::ArrayRef<std::string> keys);

std::vector<std::string> metadataKeys(const ir::Model& model);
bool removeMetadata(ir::Model& model, llvm::ArrayRef<std::string> keys);

} // namespace kvopt::driver
