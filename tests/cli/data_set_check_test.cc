// kvopt verify --reference with data sets of ONNX's form: text, JSON and exit codes.
#include "ir/onnx/export.h"
#include "ir/op.h"
#include "ir/tensor.h"
#include "ir/text/reader.h"
#include "tests/cli/cli_fixture.h"
#include "tests/support/output_at.h"

namespace kvopt {
using namespace cli;
using namespace ir;

namespace {

class DataSetCheckTest : public testing::Test {
protected:
  void SetUp() override {
    OpRegistry ops;
    registerAll(ops);
    auto model = llvm::cantFail(readText(R"(<ir_version: 8, opset_import: ["" : 18]>
g (float[N] x) => (float[N] y) { y = Neg(x) })",
                                         ops));
    llvm::cantFail(exportModel(*model, folder.path("m.onnx")));
    std::filesystem::create_directory(folder.path("test_data_set_0"));
    write("input_0.pb", floatTensor({1, -2}));
    write("output_0.pb", floatTensor({-1, 2}));
  }

  void write(const std::string& file, const TensorRef& tensor) {
    llvm::cantFail(exportTensorFile(*tensor, "", outputAt(folder.path("test_data_set_0/" + file))));
  }
  std::vector<std::string> command(const std::string& set = "") const {
    return {"verify", folder.path("m.onnx"), "--reference", set.empty() ? folder.path() : set};
  }

  TemporaryFolder folder;
};

TEST_F(DataSetCheckTest, EqualForTheFolderAndForOneSet) {
  ProgramResult result = runProgram(command());
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "OK: 1 data set; 1 output; largest difference 0.0e+00\n");
  EXPECT_EQ(runProgram(command(folder.path("test_data_set_0"))).code, 0);
}

TEST_F(DataSetCheckTest, Json) {
  auto json = runJson(command());
  EXPECT_EQ(json["schema"], "kvopt/verify/1");
  EXPECT_EQ(json["equal"], true);
  ASSERT_EQ(json["steps"].size(), 1u);
  EXPECT_EQ(json["steps"][0]["phase"], "test_data_set_0");
  EXPECT_EQ(json["steps"][0]["outputs"]["y"]["bit_exact"], true);
  EXPECT_EQ(json["tokens_equal"], nullptr);
  EXPECT_EQ(json["tolerance"]["atol"], 1e-4);
  EXPECT_EQ(json["tolerance"]["rtol"], 1e-3);
}

TEST_F(DataSetCheckTest, DifferentNumbersAndShapes) {
  write("output_0.pb", floatTensor({-1, 2.25f}));
  ProgramResult result = runProgram(command());
  EXPECT_EQ(result.code, 1);
  EXPECT_NE(result.out.find("largest difference 2.5e-01"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("DIFFERENT: worst is 'y'"), std::string::npos) << result.out;
  std::vector<std::string> loose = command();
  loose.insert(loose.end(), {"--atol", "0.25"});
  EXPECT_EQ(runProgram(loose).code, 0);

  write("output_0.pb", floatTensor({-1}));
  result = runProgram(command());
  EXPECT_EQ(result.code, 1);
  EXPECT_NE(result.out.find("'y' is float[2], and float[1] is recorded"), std::string::npos)
      << result.out;
  EXPECT_EQ(runJson(command(), 1)["steps"][0]["outputs"]["y"]["mismatch"],
            "is float[2], and float[1] is recorded");
}

TEST_F(DataSetCheckTest, UnreadableAndMissingTensors) {
  std::filesystem::remove(folder.path("test_data_set_0/output_0.pb"));
  ProgramResult missing = runProgram(command());
  EXPECT_EQ(missing.code, 3);
  EXPECT_NE(missing.err.find("output 'y' is not recorded"), std::string::npos) << missing.err;
  folder.write("test_data_set_0/output_0.pb", "not a tensor");
  EXPECT_EQ(runProgram(command()).code, 3);
}

} // namespace
} // namespace kvopt
