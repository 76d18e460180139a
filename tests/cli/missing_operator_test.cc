// An operator that the runtime lacks is named, with its node, before anything runs, wherever it is.
#include "ir/onnx/export.h"
#include "ir/op.h"
#include "ir/text/reader.h"
#include "tests/cli/cli_fixture.h"

namespace kvopt {
using namespace cli;
using namespace ir;

namespace {

class MissingOperatorTest : public testing::Test {
protected:
  /// Exit code 4, and what is said, of every command that runs the model.
  void expectNamed(const std::string& text, const std::string& node, const std::string& op) {
    OpRegistry ops;
    registerAll(ops);
    auto model = llvm::cantFail(readText(text, ops));
    const std::string path = folder.path("m.onnx");
    llvm::cantFail(exportModel(*model, path));
    for (const std::vector<std::string>& arguments :
         {std::vector<std::string>{"run", path, "--tokens", "1,2", "--steps", "1"},
          std::vector<std::string>{"verify", path, path, "--prompt", "2", "--steps", "1"}}) {
      ProgramResult result = runProgram(arguments);
      EXPECT_EQ(result.code, 4) << arguments[0] << ": " << result.err;
      EXPECT_NE(result.err.find("'" + node + "'"), std::string::npos) << result.err;
      EXPECT_NE(result.err.find(op), std::string::npos) << result.err;
      EXPECT_EQ(result.out, "");
    }
  }

  static std::string decoder(const std::string& opsets, const std::string& body,
                             const std::string& functions = "") {
    return "<ir_version: 10, opset_import: [" + opsets + R"(]>
g (int64[B, S] input_ids) => (float[B, S, 8] logits)
<float[8, 8] table = {)" +
           [] {
             std::string zeros = "0";
             for (int i = 1; i < 64; ++i)
               zeros += ", 0";
             return zeros;
           }() +
           R"(}, bool yes = {1}>
{
  ["rows"] rows = Gather(table, input_ids)
)" + body + "}\n" +
           functions;
  }

  TemporaryFolder folder;
};

TEST_F(MissingOperatorTest, InTheGraph) {
  expectNamed(decoder(R"("" : 18)", R"(["odd/one"] logits = Grumble(rows))"), "odd/one",
              "operator Grumble (domain ai.onnx, opset 18)");
}

TEST_F(MissingOperatorTest, OfADomainNobodyKnows) {
  expectNamed(
      decoder(R"("" : 18, "com.example" : 3)", R"(["odd/one"] logits = com.example.Relu(rows))"),
      "odd/one", "operator Relu (domain com.example, opset 3)");
}

TEST_F(MissingOperatorTest, OfADomainThatIsNotImported) {
  expectNamed(decoder(R"("" : 18)", R"(["odd/one"] logits = com.microsoft.FastGelu(rows))"),
              "odd/one", "com.microsoft");
}

TEST_F(MissingOperatorTest, OfAVersionBeforeTheKernels) {
  expectNamed(decoder(R"("" : 22)", R"(["odd/one"] logits = RMSNormalization(rows, table))"),
              "odd/one", "operator RMSNormalization (domain ai.onnx, opset 22)");
}

TEST_F(MissingOperatorTest, OfAVersionThatNobodyKnows) {
  expectNamed(decoder(R"("" : 99)", R"(["odd/one"] logits = Relu(rows))"), "rows",
              "operator Gather is of opset 99");
}

TEST_F(MissingOperatorTest, InABranch) {
  for (const char* branches :
       {"then_branch = t () => (float[B, S, 8] a) { [\"odd/one\"] a = Grumble(rows) }, "
        "else_branch = e () => (float[B, S, 8] b) { b = Identity(rows) }",
        "then_branch = t () => (float[B, S, 8] a) { a = Identity(rows) }, "
        "else_branch = e () => (float[B, S, 8] b) { [\"odd/one\"] b = Grumble(rows) }"})
    expectNamed(decoder(R"("" : 18)", std::string("logits = If <") + branches + "> (yes)\n"),
                "odd/one", "operator Grumble");
}

TEST_F(MissingOperatorTest, InAFunctionOfAFunction) {
  expectNamed(decoder(R"("" : 18, "own" : 1)", R"(["call"] logits = own.outer(rows))",
                      R"(<domain: "own", opset_import: ["" : 18, "own" : 1]>
outer (x) => (y) { ["middle"] y = own.inner(x) }
<domain: "own", opset_import: ["" : 18]>
inner (x) => (y) { ["odd/one"] y = Grumble(x) })"),
              "call/middle/odd/one", "operator Grumble");
}

TEST_F(MissingOperatorTest, InABranchOfAFunction) {
  expectNamed(decoder(R"("" : 18, "own" : 1)", R"(["call"] logits = own.outer(rows, yes))",
                      R"(<domain: "own", opset_import: ["" : 18]>
outer (x, c) => (y) {
  y = If <then_branch = t () => (float[B, S, 8] a) { ["odd/one"] a = Grumble(x) },
          else_branch = e () => (float[B, S, 8] b) { b = Identity(x) }> (c)
})"),
              "call/odd/one", "operator Grumble");
}

} // namespace
} // namespace kvopt
