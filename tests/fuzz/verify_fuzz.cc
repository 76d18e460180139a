// Pairs for verify: a decoder and a copy of it. A copy that somebody changed must be found
// different, and one that nobody changed equal. The bytes choose the decoder and the changes.
#include "driver/verify/verification.h"
#include "ir/shapes/shape_inference.h"
#include "ir/tensor.h"
#include "tests/fuzz/choices.h"
#include "tests/fuzz/decoders.h"
#include "tests/fuzz/exercise.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"

namespace {

using namespace kvopt;
using namespace kvopt::analysis;
using namespace kvopt::driver;
using namespace kvopt::ir;
using namespace kvopt::passes;
using namespace kvopt::pattern;
using namespace kvopt::runtime;
using namespace kvopt::targets;

using fuzz::Choices;

class RandomChange {
public:
  RandomChange(Graph& modelGraph, Choices& madeChoices) : graph(modelGraph), choices(madeChoices) {}

  /// Makes one change; false where the model has nothing to change that way.
  bool make() {
    switch (choices.below(6)) {
    case 0:
      return renameOutput();
    case 1:
      return removeOutput();
    case 2:
      return addOutput();
    case 3:
      return exchangeOutputs();
    case 4:
      return scaleWeight();
    default:
      return changeScale();
    }
  }

private:
  unsigned anyOutput() { return static_cast<unsigned>(choices.below(graph.outputs().size())); }
  /// The last one has to stay: a graph without outputs is refused, which is not equal either.
  bool removeOutput() {
    if (graph.outputs().size() < 2)
      return false;
    graph.removeOutput(anyOutput());
    return true;
  }
  bool renameOutput() {
    graph.rename(*graph.outputs()[anyOutput()], graph.freshName("renamed"));
    return true;
  }
  bool addOutput() {
    Node& copy = graph.createFresh(OpName("Identity"), {graph.outputs()[anyOutput()]}, 1);
    mustInfer(copy);
    graph.addOutput(copy.result());
    return true;
  }
  /// Names stay where they are; what they stand for changes places.
  bool exchangeOutputs() {
    const unsigned first = anyOutput();
    llvm::SmallVector<unsigned, 8> alike;
    for (unsigned slot = 0; slot < graph.outputs().size(); ++slot)
      if (slot != first && graph.outputs()[slot]->type() == graph.outputs()[first]->type())
        alike.push_back(slot);
    if (alike.empty())
      return false;
    Value& one = *graph.outputs()[first];
    Value& other = *graph.outputs()[choices.of(alike)];
    const std::string nameOfOne = one.name().str();
    const std::string nameOfOther = other.name().str();
    graph.rename(one, graph.freshName("exchanged"));
    graph.rename(other, nameOfOne);
    graph.rename(one, nameOfOther);
    return true;
  }
  bool scaleWeight() {
    llvm::SmallVector<Value*, 32> weights;
    for (const std::unique_ptr<Value>& initializer : graph.initializers()) {
      const TensorRef& data = initializer->initializer();
      const bool isMultiplied = llvm::any_of(initializer->uses(), [](const Use& use) {
        return use.user().is("MatMul") || use.user().is("Gemm");
      });
      if (data && isMultiplied && data->elementType() == ElementType::Float &&
          data->elementCount() >= 64)
        weights.push_back(initializer.get());
    }
    if (weights.empty())
      return false;
    Value& weight = *choices.of(weights);
    const double factor = 1.25 + static_cast<double>(choices.below(256)) / 64;
    Value& scale = graph.addConstant("factor", floatScalar(ElementType::Float, factor));
    Node& scaled = graph.createFresh(OpName("Mul"), {&weight, &scale}, 1, &*graph.nodes().begin());
    mustInfer(scaled);
    for (Use& use : llvm::make_early_inc_range(weight.uses()))
      if (&use.user() != &scaled)
        use.user().setOperand(use.operandIndex(), &scaled.result());
    return true;
  }
  /// Of an attention.
  bool changeScale() {
    llvm::SmallVector<Node*, 8> scaled;
    for (Node& node : graph.nodes())
      if (const Attribute* scale = node.attribute("scale"))
        if (scale->kind() == AttributeKind::Float && scale->floatValue() != 0)
          scaled.push_back(&node);
    if (scaled.empty())
      return false;
    Node& node = *choices.of(scaled);
    const float factor = 2 + static_cast<float>(choices.below(256)) / 64;
    node.setAttribute("scale", Attribute::ofFloat(node.attribute("scale")->floatValue() * factor));
    return true;
  }

  static void mustInfer(Node& node) { fuzz::mustHold(inferNode(node), "an added node"); }

  Graph& graph;
  Choices& choices;
};

VerificationPlan smallPlan() {
  EquivalencePlan plan = quickVerification();
  plan.prompt = 5;
  plan.chunks = {2};
  plan.decodeSteps = 2;
  return plan;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Choices choices({data, size});
  const fuzz::Decoder& decoder = fuzz::decoders()[choices.below(fuzz::decoders().size())];
  std::unique_ptr<Model> copy = fuzz::copyOf(*decoder.model);
  if (llvm::Error error = inferShapes(copy->graph()))
    fuzz::mustHold(std::move(error), "a copy");
  const bool isChanged = !choices.isEmpty() && RandomChange(copy->graph(), choices).make();
  auto report = verifyModels(*decoder.model, decoder.manifest, *copy, decoder.manifest, smallPlan(),
                             1, fuzz::toolkit());
  const bool isEqual = report && report->equal();
  if (!report) {
    if (!isChanged)
      fuzz::mustHold(report.takeError(), "an unchanged copy");
    fuzz::refused(report.takeError());
  }
  if (isEqual == isChanged) {
    std::fprintf(stderr, "%s: a copy that %s is %s\n", decoder.name.c_str(),
                 isChanged ? "was changed" : "nobody changed", isEqual ? "equal" : "different");
    std::abort();
  }
  return 0;
}
