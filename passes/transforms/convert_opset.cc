// Converts the whole model to a newer opset of ONNX's own domain.
//
//   convert-opset{to=24}
#include "ir/shapes/shape_inference.h"
#include "passes/opset/op_history.h"
#include "passes/opset/opset_conversion.h"
#include "passes/pass.h"
#include "support/diagnostic.h"

namespace kvopt::transforms {
using namespace ir;
using namespace opset;
using namespace passes;
using namespace pattern;

namespace {

class ConvertOpset final : public Pass {
public:
  explicit ConvertOpset(int64_t newOpset) : opset(newOpset) {}

  llvm::Error run(Model& model, PassContext& context) override {
    if (std::optional<MatchFailure> failure = opsetObstacle(model, opset))
      return unsupported("the model cannot be converted to opset {}: {}", opset, failure->str());
    context.count("convert-opset", "adapted", raiseOpset(model, opset));
    return inferShapes(model.graph());
  }

private:
  int64_t opset;
};

llvm::Expected<std::unique_ptr<Pass>> makeConvertOpset(const PassOptions& given) {
  auto option = given.find("to");
  int64_t opset = 0;
  if (option == given.end() || llvm::StringRef(option->second).getAsInteger(10, opset) ||
      opset < 1 || opset > newestKnownOpset)
    return usageError("convert-opset needs to=OPSET, at most {}", newestKnownOpset);
  return std::make_unique<ConvertOpset>(opset);
}

} // namespace

void register_convert_opset(PassRegistry& registry) {
  registry.add({"convert-opset",
                "Converts the whole model to a newer opset of ONNX's own domain.",
                {"to"},
                makeConvertOpset});
}

} // namespace kvopt::transforms
