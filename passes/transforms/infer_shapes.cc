// Infers symbolic types of all values. A symbol that the graph makes a number is that number in all
// inputs.
#include "ir/op.h"
#include "ir/shapes/shape_inference.h"
#include "passes/builders/attention_builder.h"
#include "passes/extents/fixed_extents.h"
#include "passes/pass.h"

namespace kvopt::transforms {
using namespace builders;
using namespace ir;
using namespace passes;
using namespace pattern;

namespace {

class InferShapes final : public Pass {
public:
  llvm::Error run(Model& model, PassContext&) override {
    if (llvm::Error error = inferShapes(model.graph()))
      return error;
    if (const auto fixed = extents::fixedExtents(model.graph()); !fixed.empty()) {
      for (const extents::FixedExtent& extent : fixed)
        model.unequalExtents.push_back(extent.text());
      extents::fixSymbols(model.graph(), fixed);
      if (llvm::Error error = inferShapes(model.graph()))
        return error;
    }
    return refineInputs(model.graph()) ? inferShapes(model.graph()) : llvm::Error::success();
  }

private:
  /// An input to which rows are appended has their extents, except that of the sequence.
  static bool refineInputs(Graph& graph) {
    bool refined = false;
    forEachGraph(graph, [&](Graph& visited) {
      for (Node& node : visited.nodes()) {
        if (!node.is("Concat") || node.operands().size() != 2 || !node.operand(0) ||
            !node.operand(1) || !node.operand(0)->isGraphInput() ||
            node.operand(0)->graph().parentNode())
          continue;
        const TensorType& type = node.operand(0)->type();
        auto axis = type.hasRank() ? normalizedAxis(node.intAttr("axis", 0), type.rank())
                                   : std::optional<unsigned>();
        if (!axis || !refineCacheType(*node.operand(0), *node.operand(1), *axis))
          continue;
        refineCacheType(node.result(), *node.operand(1), *axis);
        refined = true;
      }
    });
    return refined;
  }
};

} // namespace

void register_infer_shapes(PassRegistry& registry) {
  registry.add({"infer-shapes", "Infers symbolic types of all values.", {}, [](const PassOptions&) {
                  return llvm::Expected<std::unique_ptr<Pass>>(std::make_unique<InferShapes>());
                }});
}

} // namespace kvopt::transforms
