// Turns inputs that have a default into constants.
//
//   before   g (float[S, 64] x, float scale = 0.125) => (y)      after   g (float[S, 64] x) => (y)
//                                                                        constant scale = 0.125
//
// Before version 4 of ONNX's format every initializer had to be listed as an input, and engines do
// not let callers override it. Since then, a listed initializer may be overridden; yet many files
// list all initializers, because their exporter does. Inputs that recognition reads (integers,
// booleans, single numbers) are assumed to keep their defaults; the context records the assumption,
// and a rewritten model no longer has these inputs. Weights do not change.
#include "passes/pass.h"
#include "support/format.h"

namespace kvopt::transforms {
using namespace ir;
using namespace passes;
using namespace pattern;

namespace {

constexpr const char* fixInputDefaultsName = "fix-input-defaults";
/// First version in which callers may override listed initializers.
constexpr int64_t overridableSince = 4;

bool isReadByRecognition(const TensorData& data) {
  return isInteger(data.elementType()) || data.elementType() == ElementType::Bool ||
         data.elementCount() == 1;
}

class FixInputDefaults final : public Pass {
public:
  llvm::Error run(Model& model, PassContext& context) override {
    Graph& graph = model.graph();
    const bool isOld = model.irVersion < overridableSince;
    llvm::SmallVector<Value*, 32> chosen;
    for (const std::unique_ptr<Value>& input : graph.inputs())
      if (input->initializer() && !input->isGraphOutput() &&
          (isOld || isReadByRecognition(*input->initializer())))
        chosen.push_back(input.get());
    for (Value* input : chosen) {
      const std::string name = input->name().str();
      if (!isOld)
        context.assumptions.push_back(formatted("the input {} keeps its default", name));
      Value& constant = graph.addConstant(name, input->initializer());
      input->replaceAllUsesWith(constant);
      graph.removeInput(*input);
      graph.rename(constant, name);
    }
    if (isOld && !chosen.empty())
      model.irVersion = overridableSince;
    context.count(fixInputDefaultsName, "inputs", static_cast<int64_t>(chosen.size()));
    return llvm::Error::success();
  }
};

} // namespace

void register_fix_input_defaults(PassRegistry& registry) {
  registry.add({fixInputDefaultsName,
                "Turns inputs that have a default into constants.",
                {},
                [](const PassOptions&) {
                  return llvm::Expected<std::unique_ptr<Pass>>(
                      std::make_unique<FixInputDefaults>());
                }});
}

} // namespace kvopt::transforms
