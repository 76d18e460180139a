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

/// Calls `visit` for the name of every value that the node reads from the graph it is in or from
/// graphs around that: its operands, and what its subgraphs read without defining it.
void forEachOuterName(const onnx::NodeProto& node, llvm::function_ref<void(llvm::StringRef)> visit);

/// The indices first … messages.size()-1 in an order in which every node follows those whose
/// results it reads. As far as that allows they stay in the order of the file; names that none of
/// these nodes defines do not matter. A cycle is an error that names its nodes.
llvm::Expected<std::vector<int>> executionOrder(const NodeMessages& messages, int first);

} // namespace kvopt::ir
