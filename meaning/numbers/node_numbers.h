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

/// Computes all results that somebody named. Absent operands are null; those without data have only
/// extents. Fails where the operator is not defined, where the node is not what ONNX allows, and
/// where an index is out of range.
///
/// It is exact where the operator moves elements or computes integers; a real result is rounded
/// once. Time grows with the elements of the results times the elements that each reads.
llvm::Error computeNode(Define define, const ir::Node& node, int64_t opset,
                        llvm::ArrayRef<const Array*> operands, Allocate allocate);

/// An array that owns its elements.
struct StoredArray : Array {
  std::vector<std::byte> bytes;
  size_t count = 0;

  StoredArray() = default;
  StoredArray(ir::ElementType elementType, llvm::ArrayRef<int64_t> shape);
  StoredArray(StoredArray&&) = default;
  StoredArray& operator=(StoredArray&&) = default;
};

/// One result of a node, by the operator's definition; none where `computeNode` fails, and where
/// the result has more elements.
std::optional<StoredArray> computeResult(const ir::Node& node, unsigned result,
                                         llvm::ArrayRef<const Array*> operands,
                                         double mostElements);
/// The extents of a result; none where operands without data do not determine them.
std::optional<llvm::SmallVector<int64_t, 6>> computeExtents(const ir::Node& node, unsigned result,
                                                            llvm::ArrayRef<const Array*> operands);

} // namespace kvopt::meaning
