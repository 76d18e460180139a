// Rewritten models that were changed afterwards: the defaults of verify find every change.
#include "tests/equivalence/rewritten_model.h"

#include "driver/variants.h"

#include "llvm/ADT/STLExtras.h"

#include <cstdlib>
#include <iostream>
#include <map>

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace pattern;

namespace {

/// Edits the results of a model that has a float output `logits` [B,S,V].
class Tampering {
public:
  /// `mostTokens`: no step of the original reaches further.
  Tampering(Graph& modelGraph, Manifest& modelManifest, int64_t mostTokens, uint64_t seed)
      : graph(modelGraph), manifest(modelManifest), limit(mostTokens), random(seed) {}

  /// Makes a change of that kind; false where the model has nothing of the kind.
  bool apply(llvm::StringRef kind) {
    const std::map<std::string, bool (Tampering::*)()> kinds = {
        {"missing output", &Tampering::removeLogits},
        {"additional output", &Tampering::addOutput},
        {"renamed output", &Tampering::renameLogits},
        {"exchanged presents", &Tampering::exchangePresents},
        {"reordered outputs", &Tampering::reorderOutputs},
        {"weight", &Tampering::scaleWeight},
        {"scale", &Tampering::changeScale},
        {"batch row", &Tampering::changeLateRows},
        {"padding", &Tampering::changePadded},
        {"depth", &Tampering::changeLateTokens},
        {"prompt of five", &Tampering::changeFive},
        {"single token", &Tampering::changeOne},
        {"capacity in metadata", &Tampering::stateCapacity}};
    return (this->*kinds.at(kind.str()))();
  }

private:
  std::optional<unsigned> logitsSlot() const {
    for (unsigned slot = 0; slot < graph.outputs().size(); ++slot)
      if (graph.outputs()[slot]->name() == "logits")
        return slot;
    return std::nullopt;
  }
  Value* input(llvm::StringRef name) const {
    for (const std::unique_ptr<Value>& each : graph.inputs())
      if (each->name() == name)
        return each.get();
    return nullptr;
  }
  Value& make(OpName op, std::vector<Value*> operands,
              std::vector<std::pair<std::string, int64_t>> attributes = {}) {
    Node& node = graph.createFresh(op, operands, 1);
    for (const auto& [name, value] : attributes)
      node.setAttribute(name, Attribute::ofInt(value));
    llvm::cantFail(inferNode(node));
    return node.result();
  }
  Value& integer(int64_t value) { return graph.addConstant("integer", int64Scalar(value)); }
  Value& extent(Value& value, int64_t axis) {
    return make("Gather", {&make("Shape", {&value}), &integer(axis)});
  }
  Value& asFloat(Value& condition) { return make("Cast", {&condition}, {{"to", 1}}); }

  /// Adds to the logits what `build` makes of them, which has to broadcast.
  bool addToLogits(llvm::function_ref<Value*(Value&)> build) {
    const auto slot = logitsSlot();
    if (!slot)
      return false;
    Value& logits = *graph.outputs()[*slot];
    Value* offset = build(logits);
    if (!offset)
      return false;
    graph.rename(logits, graph.freshName("untouched"));
    Value& sum = make("Add", {&logits, offset});
    graph.rename(sum, "logits");
    graph.setOutput(*slot, sum);
    return true;
  }

