// Names of ONNX's operators and of ONNX Runtime's.
#include "passes/analysis/scores/quantized_products.h"

#include "llvm/ADT/StringSwitch.h"

namespace kvopt::analysis {
using namespace ir;

bool worksOnCodes(const Node& node) {
  return llvm::StringSwitch<bool>(node.op().type())
      .Cases("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", true)
      .Cases("MatMulInteger", "MatMulIntegerToFloat", "DynamicQuantizeMatMul", "QLinearMatMul",
             true)
      .Cases("QLinearAdd", "QLinearMul", "QLinearSoftmax", "QLinearWhere", true)
      .Default(false);
}

const Value* secondFactor(const Node& node) {
  int operand = llvm::StringSwitch<int>(node.op().type())
                    .Cases("MatMul", "FusedMatMul", 1)
                    .Cases("MatMulInteger", "MatMulIntegerToFloat", "DynamicQuantizeMatMul", 1)
                    .Case("QLinearMatMul", 3)
                    .Default(-1);
  return operand < 0 ? nullptr : node.operand(static_cast<unsigned>(operand));
}

} // namespace kvopt::analysis
