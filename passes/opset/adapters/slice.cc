// Slice: starts, ends and axes are operands since 10.
#include "passes/opset/opset_adapter.h"

namespace kvopt::opset {
using namespace ir;

namespace {

constexpr const char* sliceAttributes[] = {"starts", "ends", "axes"};

std::optional<std::string> obstacleToSlice(const Node& node) {
  const std::optional<llvm::ArrayRef<int64_t>> starts = node.intsAttr("starts");
  const std::optional<llvm::ArrayRef<int64_t>> ends = node.intsAttr("ends");
  if (!starts || !ends || starts->empty() || starts->size() != ends->size())
    return "no starts and ends, or different numbers of them";
  return std::nullopt;
}

void adaptSlice(const OpsetEdit& edit) {
  unsigned operand = 1;
  for (const char* name : sliceAttributes)
    edit.intsToOperand(name, operand++);
}

} // namespace

void register_slice(OpsetAdapterRegistry& registry) {
  registry.add({"Slice", 10, obstacleToSlice, adaptSlice, sliceAttributes});
}

} // namespace kvopt::opset
