// Execution order of the nodes of a file.
#pragma once

#include "kvopt_onnx.pb.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <vector>

namespace kvopt::ir {

using NodeMessages = google::protobuf::RepeatedPtrField<onnx::NodeProto>;

/// Calls `visit` for the name of every value that the node reads from its graph or from enclosing
/// graphs: its operands, and names that its subgraphs read without defining them.
void forEachOuterName(const onnx::NodeProto& node, llvm::function_ref<void(llvm::StringRef)> visit);

/// Indices first … messages.size()-1 in an order in which each node follows the producers of its
/// operands. Otherwise the order of the file is preserved. Names that these nodes do not define are
/// ignored. A cycle is an error that names its nodes.
llvm::Expected<std::vector<int>> executionOrder(const NodeMessages& messages, int first);

} // namespace kvopt::ir
