// Models that lack what operators may leave out, or that contradict their manifest: everything that
// takes models apart or rewrites them accepts them, or refuses them with a message.
#include "driver/verify/verification.h"
#include "ir/shapes/shape_inference.h"
#include "support/string_ends.h"
#include "tests/fuzz/decoders.h"
#include "tests/fuzz/exercise.h"
#include "tests/fuzz/structural_change.h"

#include "llvm/ADT/STLExtras.h"

#include <gtest/gtest.h>

namespace kvopt {
using namespace driver;
using namespace fuzz;
using namespace ir;
using namespace runtime;

namespace {

const Decoder& decoderOf(llvm::StringRef form) {
  for (const Decoder& decoder : decoders())
    if (decoder.name == form)
      return decoder;
  throw std::runtime_error("no decoder " + form.str());
}

/// A copy of a decoder that a test changes.
struct Changed {
  explicit Changed(const Decoder& decoder)
      : model(copyOf(*decoder.model)), manifest(decoder.manifest) {
    mustHold(inferShapes(model->graph()), "a copy");
  }

  Node& attention() {
    for (Node* node : ownNodes(model->graph()))
      if (endsWith(node->op().type(), "Sdpa"))
        return *node;
    throw std::runtime_error("no attention");
  }

  /// Beside the decoder that it was rewritten from: "equal", "different", "not opened", or the
  /// error.
  std::string verdict() const {
    const Decoder& exported = decoderOf("growing");
    EquivalencePlan plan = quickVerification();
    plan.prompt = 3;
    plan.chunks = {2};
    plan.decodeSteps = 1;
    if (!exerciseChanged(*model, manifest))
      return "not opened";
    auto report =
        verifyModels(*exported.model, exported.manifest, *model, manifest, plan, 1, toolkit());
    if (!report)
      return takeDiagnostic(report.takeError()).str();
    return report->equal() ? "equal" : "different";
  }

