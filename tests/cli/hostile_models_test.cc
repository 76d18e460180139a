// Models that are hostile in ways that once were not noticed before something relied on them.
#include "ir/manifest/manifest.h"
#include "ir/onnx/export.h"
#include "ir/onnx/import.h"
#include "ir/op.h"
#include "ir/text/reader.h"
#include "runtime/exec/kernel.h"
#include "tests/cli/cli_fixture.h"

namespace kvopt {
using namespace cli;
using namespace ir;
using namespace runtime;

namespace {

class HostileModelsTest : public testing::Test {
protected:
  HostileModelsTest() { registerAll(ops); }

  std::string write(const Model& model) {
    std::string path = folder.path("hostile.onnx");
    llvm::cantFail(exportModel(model, path));
    return path;
  }

  std::string writeText(const std::string& text) {
    return write(*llvm::cantFail(readText(text, ops)));
  }

  /// A shipped decoder that was rewritten for a target, and carries a manifest.
  std::unique_ptr<Model> rewritten(const std::string& target = "kvopt") {
    const std::string path = folder.path("rewritten.onnx");
    ProgramResult result = runProgram({"rewrite", shippedModel("llama_gqa-ts14-eager"), "-o", path,
                                       "--to", target, "--capacity", "16", "--verify", "off"});
    EXPECT_EQ(result.code, 0) << result.err;
    return llvm::cantFail(importModel(path, ops));
  }

  /// `count` elements of a tensor in text form.
  static std::string zeros(int count) {
    std::string text = "0";
    for (int i = 1; i < count; ++i)
      text += ", 0";
    return text;
  }

  /// Every command that opens the model ends with that exit code and says `part`.
  void expectEnd(const std::string& path, int code, const std::string& part) {
    const std::string output = folder.path("output.onnx");
    for (const std::vector<std::string>& arguments :
         {std::vector<std::string>{"inspect", path},
          {"explain", path},
          {"run", path, "--tokens", "1", "--steps", "1"},
          {"verify", path, path, "--prompt", "2", "--steps", "1"},
          {"diff", path, path},
          {"rewrite", path, "-o", output, "--to", "kvopt", "--capacity", "16"}}) {
      ProgramResult result = runProgram(arguments);
      EXPECT_EQ(result.code, code) << arguments[0] << ": " << result.err;
      EXPECT_NE(result.err.find(part), std::string::npos) << arguments[0] << ": " << result.err;
    }
    EXPECT_FALSE(std::filesystem::exists(output));
  }

