// Names, widths and families of element types.
#include "ir/element_type.h"

#include "ir/late_element_types.h"

#include <gtest/gtest.h>

namespace kvopt {
using namespace ir;

namespace {

TEST(ElementTypeTest, NamesAreReadBack) {
  for (int number = 1; number <= 26; ++number) {
    auto type = static_cast<ElementType>(number);
    EXPECT_NE(onnxName(type), "undefined") << number;
    EXPECT_EQ(elementTypeFromOnnxName(onnxName(type)), type);
    EXPECT_EQ(elementTypeFromDtypeName(dtypeName(type)), type);
  }
}

TEST(ElementTypeTest, FloatAndDoubleHaveTwoNames) {
  EXPECT_EQ(onnxName(ElementType::Float), "float");
  EXPECT_EQ(dtypeName(ElementType::Float), "float32");
  EXPECT_EQ(dtypeName(ElementType::Double), "float64");
  EXPECT_EQ(elementTypeFromOnnxName("float32"), std::nullopt);
  EXPECT_EQ(elementTypeFromDtypeName("float"), std::nullopt);
}

TEST(ElementTypeTest, UnnamedTypesHaveNoWidth) {
  for (int number : {-1, 0, 27, 99}) {
    auto type = static_cast<ElementType>(number);
    EXPECT_EQ(onnxName(type), "undefined");
    EXPECT_EQ(bitWidth(type), std::nullopt);
    EXPECT_FALSE(isInteger(type) || isFloatingPoint(type));
  }
  EXPECT_EQ(elementTypeFromOnnxName("undefined"), std::nullopt);
}

TEST(ElementTypeTest, WidthsInBitsAndBytes) {
  struct Case {
    ElementType type;
    std::optional<unsigned> bits, bytes;
  };
  for (const Case& c : {Case{ElementType::Float, 32, 4}, Case{ElementType::BFloat16, 16, 2},
                        Case{ElementType::Int64, 64, 8}, Case{ElementType::Bool, 8, 1},
                        Case{ElementType::Complex128, 128, 16}, Case{ElementType::Int4, 4, {}},
                        Case{uint2Type, 2, {}}, Case{float8E8M0Type, 8, 1},
                        Case{ElementType::Float8E5M2, 8, 1}, Case{ElementType::String, {}, {}}}) {
    EXPECT_EQ(bitWidth(c.type), c.bits) << onnxName(c.type).str();
    EXPECT_EQ(byteWidth(c.type), c.bytes) << onnxName(c.type).str();
  }
}

TEST(ElementTypeTest, BoolAndComplexAreNeitherIntegersNorFloats) {
  for (ElementType type : {ElementType::Bool, ElementType::Complex64, ElementType::String})
    EXPECT_FALSE(isInteger(type) || isFloatingPoint(type)) << onnxName(type).str();
  EXPECT_TRUE(isInteger(ElementType::UInt4));
  EXPECT_TRUE(isFloatingPoint(ElementType::Float4E2M1));
}

} // namespace
} // namespace kvopt
