// What commands say of a model whose manifest was edited, and of a first step that was exchanged.
#include "ir/manifest/manifest.h"
#include "ir/onnx/export.h"
#include "ir/onnx/import.h"
#include "ir/op.h"
#include "tests/cli/exported_model.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt {
using namespace cli;
using namespace ir;

namespace {

constexpr const char* rotatedModel = "llama_gqa-ts14-eager";

/// A decoder that projects an encoder's results at every step.
constexpr const char* encoderText = R"(<ir_version: 8, opset_import: ["" : 17, "ai.kvopt" : 1]>
decoder (int64[B, S] input_ids, float[B, T, 8] encoder_hidden_states) => (float[B, S, 8] logits)
<int64[4] heads = {0, 0, 2, 4}, int64[3] together = {0, 0, 8}, int64[1] last = {2},
 float[1, 1, 8] angles = {0.3, -0.7, 1.1, 0.9, -1.3, 0.4, 2.1, -0.2}>
{
  ids = Cast <to = 1> (input_ids)
  column = Unsqueeze (ids, last)
  turned = Mul (column, angles)
  h = Sin (turned)
  hr = Reshape (h, heads)
  ht = Transpose <perm = [0, 2, 1, 3]> (hr)
  o = ai.kvopt.Sdpa <scale = 0.5, causal = 1> (ht, ht, ht)
  er = Reshape (encoder_hidden_states, heads)
  keys = Transpose <perm = [0, 2, 1, 3]> (er)
  values = Tanh (keys)
  co = ai.kvopt.Sdpa <scale = 0.5> (o, keys, values)
  both = Add (co, o)
  cot = Transpose <perm = [0, 2, 1, 3]> (both)
  logits = Reshape (cot, together)
})";

class EditedManifestTest : public testing::Test {
protected:
  /// The model as `kvopt rewrite` writes it, with another manifest.
  std::string edited(const std::string& target, llvm::function_ref<void(Manifest&)> change) {
    const std::string written = folder.path("written.onnx");
    EXPECT_EQ(runProgram({"rewrite", shippedModel(rotatedModel), "-o", written, "--to", target,
                          "--verify", "off"})
                  .code,
              0);
    return changed(written, change);
  }

  std::string changed(const std::string& written, llvm::function_ref<void(Manifest&)> change) {
    OpRegistry operators;
    registerAll(operators);
    auto model = llvm::cantFail(importModel(written, operators));
    Manifest manifest = *llvm::cantFail(manifestOf(*model));
    change(manifest);
    model->setMetadata(manifestKey, manifest.json());
    const std::string path = folder.path("edited.onnx");
    llvm::cantFail(exportModel(*model, path));
    return path;
  }

  static void expectInvalid(const std::vector<std::string>& arguments, const std::string& message) {
    const ProgramResult result = runProgram(arguments);
    EXPECT_EQ(result.code, 3) << arguments.front() << ": " << result.out << result.err;
    EXPECT_NE((result.err + result.out).find(message), std::string::npos)
        << arguments.front() << ": " << result.err;
  }

  TemporaryFolder folder;
};

