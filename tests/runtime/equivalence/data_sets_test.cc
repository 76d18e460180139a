// Data sets of ONNX's form: which tensor belongs where, what is missing, what differs.
#include "runtime/equivalence/data_sets.h"

#include "ir/onnx/export.h"
#include "ir/shapes/shape_inference.h"
#include "ir/text/reader.h"
#include "support/diagnostic.h"
#include "tests/runtime/kernels/kernel_harness.h"
#include "tests/support/output_at.h"
#include "tests/support/temporary_folder.h"

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

/// y = a - b + bias, z = a * 2 as integers; bias has default contents.
constexpr const char* model = R"(<ir_version: 8, opset_import: ["" : 18]>
g (float[N] a, float[N] b, float[1] bias = {0}) => (float[N] y, int64[N] z)
{
  d = Sub(a, b)
  y = Add(d, bias)
  t = Add(a, a)
  z = Cast<to = 7>(t)
}
)";

class DataSetsTest : public testing::Test {
protected:
  void SetUp() override { std::filesystem::create_directory(folder.path("test_data_set_0")); }

  void write(const std::string& file, const std::string& name, const TensorRef& tensor,
             const std::string& set = "test_data_set_0") {
    std::filesystem::create_directory(folder.path(set));
    llvm::cantFail(exportTensorFile(*tensor, name, outputAt(folder.path(set + "/" + file))));
  }

  /// The report of the replay, or the error.
  llvm::Expected<ComparisonReport> replay(const char* text = model,
                                          const DataSetTolerance& tolerance = {}) {
    auto sets = readDataSets(folder.path());
    if (!sets)
      return sets.takeError();
    auto read = llvm::cantFail(readText(text, testOperators()));
    llvm::cantFail(inferShapes(read->graph()));
    auto executor = llvm::cantFail(Executor::create(*read, testKernels()));
    return replayDataSets(*read, *executor, *sets, tolerance);
  }
  std::string errorOf(llvm::Expected<ComparisonReport> report) {
    return report ? "" : takeDiagnostic(report.takeError()).str();
  }
  /// a = {5, 7}, b = {1, 2}: y = {4, 5}, z = {10, 14}.
  void writeInOrder() {
    write("input_0.pb", "", floatTensor({5, 7}));
    write("input_1.pb", "", floatTensor({1, 2}));
    write("output_0.pb", "", floatTensor({4, 5}));
    write("output_1.pb", "", int64Tensor({10, 14}));
  }

  TemporaryFolder folder;
};

TEST_F(DataSetsTest, InTheGraphsOrder) {
  writeInOrder();
  ComparisonReport report = llvm::cantFail(replay());
  ASSERT_EQ(report.steps.size(), 1u);
  EXPECT_TRUE(report.equal());
  EXPECT_EQ(report.steps[0].phase, "test_data_set_0");
  ASSERT_EQ(report.steps[0].outputs.size(), 2u);
  EXPECT_EQ(report.steps[0].outputs[1].name, "z");
  EXPECT_TRUE(report.steps[0].outputs[1].comparison.bitExact);
}

TEST_F(DataSetsTest, ByNameWhateverTheOrder) {
  write("input_0.pb", "b", floatTensor({1, 2}));
  write("input_1.pb", "bias", floatTensor({1}));
  write("input_2.pb", "a", floatTensor({5, 7}));
  write("output_0.pb", "z", int64Tensor({10, 14}));
  write("output_1.pb", "y", floatTensor({5, 6}));
  EXPECT_TRUE(llvm::cantFail(replay()).equal());
}

TEST_F(DataSetsTest, DefaultContentsCountWhereMoreIsRecorded) {
  writeInOrder();
  write("input_2.pb", "", floatTensor({1}));
  write("output_0.pb", "", floatTensor({5, 6}));
  EXPECT_TRUE(llvm::cantFail(replay()).equal());
  write("input_3.pb", "", floatTensor({1}));
  EXPECT_NE(errorOf(replay()).find("input_3.pb is recorded"), std::string::npos);
}

