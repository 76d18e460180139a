// Converts models of old opsets to 13, the oldest opset that targets write.
//
// Recognition then finds one form of each operator, and the operators that rules write exist. A
// model with an operator that cannot be converted (passes/opset/op_history.h) does not change: the
// targets name the operator.
#include "ir/shapes/shape_inference.h"
#include "passes/opset/opset_conversion.h"
#include "passes/pass.h"
#include "passes/targets/target.h"

namespace kvopt::transforms {
using namespace ir;
using namespace opset;
using namespace passes;
using namespace targets;

namespace {

class RaiseOldOpset final : public Pass {
public:
  llvm::Error run(Model& model, PassContext& context) override {
    if (model.graph().opsetVersion() >= oldestTargetOpset)
      return llvm::Error::success();
    // Adapters need types.
    if (llvm::Error error = inferShapes(model.graph()))
      return error;
    if (!opsetObstacle(model, oldestTargetOpset))
      context.count("raise-old-opset", "adapted", raiseOpset(model, oldestTargetOpset));
    return llvm::Error::success();
  }
};

} // namespace

void register_raise_old_opset(PassRegistry& registry) {
  registry.add({"raise-old-opset",
                "Converts a model older than opset 13 to opset 13.",
                {},
                [](const PassOptions&) {
                  return llvm::Expected<std::unique_ptr<Pass>>(std::make_unique<RaiseOldOpset>());
                }});
}

} // namespace kvopt::transforms
