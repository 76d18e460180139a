// Axes that operators combine, by operator name.
#include "passes/analysis/tokens/row_operators.h"

#include "ir/movement.h"
#include "ir/op.h"
#include "support/string_ends.h"

#include "llvm/ADT/STLExtras.h"

#include <array>

namespace kvopt::analysis {
using namespace ir;

std::optional<llvm::SmallVector<int64_t, 4>> combinedAxes(const Node& node, int64_t rank) {
  if (hasUnknownOperands(node))
    return std::nullopt;
  llvm::SmallVector<int64_t, 4> axes;
  const llvm::StringRef type = node.op().type();
  const auto fromAxis = [&](int64_t first) {
    for (int64_t axis = first < 0 ? first + rank : first; axis < rank; ++axis)
      axes.push_back(axis);
    return axes;
  };
  const auto oneAxis = [&](int64_t axis) {
    axes.push_back(axis < 0 ? axis + rank : axis);
    return axes;
  };
  if (type == "LayerNormalization" || type == "RMSNormalization" ||
      type == "SimplifiedLayerNormalization")
    return fromAxis(node.intAttr("axis", -1));
  if (type == "SkipLayerNormalization" || type == "SkipSimplifiedLayerNormalization")
    return fromAxis(-1);
  if (!node.op().isOnnx())
    return std::nullopt;
  if (type == "Softmax" || type == "LogSoftmax" || type == "LpNormalization" || type == "TopK")
    return oneAxis(node.intAttr("axis", -1));
  if (type == "ArgMax" || type == "ArgMin")
    return oneAxis(node.intAttr("axis", 0));
  if (type == "CumSum") {
    auto given = knownIntegersOf(node, 1, "");
    return given && given->size() == 1 ? std::optional(oneAxis(given->front())) : std::nullopt;
  }
  if (startsWith(type, "Reduce")) {
    auto given = knownIntegersOf(node, 1, "axes");
    if (!given || given->empty())
      return std::nullopt; // all axes
    for (int64_t axis : *given)
      oneAxis(axis);
    return axes;
  }
  return std::nullopt;
}

bool quantizesDynamically(const Node& node) {
  return node.is("DynamicQuantizeLinear") || node.is("com.microsoft::DynamicQuantizeMatMul");
}

bool isRowProduct(const Node& node) {
  if (node.op().isOnnx())
    return node.is("MatMul");
  return node.op().domain() == "com.microsoft" && node.op().type() == "MatMulNBits" &&
         !hasUnknownOperands(node);
}

bool isGemm(const Node& node) { return node.is("Gemm") || node.is("com.microsoft::FusedGemm"); }

bool isScaledProduct(const Node& node) {
  return node.is("com.microsoft::FusedMatMul") &&
         llvm::none_of(std::array{"transA", "transBatchA", "transBatchB"},
                       [&](const char* name) { return node.intAttr(name, 0) != 0; });
}

} // namespace kvopt::analysis
