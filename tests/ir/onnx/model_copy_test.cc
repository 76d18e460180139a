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

TEST(FamilyExport, ConstantsAreWrittenOnceAndReadByAll) {
  TemporaryFolder folder;
  // Once read from a file that has them inline.
  llvm::cantFail(exportModel(*withLargeConstants(), folder.path("inline.onnx")));
  auto model = llvm::cantFail(importModel(folder.path("inline.onnx"), textRegistry()));
  ExportOptions options;
  options.externalFile = "family.data";
  FamilyExport family(options);
  OutputFiles files;
  llvm::cantFail(family.add(*model, folder.path("a.onnx")));
  model->graph().rename(*model->graph().findValue("scaled"), "other");
  llvm::cantFail(family.add(*model, folder.path("b.onnx")));
  llvm::cantFail(family.finish(files));
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
  EXPECT_TRUE(errorToBool(FamilyExport(options).add(*model, folder.path("a.onnx"))));
  options.externalFile = "m.onnx.data";
  EXPECT_TRUE(errorToBool(FamilyExport(options).add(*model, folder.path("m.onnx"))));
  EXPECT_EQ(folder.entryCount(), 1u);
}

} // namespace
} // namespace kvopt