  std::unique_ptr<Model> model;
  Manifest manifest;
};

TEST(ChangedModelsTest, DecodersAreOpened) {
  for (const Decoder& decoder : decoders())
    EXPECT_TRUE(exerciseChanged(*decoder.model, decoder.manifest)) << decoder.name;
}

/// Every operand of every operator of kvopt and of ONNX Runtime in decoders of every form.
TEST(ChangedModelsTest, OperandsAreLeftOut) {
  size_t opened = 0, refusedFiles = 0;
  for (const Decoder& decoder : decoders()) {
    Changed whole(decoder);
    const std::vector<Node*> nodes = ownNodes(whole.model->graph());
    llvm::StringSet<> seen;
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (!seen.insert(nodes[i]->op().str()).second)
        continue;
      for (unsigned operand = 0; operand < nodes[i]->operands().size(); ++operand) {
        Changed changed(decoder);
        ownNodes(changed.model->graph())[i]->setOperand(operand, nullptr);
        ++(exerciseChanged(*changed.model, changed.manifest) ? opened : refusedFiles);
      }
    }
  }
  EXPECT_GE(opened, 10u) << "optional operands";
  EXPECT_GT(refusedFiles, 50u) << "required operands";
}

/// A node of each definition with and without its optional operands and results.
TEST(ChangedModelsTest, OptionalOperandsOfEveryDefinition) {
  size_t nodes = 0;
  for (const OpDef* definition : toolkit().ops.all()) {
    const llvm::StringRef domain = definition->name.domain();
    if (domain != kvoptDomain && domain != "com.microsoft")
      continue;
    const size_t formals = definition->operands.size();
    for (size_t leftOut = 0; leftOut <= formals; ++leftOut) {
      if (leftOut < formals && definition->operands[leftOut].arity != Formal::Arity::Optional)
        continue;
      for (bool isImported : {true, false}) {
        Model model(toolkit().ops);
        model.opsets = {{"", 18}};
        if (isImported)
          model.opsets[domain.str()] = definition->since;
        Graph& graph = model.graph();
        Manifest manifest;
        manifest.target = "kvopt";
        llvm::SmallVector<Value*, 16> operands;
        for (size_t i = 0; i < formals; ++i) {
          Value& input =
              graph.addInput(formatted("x{}", i),
                             TensorType(ElementType::Float, Shape{Dim::fixed(1), Dim::fixed(2),
                                                                  Dim::fixed(4), Dim::fixed(16)}));
          operands.push_back(i == leftOut ? nullptr : &input);
        }
        Node& node = graph.createFresh(
            definition->name, operands,
            std::max<unsigned>(1, static_cast<unsigned>(definition->results.size())));
        for (const FormalAttribute& attribute : definition->attributes)
          if (attribute.required)
            node.setAttribute(attribute.name, attribute.kind == AttributeKind::Float
                                                  ? Attribute::ofFloat(1)
                                                  : Attribute::ofInt(2));
        for (Value& result : node.results())
          graph.addOutput(result);
        exerciseChanged(model, manifest);
        ++nodes;
      }
    }
  }
  EXPECT_GT(nodes, 200u);
}

TEST(ChangedModelsTest, EveryKindOfChange) {
  for (size_t form = 0; form < decoders().size(); ++form)
    for (uint8_t kind = 0; kind < StructuralChange::kinds; ++kind) {
      Changed changed(decoders()[form]);
      const auto place = static_cast<uint8_t>(form + kind);
      const uint8_t bytes[] = {kind, 0, place, static_cast<uint8_t>(place / 2), kind};
      Choices choices(bytes);
      StructuralChange(*changed.model, changed.manifest, choices).make();
      exerciseChanged(*changed.model, changed.manifest);
    }
}

TEST(ChangedModelsTest, AnOperandGivenTwice) {
  Changed scale(decoderOf("int8"));
  Node& attention = scale.attention();
  attention.setOperand(6, attention.operand(4));
  EXPECT_EQ(scale.verdict(), "not opened") << "two buffers in one";

  Changed block(decoderOf("int8-blocks"));
  Node& overBlocks = block.attention();
  const unsigned blocks = (static_cast<unsigned>(overBlocks.operands().size()) - 7) / 4;
  overBlocks.setOperand(7 + 2 * blocks + 1, overBlocks.operand(7 + 2 * blocks));
  EXPECT_EQ(block.verdict(), "different");
}

TEST(ChangedModelsTest, AMaskThatIsLeftOut) {
  Changed changed(decoderOf("int8"));
  changed.attention().setOperand(8, nullptr);
  EXPECT_EQ(changed.verdict(), "different");
}

TEST(ChangedModelsTest, AScaleThatAnotherNodeReads) {
  Changed changed(decoderOf("int8"));
  Graph& graph = changed.model->graph();
  Value& scale = changed.attention().result(2);
  Node& reader = graph.createFresh("Neg", {&scale}, 1);
  reader.result().setType(scale.type());
  graph.addOutput(reader.result());
  const std::string said = changed.verdict();
  EXPECT_NE(said.find("scales of cached rows are read by"), std::string::npos) << said;
}

TEST(ChangedModelsTest, AFunctionThatComputesSomethingElse) {
  for (const char* form : {"shared", "int8", "blocks", "ring", "latent", "int8-blocks"}) {
    Changed changed(decoderOf(form));
    Graph& body = changed.model->functions.front()->body;
    body.setOutput(0, body.createFresh("Neg", {body.outputs()[0]}, 1).result());
    EXPECT_EQ(changed.verdict(), "not opened") << form;
  }
}

TEST(ChangedModelsTest, SessionsThatCannotBeOpenedNameTheirModel) {
  Changed changed(decoderOf("shared"));
  changed.model->path = "second.onnx";
  changed.manifest.caches.front().sequenceAxis = 7;
  auto session = openForTokens(*changed.model, changed.manifest, 1, 0, 1, toolkit());
  ASSERT_FALSE(session);
  const Diagnostic said = takeDiagnostic(session.takeError());
  EXPECT_EQ(said.file, "second.onnx") << said.str();
  EXPECT_NE(said.kind, Diagnostic::Kind::Usage) << said.str();
}

} // namespace
} // namespace kvopt