  OpRegistry ops;
  TemporaryFolder folder;
};

TEST_F(HostileModelsTest, OperandsAreCountedWhereThereIsAManifest) {
  auto model = rewritten();
  for (Node& node : model->graph().nodes())
    if (node.is("Gather")) {
      node.setOperands({});
      break;
    }
  expectEnd(write(*model), 3, "(Gather): has 0 operands, needs 2");
}

TEST_F(HostileModelsTest, VariadicOperandsAreCounted) {
  expectEnd(writeText(R"(<ir_version: 8, opset_import: ["" : 17]>
g (int64[B, S] input_ids) => (float[B, S, 4] logits) { ["bad"] logits = Min() })"),
            3, "node 'bad' (Min): has 0 operands, needs 1");
}

/// What the gate checks is what kernels rely on.
TEST_F(HostileModelsTest, EveryKernelHasADefinitionOfItsFirstVersion) {
  KernelRegistry kernels;
  registerAll(kernels);
  for (const Kernel* kernel : kernels.all())
    EXPECT_TRUE(ops.find(kernel->op, kernel->since)) << kernel->op.str() << " " << kernel->since;
}

TEST_F(HostileModelsTest, OperatorSetZeroOfARewrittenModel) {
  auto model = rewritten();
  model->opsets[""] = 0;
  model->markEdited();
  expectEnd(write(*model), 3, "version 0 of operator set 'ai.onnx'");
}

TEST_F(HostileModelsTest, ExtentsThatNoMemoryHolds) {
  for (const char* extents : {"1099511627776", "268435456"}) {
    const std::string path = writeText(formatted(R"(<ir_version: 8, opset_import: ["" : 17]>
g (int64[{0}, S] input_ids) => (float[{0}, S, 8] logits)
<float[8, 8] table = {{{1}}}>
{{ logits = Gather(table, input_ids) }})",
                                                 extents, zeros(64)));
    for (const std::vector<std::string>& arguments :
         {std::vector<std::string>{"verify", path, path, "--prompt", "2", "--steps", "1"},
          {"run", path, "--tokens", "1", "--steps", "1"},
          {"inspect", path}}) {
      ProgramResult result = runProgram(arguments);
      EXPECT_GE(result.code, 0) << extents;
      EXPECT_LE(result.code, 4) << extents << ": " << result.err;
    }
  }
}

TEST_F(HostileModelsTest, ACapacityThatTheGraphContradicts) {
  auto model = rewritten();
  std::string text = *model->findMetadata(manifestKey);
  const size_t at = text.find("\"value\": 16");
  ASSERT_NE(at, std::string::npos);
  text.replace(at, 11, "\"value\": 1");
  model->setMetadata(manifestKey, text);
  expectEnd(write(*model), 3, "the manifest contradicts the model");
}

/// A model that says it was rewritten, and still has its caches grow.
TEST_F(HostileModelsTest, AManifestIsNoProof) {
  auto plain = llvm::cantFail(importModel(shippedModel("llama_gqa-ts14-eager"), ops));
  ProgramResult result =
      runProgram({"rewrite", shippedModel("llama_gqa-ts14-eager"), "-o", folder.path("r.onnx"),
                  "--to", "kvopt", "--capacity", "dynamic", "--verify", "off"});
  ASSERT_EQ(result.code, 0) << result.err;
  auto other = llvm::cantFail(importModel(folder.path("r.onnx"), ops));
  auto manifest = llvm::cantFail(manifestOf(*other));
  manifest->lengths.clear();
  plain->setMetadata(manifestKey, manifest->json());
  const std::string output = folder.path("copy.onnx");
  result = runProgram(
      {"rewrite", write(*plain), "-o", output, "--to", "kvopt", "--capacity", "dynamic"});
  EXPECT_EQ(result.code, 3) << result.err;
  EXPECT_NE(result.err.find("not updated in place"), std::string::npos) << result.err;
  EXPECT_FALSE(std::filesystem::exists(output));
}

/// A file of a few kilobytes that expands to a hundred thousand nodes.
TEST_F(HostileModelsTest, FunctionsThatCallEachOtherTenTimes) {
  std::string text = R"(<ir_version: 10, opset_import: ["" : 18, "own" : 1]>
g (int64[B, S] input_ids) => (float[B, S, 8] logits)
{ x = Cast <to = 1>(input_ids) y = own.f4(x) logits = Identity(y) }
)";
  for (int level = 0; level < 5; ++level) {
    text += formatted("<domain: \"own\", opset_import: [\"\" : 18, \"own\" : 1]>\n"
                      "f{} (a) => (b) {{\n",
                      level);
    for (int call = 0; call < 10; ++call)
      text += formatted("  {} = {}({})\n", call == 9 ? "b" : formatted("v{}", call),
                        level == 0 ? "Relu" : formatted("own.f{}", level - 1),
                        call == 0 ? "a" : formatted("v{}", call - 1));
    text += "}\n";
  }
  const std::string path = writeText(text);
  EXPECT_EQ(runProgram({"inspect", path}).code, 0);
  EXPECT_EQ(runProgram({"inspect", path, "--max-nodes", "111113"}).code, 0);
  const ProgramResult refused = runProgram({"inspect", path, "--max-nodes", "111112"});
  EXPECT_EQ(refused.code, 4);
  EXPECT_NE(
      refused.err.find("calls of 'f4' give 111110 of them; the limit is 111112; hint: --max-nodes"),
      std::string::npos)
      << refused.err;
  EXPECT_EQ(runProgram({"inspect", path, "--max-nodes", "0"}).code, 2);
}

} // namespace
} // namespace kvopt
