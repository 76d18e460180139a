// Copies that share large constants, and families of models that are written with theirs once.
#include "ir/onnx/model_copy.h"

#include "ir/onnx/export.h"
#include "ir/onnx/import.h"
#include "tests/ir/text/text_fixture.h"
#include "tests/support/temporary_folder.h"

#include <cstring>

namespace kvopt {
using namespace ir;

namespace {

/// A model with a small constant and a large one.
std::unique_ptr<Model> withLargeConstants() {
  auto model = readOrFail(R"(<ir_version: 8, opset_import: ["" : 17]>
g (float[N, 2] x) => (float[N, 512] y)
<float[2] small = {1, 2}>
{
  scaled = Mul (x, small)
  y = Identity (scaled)
})");
  if (!model)
    return nullptr;
  std::vector<float> numbers(1024);
  for (size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = static_cast<float>(i);
  std::vector<std::byte> bytes(numbers.size() * sizeof(float));
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  Graph& graph = model->graph();
  Value& weights = graph.addConstant(
      "weights", llvm::cantFail(makeTensor(ElementType::Float, {2, 512}, std::move(bytes))));
  Node& identity = *graph.outputs()[0]->producer();
  Node& product =
      graph.createFresh("MatMul", {identity.operand(0), &weights}, 1, &identity, "product");
  identity.setOperand(0, &product.result());
  return model;
}

TEST(ModelCopy, LargeConstantsAreTheOriginals) {
  auto model = withLargeConstants();
  ASSERT_TRUE(model);
  std::unique_ptr<Model> copy = llvm::cantFail(copySharingConstants(*model));
  EXPECT_EQ(printText(*copy), printText(*model));
  EXPECT_EQ(copy->graph().findValue("weights")->initializer(),
            model->graph().findValue("weights")->initializer());
  EXPECT_NE(copy->graph().findValue("small")->initializer(),
            model->graph().findValue("small")->initializer());
  // An edit of one is none of the other, and the contents outlive the original.
  model->graph().findValue("small")->replaceAllUsesWith(*model->graph().findValue("x"));
  EXPECT_TRUE(copy->graph().findValue("small")->hasUses());
  model.reset();
  EXPECT_EQ(llvm::cantFail(copy->graph().findValue("weights")->initializer()->bytes()).size(),
            4096u);
}

/// Constant nodes with large tensors, in the main graph and in a branch.
TEST(ModelCopy, LargeAttributesAreTheOriginals) {
  std::string list = "0";
  for (int i = 1; i < 256; ++i)
    list += ", " + std::to_string(i);
  auto model = readOrFail(R"(<ir_version: 8, opset_import: ["" : 17]>
g (int64[256] x, bool b) => (int64[256] y)
{
  table = Constant <value = int64[256] {)" +
                          list + R"(}> ()
  sum = Add (x, table)
  y = If (b) <
    then_branch = taken () => (int64[256] t) {
      inner = Constant <value = int64[256] {)" +
                          list + R"(}> ()
      t = Add (sum, inner)
    },
    else_branch = left () => (int64[256] e) { e = Identity (sum) }>
})");
  ASSERT_TRUE(model);
  const std::string text = printText(*model);
  std::unique_ptr<Model> copy = llvm::cantFail(copySharingConstants(*model));
  EXPECT_EQ(printText(*copy), text);
  model.reset();
  EXPECT_EQ(printText(*copy), text);
}

/// Three products in a row, a branch, and a result that is only looked at.
std::unique_ptr<Model> chain() {
  return readOrFail(
      R"(<ir_version: 8, opset_import: ["" : 17], metadata_props: ["kept": "1", "left": "2"]>
g (float[N, 2] x, bool b, float[N, 2] other) => (float[N, 2] y, float[N, 2] z)
<float[2] w0 = {1, 2}, float[2] w1 = {3, 4}, float[2] w2 = {5, 6}, int64[2] half = {1, 1},
 float[N, 2] m1>
{
  m0 = Mul (x, w0)
  m1 = Mul (m0, w1)
  chosen = If (b) <
    then_branch = taken () => (float[N, 2] t) { t = Add (m1, w2) },
    else_branch = left () => (float[N, 2] e) { e = Identity (m0) }>
  left, right = Split <axis = 1> (chosen, half)
  y = Concat <axis = 1> (right, left)
  z = Mul (other, w2)
})");
}

TEST(PartCopier, CopiesWhatAPartComputes) {
  auto model = chain();
  ASSERT_TRUE(model);
  const Graph& graph = model->graph();
  const auto value = [&](const char* name) { return graph.findValue(name); };
  const PartCopier copier = llvm::cantFail(PartCopier::create(*model, {"left"}));

  auto first = llvm::cantFail(copier.copy({{}, {value("m1")}}));
  EXPECT_EQ(first->graph().nodes().size(), 2u);
  EXPECT_EQ(first->graph().inputs().size(), 1u);
  EXPECT_TRUE(first->graph().outputs().empty());
  EXPECT_EQ(first->graph().initializers().size(), 2u);
  EXPECT_TRUE(first->findMetadata("kept"));
  EXPECT_FALSE(first->findMetadata("left"));

  // What a branch reads is read; what is given is not computed.
  auto second = llvm::cantFail(copier.copy({{value("m1"), value("m0")}, {value("y")}}));
  std::vector<std::string> inputs;
  for (const std::unique_ptr<Value>& input : second->graph().inputs())
    inputs.push_back(input->name().str());
  EXPECT_EQ(inputs, (std::vector<std::string>{"b", "m1", "m0"}));
  EXPECT_EQ(second->graph().nodes().size(), 3u);
  ASSERT_EQ(second->graph().outputs().size(), 1u);
  EXPECT_EQ(second->graph().outputs()[0]->name(), "y");
  EXPECT_EQ(second->graph().findValue("w0"), nullptr);
  EXPECT_NE(second->graph().findValue("w2"), nullptr);

  // One result of a node is given, the other one computed.
  auto third = llvm::cantFail(copier.copy({{value("right")}, {value("y")}}));
  EXPECT_TRUE(third->graph().findValue("right")->isGraphInput());
  EXPECT_EQ(third->graph().findValue("left")->producer()->op().str(), "Split");
}

TEST(PartCopier, CostsWhatThePartHas) {
  auto model = readOrFail(R"(<ir_version: 8, opset_import: ["" : 17]>
g (float[N] x) => (float[N] y) { y = Neg (x) })");
  ASSERT_TRUE(model);
  Graph& graph = model->graph();
  Value* value = graph.outputs()[0];
  for (int i = 0; i < 500; ++i)
    value = &graph.createFresh("Neg", {value}, 1, nullptr, "n").result();
  graph.setOutput(0, *value);
  const PartCopier copier = llvm::cantFail(PartCopier::create(*model, {}));
  const uint64_t before = model->context().visits();
  for (const Node& node : graph.nodes()) {
    auto copy = llvm::cantFail(copier.copy({{node.operand(0)}, {&node.result()}}));
    EXPECT_EQ(copy->graph().nodes().size(), 1u);
  }
  EXPECT_LT(model->context().visits() - before, 1000u);
}

TEST(FamilyExport, ConstantsAreWrittenOnceAndReadByAll) {
  TemporaryFolder folder;
  // Once read from a file that has them inline.
  llvm::cantFail(exportModel(*withLargeConstants(), folder.path("inline.onnx")));
  auto model = llvm::cantFail(importModel(folder.path("inline.onnx"), textRegistry()));
  ExportOptions options;
  options.externalFile = "family.data";
  OutputFiles files;
  FamilyExport family(options, files);
  llvm::cantFail(family.add(*model, folder.path("a.onnx")));
  model->graph().rename(*model->graph().findValue("scaled"), "other");
  llvm::cantFail(family.add(*model, folder.path("b.onnx")));
  llvm::cantFail(family.finish());
  EXPECT_FALSE(std::filesystem::exists(folder.path("a.onnx")));
  llvm::cantFail(files.commit());
  EXPECT_EQ(std::filesystem::file_size(folder.path("family.data")), 4096u);
  for (const char* name : {"a.onnx", "b.onnx"}) {
    EXPECT_LT(std::filesystem::file_size(folder.path(name)), 1024u);
    auto read = llvm::cantFail(importModel(folder.path(name), textRegistry()));
    EXPECT_EQ(read->graph().findValue("other") != nullptr, name[0] == 'b');
    auto numbers = floatValues(*read->graph().findValue("weights")->initializer());
    ASSERT_TRUE(numbers);
    EXPECT_EQ((*numbers)[777], 777);
    auto small = read->graph().findValue("small")->initializer();
    EXPECT_EQ(*floatValues(*small), *floatValues(*floatTensor({1, 2})));
  }
}

TEST(FamilyExport, NothingIsWrittenOverTheSource) {
  TemporaryFolder folder;
  llvm::cantFail(exportModel(*withLargeConstants(), folder.path("m.onnx")));
  auto model = llvm::cantFail(importModel(folder.path("m.onnx"), textRegistry()));
  ExportOptions options;
  options.externalFile = "m.onnx";
  OutputFiles files;
  EXPECT_TRUE(errorToBool(FamilyExport(options, files).add(*model, folder.path("a.onnx"))));
  options.externalFile = "m.onnx.data";
  OutputFiles others;
  EXPECT_TRUE(errorToBool(FamilyExport(options, others).add(*model, folder.path("m.onnx"))));
  EXPECT_EQ(folder.entryCount(), 1u);
}

} // namespace
} // namespace kvopt
