// Checked sizes and reading of small tensors.
#include "ir/tensor.h"

#include "support/diagnostic.h"

#include <gtest/gtest.h>

namespace kvopt {
using namespace ir;

namespace {

std::string failureOf(llvm::Error error) {
  return error ? takeDiagnostic(std::move(error)).str() : "";
}

TEST(TensorTest, ElementCountsAreChecked) {
  auto count = [](llvm::ArrayRef<int64_t> shape) { return checkedElementCount(shape); };
  EXPECT_EQ(llvm::cantFail(count({})), 1);
  EXPECT_EQ(llvm::cantFail(count({2, 3})), 6);
  EXPECT_EQ(llvm::cantFail(count({2, 0, 3})), 0);
  EXPECT_NE(failureOf(count({2, -1}).takeError()).find("negative"), std::string::npos);
  EXPECT_NE(failureOf(count({int64_t{1} << 40, int64_t{1} << 40}).takeError()), "");
  // An empty tensor's other extents may not overflow either.
  EXPECT_NE(failureOf(count({0, int64_t{1} << 40, int64_t{1} << 40}).takeError()), "");
}

TEST(TensorTest, ByteSizesOfPackedTypes) {
  EXPECT_EQ(llvm::cantFail(checkedByteSize(ElementType::Int4, 3)), 2);
  EXPECT_EQ(llvm::cantFail(checkedByteSize(ElementType::Float16, 3)), 6);
  EXPECT_NE(failureOf(checkedByteSize(ElementType::String, 3).takeError()), "");
  EXPECT_NE(failureOf(checkedByteSize(ElementType::Double, INT64_MAX / 8).takeError()), "");
}

TEST(TensorTest, TheNumberOfBytesMustFitTheShape) {
  auto tensor = makeTensor(ElementType::Float, {2}, std::vector<std::byte>(7));
  EXPECT_NE(failureOf(tensor.takeError()), "");
}

TEST(TensorTest, IntegersOfEveryWidth) {
  EXPECT_EQ(*integerValues(*int64Tensor({-1, 5})), (llvm::SmallVector<int64_t, 8>{-1, 5}));
  EXPECT_EQ(*integerValues(*boolTensor({true, false})), (llvm::SmallVector<int64_t, 8>{1, 0}));
  std::vector<std::byte> bytes{std::byte{0xff}, std::byte{0x01}};
  auto narrow = llvm::cantFail(makeTensor(ElementType::Int8, {2}, bytes));
  EXPECT_EQ(*integerValues(*narrow), (llvm::SmallVector<int64_t, 8>{-1, 1}));
  auto wide = llvm::cantFail(makeTensor(ElementType::UInt16, {1}, bytes));
  EXPECT_EQ(*integerValues(*wide), (llvm::SmallVector<int64_t, 8>{0x01ff}));
  EXPECT_FALSE(integerValues(*floatScalar(ElementType::Float, 1)));
  EXPECT_FALSE(integerValues(*int64Tensor({1, 2, 3}), /*limit=*/2));
}

TEST(TensorTest, ScalarsOfEveryFloatType) {
  for (ElementType type :
       {ElementType::Float, ElementType::Double, ElementType::Float16, ElementType::BFloat16}) {
    TensorRef tensor = floatScalar(type, 0.25, 2);
    EXPECT_EQ(tensor->shape(), (llvm::ArrayRef<int64_t>{1, 1}));
    EXPECT_EQ(scalarValue(*tensor), 0.25) << onnxName(type).str();
  }
  EXPECT_FALSE(scalarValue(*int64Tensor({1, 2})));
}

} // namespace
} // namespace kvopt