  bool removeLogits() {
    const auto slot = logitsSlot();
    if (slot)
      graph.removeOutput(*slot);
    return slot.has_value();
  }
  bool addOutput() {
    const auto slot = logitsSlot();
    if (slot)
      graph.addOutput(make("Identity", {graph.outputs()[*slot]}));
    return slot.has_value();
  }
  bool renameLogits() {
    const auto slot = logitsSlot();
    if (slot)
      graph.rename(*graph.outputs()[*slot], graph.freshName("scores"));
    return slot.has_value();
  }
  bool exchangePresents() {
    llvm::SmallVector<Value*, 8> presents;
    for (Value* output : graph.outputs())
      for (const ManifestCache& cache : manifest.caches)
        if (output->name() == cache.present && cache.dtype == ElementType::Float)
          presents.push_back(output);
    if (presents.size() < 2)
      return false;
    Value& one = *presents[random() % presents.size()];
    Value& other = *presents[random() % presents.size()];
    if (&one == &other)
      return exchangePresents();
    const std::string nameOfOne = one.name().str();
    const std::string nameOfOther = other.name().str();
    graph.rename(one, graph.freshName("exchanged"));
    graph.rename(other, nameOfOne);
    graph.rename(one, nameOfOther);
    return true;
  }
  bool reorderOutputs() {
    // Of the caches that the original has too, two change places, with their names.
    llvm::SmallVector<unsigned, 8> slots;
    for (unsigned slot = 0; slot < graph.outputs().size(); ++slot)
      for (const ManifestCache& cache : manifest.caches)
        if (graph.outputs()[slot]->name() == cache.present && !isScale(cache.role))
          slots.push_back(slot);
    if (slots.size() < 2)
      return false;
    Value& value = *graph.outputs()[slots[0]];
    Value& other = *graph.outputs()[slots[1]];
    graph.setOutput(slots[0], other);
    graph.setOutput(slots[1], value);
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
    Value& weight = *weights[random() % weights.size()];
    Value& factor = graph.addConstant("factor", floatScalar(ElementType::Float, 1.1));
    Node& scaled = graph.createFresh("Mul", {&weight, &factor}, 1, &*graph.nodes().begin());
    llvm::cantFail(inferNode(scaled));
    for (Use& use : llvm::make_early_inc_range(weight.uses()))
      if (&use.user() != &scaled)
        use.user().setOperand(use.operandIndex(), &scaled.result());
    return true;
  }
  bool changeScale() {
    llvm::SmallVector<Node*, 8> scaled;
    for (Node& node : graph.nodes())
      if (const Attribute* scale = node.attribute("scale"))
        if (scale->kind() == AttributeKind::Float)
          scaled.push_back(&node);
    if (scaled.empty())
      return false;
    Node& node = *scaled[random() % scaled.size()];
    node.setAttribute("scale", Attribute::ofFloat(node.attribute("scale")->floatValue() * 1.5f));
    return true;
  }
  bool changeLateRows() {
    return addToLogits([&](Value& logits) {
      Value& rows = make("Range", {&integer(0), &extent(logits, 0), &integer(1)});
      Value& late = asFloat(make("Greater", {&rows, &integer(1)}));
      return &make("Reshape", {&late, &graph.addConstant("column", int64Tensor({-1, 1, 1}))});
    });
  }
  bool changePadded() {
    Value* mask = input("attention_mask");
    return mask && addToLogits([&](Value&) {
             Value& fewest = make("ReduceMin", {&asFloat(*mask)}, {{"keepdims", 0}});
             return &make("Sub", {&graph.addConstant("one", floatTensor({1.0f})), &fewest});
           });
  }
  bool changeLateTokens() {
    Value* mask = input("attention_mask");
    const auto depth = 2 + static_cast<int64_t>(random() % static_cast<uint64_t>(limit - 4));
    return mask && addToLogits([&](Value&) {
             return &asFloat(make("Greater", {&extent(*mask, 1), &integer(depth)}));
           });
  }
  bool changeFive() {
    return addToLogits([&](Value& logits) {
      return &asFloat(make("Equal", {&extent(logits, 1), &integer(5)}));
    });
  }
  bool changeOne() {
    return addToLogits([&](Value& logits) {
      return &asFloat(make("Equal", {&extent(logits, 1), &integer(1)}));
    });
  }
  bool stateCapacity() {
    if (!manifest.sharesBuffers() || manifest.capacityValue)
      return false;
    manifest.capacityValue = static_cast<int64_t>(1 + random() % 40);
    return true;
  }