TEST_F(DataSetsTest, ANameInAnothersPlaceIsRefused) {
  writeInOrder();
  write("input_0.pb", "b", floatTensor({1, 2}));
  EXPECT_NE(errorOf(replay()).find("the name of input 'b' and the place of 'a'"),
            std::string::npos);
}

TEST_F(DataSetsTest, MissingInputsAndOutputs) {
  writeInOrder();
  std::filesystem::remove(folder.path("test_data_set_0/input_0.pb"));
  EXPECT_NE(errorOf(replay()).find("input 'a' is not recorded"), std::string::npos);
  write("input_0.pb", "", floatTensor({5, 7}));
  std::filesystem::remove(folder.path("test_data_set_0/output_1.pb"));
  EXPECT_NE(errorOf(replay()).find("output 'z' is not recorded"), std::string::npos);
  write("output_1.pb", "", int64Tensor({10, 14}));
  EXPECT_TRUE(llvm::cantFail(replay()).equal());
  std::filesystem::remove_all(folder.path("test_data_set_0"));
  EXPECT_FALSE(holdsDataSets(folder.path()));
  EXPECT_NE(errorOf(replay()).find("no test_data_set_<k> folders"), std::string::npos);
}

TEST_F(DataSetsTest, TolerancesAndDifferences) {
  writeInOrder();
  write("output_0.pb", "", floatTensor({4.0001f, 5.005f}));
  EXPECT_TRUE(llvm::cantFail(replay()).equal());
  EXPECT_FALSE(llvm::cantFail(replay(model, {1e-4, {}})).equal());
  EXPECT_TRUE(llvm::cantFail(replay(model, {{}, 1e-2})).equal());
  write("output_0.pb", "", floatTensor({4, 5.01f}));
  EXPECT_FALSE(llvm::cantFail(replay()).equal());
  // Integers are exact, whatever the tolerance.
  write("output_0.pb", "", floatTensor({4, 5}));
  write("output_1.pb", "", int64Tensor({10, 15}));
  EXPECT_FALSE(llvm::cantFail(replay(model, {10, 10})).equal());
}

TEST_F(DataSetsTest, AnotherShapeOrTypeIsADifference) {
  writeInOrder();
  write("output_0.pb", "", floatTensor({4, 5, 6}));
  ComparisonReport report = llvm::cantFail(replay());
  EXPECT_FALSE(report.equal());
  EXPECT_EQ(report.worst()->mismatch, "is float[2], and float[3] is recorded");
  write("output_0.pb", "", int64Tensor({4, 5}));
  EXPECT_EQ(llvm::cantFail(replay()).worst()->mismatch, "is float[2], and int64[2] is recorded");
}

TEST_F(DataSetsTest, SeveralSetsInTheOrderOfTheirNumbers) {
  writeInOrder();
  for (const char* set : {"test_data_set_2", "test_data_set_10"}) {
    write("input_0.pb", "", floatTensor({1}), set);
    write("input_1.pb", "", floatTensor({1}), set);
    write("output_0.pb", "", floatTensor({0}), set);
    write("output_1.pb", "", int64Tensor({2}), set);
  }
  ComparisonReport report = llvm::cantFail(replay());
  EXPECT_TRUE(report.equal());
  ASSERT_EQ(report.steps.size(), 3u);
  EXPECT_EQ(report.steps[1].phase, "test_data_set_2");
  EXPECT_EQ(report.steps[2].phase, "test_data_set_10");
  auto one = llvm::cantFail(readDataSets(folder.path("test_data_set_2/")));
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].name, "test_data_set_2");
}

TEST_F(DataSetsTest, SequencesAreRefused) {
  writeInOrder();
  // A SequenceProto of one tensor: elem_type TENSOR, tensor_values { dims: 1 data_type: FLOAT }.
  folder.write("test_data_set_0/input_0.pb", std::string("\x10\x01\x1a\x04\x08\x01\x10\x01", 8));
  EXPECT_NE(errorOf(replay()).find("sequences, maps and optional values are not supported"),
            std::string::npos);
  folder.write("test_data_set_0/input_0.pb", "\xff\xff");
  EXPECT_NE(errorOf(replay()).find("input_0.pb"), std::string::npos);
}

} // namespace
} // namespace kvopt
