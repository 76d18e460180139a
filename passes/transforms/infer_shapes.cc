// Symbolic types of every value.
#include "ir/shape_inference.h"
#include "passes/pass.h"

namespace kvopt {
namespace {

class InferShapes final : public Pass {
public:
  llvm::Error run(Model& model, PassContext&) override { return inferShapes(model.graph()); }
};

} // namespace

void register_infer_shapes(PassRegistry& registry) {
  registry.add({"infer-shapes", "Symbolic types of every value.", {}, [](const PassOptions&) {
                  return llvm::Expected<std::unique_ptr<Pass>>(std::make_unique<InferShapes>());
                }});
}

} // namespace kvopt