TEST_F(EditedManifestTest, ALimitThatTheGraphDoesNotHaveIsInconclusive) {
  const std::string path = edited("kvopt", [](Manifest& manifest) { manifest.stepLimit = 1; });
  const ProgramResult result = runProgram({"verify", shippedModel(rotatedModel), path, "--prompt",
                                           "4", "--chunks", "3", "--steps", "2"});
  EXPECT_EQ(result.code, 1) << result.err;
  EXPECT_NE(result.out.find("INCONCLUSIVE"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("step_limit"), std::string::npos) << result.out;
  const auto json = runJson({"verify", shippedModel(rotatedModel), path, "--prompt", "4"}, 1);
  EXPECT_EQ(json["verdict"], "inconclusive");
  EXPECT_EQ(json["unproved"].size(), 1U);
  // Neither taken for the target's form nor rewritten for another target.
  for (const char* target : {"kvopt", "onnx24"})
    expectInvalid({"rewrite", path, "--to", target, "-o", folder.path("again.onnx")}, "step_limit");
}

TEST_F(EditedManifestTest, OtherRotationsDoNotMoveRows) {
  const std::string path = edited("kvopt", [](Manifest& manifest) {
    for (double& theta : manifest.rotations->front().theta)
      theta = 9;
  });
  const std::vector<std::string> plain = {"run",     path, "--tokens",   "1,2",
                                          "--steps", "12", "--capacity", "8"};
  std::vector<std::string> shifted = plain;
  shifted.push_back("--context-shift");
  expectInvalid(shifted, "theta[0]");
  expectInvalid({"verify", shippedModel(rotatedModel), path}, "theta[0]");
  expectInvalid({"rewrite", path, "--to", "kvopt", "-o", folder.path("again.onnx")}, "theta[0]");
  // Steps do not use them.
  EXPECT_EQ(runProgram(plain).code, 0);
}

TEST_F(EditedManifestTest, AFirstStepThatGivesOtherOutputsIsRefused) {
  const std::string exported = exportedModel(encoderText, folder);
  const std::string path = folder.path("decoder.onnx");
  ASSERT_EQ(runProgram({"add-cache", exported, "-o", path, "--to", "kvopt"}).code, 0);
  const std::vector<std::vector<std::string>> commands = {
      {"run", path, "--tokens", "1,2", "--steps", "2"},
      {"verify", exported, path},
      {"bench", path, "-p", "2", "-n", "2", "-d", "0", "-r", "1"},
      {"rewrite", path, "--to", "kvopt", "-o", folder.path("again.onnx")},
      {"rewrite", path, "--to", "onnx24", "-o", folder.path("other.onnx")},
  };
  for (const std::vector<std::string>& command : commands)
    EXPECT_EQ(runProgram(command).code, 0) << command.front();
  const std::string first = folder.path("decoder.first.onnx");
  std::filesystem::copy_file(shippedModel(rotatedModel), first,
                             std::filesystem::copy_options::overwrite_existing);
  for (const std::vector<std::string>& command : commands)
    expectInvalid(command, "the first step does not give this cache");
}

/// Each cache that is only read is given, in its type, and nothing else.
TEST_F(EditedManifestTest, AFirstStepGivesTheCachesThatAreOnlyRead) {
  const std::string exported = exportedModel(encoderText, folder);
  const std::string path = folder.path("decoder.onnx");
  ASSERT_EQ(runProgram({"add-cache", exported, "-o", path, "--to", "kvopt"}).code, 0);
  const std::pair<void (*)(Model&), const char*> changes[] = {
      {[](Model& first) { first.graph().removeOutput(1); }, "it has no such output"},
      {[](Model& first) { first.graph().addOutput(*first.graph().inputs().front()); },
       "not a cache that is only read"},
      {[](Model& first) {
         Value& output = *first.graph().outputs().front();
         Node& cast = first.graph().createFresh("Cast", {&output}, 1, nullptr, "cast");
         cast.setAttribute("to", Attribute::ofInt(11));
         const std::string name = output.name().str();
         first.graph().rename(output, "numbers");
         first.graph().rename(cast.result(), name);
         first.graph().setOutput(0, cast.result());
       },
       "element type"},
  };
  OpRegistry operators;
  registerAll(operators);
  const std::string firstPath = folder.path("decoder.first.onnx");
  const std::string honest = folder.path("honest.onnx");
  std::filesystem::rename(firstPath, honest);
  for (const auto& [change, message] : changes) {
    auto first = llvm::cantFail(importModel(honest, operators));
    change(*first);
    std::filesystem::remove(firstPath);
    llvm::cantFail(exportModel(*first, firstPath));
    expectInvalid({"run", path, "--tokens", "1,2", "--steps", "2"}, message);
  }
}

} // namespace
} // namespace kvopt