  Graph& graph;
  Manifest& manifest;
  int64_t limit;
  std::mt19937_64 random;
};

constexpr const char* kinds[] = {"missing output",
                                 "additional output",
                                 "renamed output",
                                 "exchanged presents",
                                 "reordered outputs",
                                 "weight",
                                 "scale",
                                 "batch row",
                                 "padding",
                                 "depth",
                                 "prompt of five",
                                 "single token",
                                 "capacity in metadata"};

struct TamperedTarget {
  const char* name;
  const char* options;
};

void PrintTo(const TamperedTarget& target, std::ostream* out) { *out << target.name; }

/// How often each kind is made for each target. KVOPT_TAMPERINGS asks for more.
uint64_t repetitions() {
  const char* wanted = std::getenv("KVOPT_TAMPERINGS");
  return wanted ? std::strtoul(wanted, nullptr, 10) : 1;
}

struct TamperedModel {
  const char* name;
  int64_t limit; ///< the most tokens that are tried
};

/// The models that every target's pairs are made of. GPT-2's table of positions has 64 rows.
std::vector<TamperedModel> tamperedModels() {
  return {{"llama_gqa-ts14-eager", 600}, {"gpt2-dynamo18-eager", 64}, {"qwen2-dynamo23-sdpa", 600}};
}

class TamperedPairTest : public testing::TestWithParam<TamperedTarget> {
protected:
  /// Whether the defaults call the two equal; false where they cannot be compared.
  bool areEqual(const DrivenModel& original, const Model& other, const Manifest& manifest) const {
    VerificationPlan plan = fullVerification();
    plan.setTolerance(toleranceFor(original.model->graph(), 2));
    auto report =
        verifyModels(*original.model, original.manifest, other, manifest, plan, 1, toolkit);
    if (report)
      return report->equal();
    llvm::consumeError(report.takeError());
    return false;
  }

  Toolkit toolkit;
};

/// Each kind of change is made of one model, another one for the next kind, or of the next model
/// that has what it changes. That models without a change are equal is tested in the table of
/// forms.
TEST_P(TamperedPairTest, EveryChangeIsFound) {
  struct Pair {
    const TamperedModel* model;
    DrivenModel original, honest;
  };
  const std::vector<TamperedModel> models = tamperedModels();
  std::vector<Pair> pairs;
  for (const TamperedModel& model : models) {
    const std::string path = modelFolder(model.name) + "/model.onnx";
    pairs.push_back({&model, asExported(path, toolkit),
                     rewritten(path, toolkit, GetParam().options, GetParam().name)});
  }
  std::map<std::string, int> made;
  size_t turn = std::string(GetParam().name).size();
  for (const char* kind : kinds) {
    ++turn;
    for (uint64_t seed = 0; seed < repetitions(); ++seed)
      for (size_t i = 0; i < pairs.size(); ++i) {
        const Pair& pair = pairs[(turn + i) % pairs.size()];
        auto copy = valueOrThrow(cloneModel(*pair.honest.model, toolkit));
        Manifest manifest = pair.honest.manifest;
        successOrThrow(inferShapes(copy->graph()));
        if (!Tampering(copy->graph(), manifest, pair.model->limit, seed).apply(kind))
          continue;
        ++made[kind];
        EXPECT_FALSE(areEqual(pair.original, *copy, manifest))
            << pair.model->name << ": " << kind << " " << seed;
        break;
      }
  }
  for (const char* kind : {"missing output", "weight", "batch row", "padding", "depth"})
    EXPECT_GT(made[kind], 0) << kind;
}

INSTANTIATE_TEST_SUITE_P(Targets, TamperedPairTest,
                         testing::Values(TamperedTarget{"kvopt", ""}, TamperedTarget{"int8", ""},
                                         TamperedTarget{"onnx23", ""}, TamperedTarget{"onnx24", ""},
                                         TamperedTarget{"ort-gqa", ""},
                                         TamperedTarget{"primitive", ""},
                                         TamperedTarget{"blocks:64", "capacity=1024"},
                                         TamperedTarget{"int8-blocks:64", "capacity=1024"},
                                         TamperedTarget{"pyramid:512", "capacity=1024"}),
                         [](const auto& target) {
                           std::string name =
                               llvm::StringRef(target.param.name).split(':').first.str();
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

} // namespace
} // namespace kvopt
