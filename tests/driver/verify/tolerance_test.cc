// Tolerances of whole models: the table of docs/tolerances.md.
#include "driver/verify/verification.h"
#include "ir/text/reader.h"
#include "tests/runtime/simd/rounding_bound.h"

#include <gtest/gtest.h>

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace runtime;

namespace {

class ToleranceTest : public ::testing::Test {
protected:
  /// The tolerance for a model with inputs of these types.
  Tolerance toleranceOf(const std::string& inputs, int roundings) {
    const std::string text = "<ir_version: 8, opset_import: [\"\" : 17]>\ng (float[N] x" + inputs +
                             ") => (float[N] y) { y = Relu (x) }";
    auto model = readText(text, toolkit.ops, "g");
    return toleranceFor(llvm::cantFail(std::move(model))->graph(), roundings);
  }

  Toolkit toolkit;
};

TEST_F(ToleranceTest, CoversTheRoundingsOfThePage) {
  struct Row {
    const char* inputs;
    double unit, absolute, relative, recorded, count;
  };
  for (const Row& row : {Row{"", 0x1p-24, 1e-4, 1e-4, 1e-4, 838},
                         Row{", float16[N] h", 0x1p-11, 4e-2, 2e-2, 2e-2, 40},
                         Row{", bfloat16[N] h", 0x1p-8, 2e-1, 1e-1, 1e-1, 23}}) {
    const Tolerance both = toleranceOf(row.inputs, 2);
    EXPECT_DOUBLE_EQ(both.absolute, row.absolute) << row.inputs;
    EXPECT_DOUBLE_EQ(both.relative, row.relative) << row.inputs;
    EXPECT_DOUBLE_EQ(toleranceOf(row.inputs, 1).absolute, row.recorded) << row.inputs;
    EXPECT_LE(2 * roundings(row.count, row.unit), both.absolute) << row.inputs;
    EXPECT_GT(2 * roundings(row.count + 1, row.unit), both.absolute) << row.inputs;
  }
}

TEST_F(ToleranceTest, TheCoarsestTypeDecides) {
  for (const char* inputs :
       {", float16[N] a, bfloat16[N] b", ", bfloat16[N] a, float16[N] b", ", bfloat16[N] a"})
    EXPECT_DOUBLE_EQ(toleranceOf(inputs, 2).absolute, 2e-1) << inputs;
  // Its rounding exceeds that of a float32 sum with this many terms.
  EXPECT_GE(0x1p-11, 8192 * floatUnit);
  EXPECT_GE(0x1p-8, 65536 * floatUnit);
}

} // namespace
} // namespace kvopt
