// The results of a node as numbers, from the definition of its operator.
#pragma once

#include "meaning/definitions.h"
#include "meaning/numbers/loops.h"
#include "llvm/Support/Error.h"

namespace kvopt::meaning {

/// Provides memory for the elements of a result, contiguous, in the element types' own widths
/// (types of less than 8 bits take a byte each). Null where nobody reads the result.
using Allocate = llvm::function_ref<llvm::Expected<std::byte*>(
    unsigned result, ir::ElementType type, llvm::ArrayRef<int64_t> extents)>;

/// Computes all results that somebody named. Absent operands are null. Fails where the operator is
/// not defined, where the node is not what ONNX allows, and where an index is out of range.
///
/// It is exact where the operator moves elements or computes integers; a real result is rounded
/// once. Time grows with the elements of the results times the elements that each reads.
llvm::Error computeNode(Define define, const ir::Node& node, int64_t opset,
                        llvm::ArrayRef<const Array*> operands, Allocate allocate);

} // namespace kvopt::meaning
