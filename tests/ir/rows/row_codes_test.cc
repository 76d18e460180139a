// What holds of all codes that are listed, whoever lists them.
#include "ir/rows/row_code.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace kvopt {
using namespace ir;

namespace {

TEST(RowCodes, AreToldApartByWhatTheyAreStoredAs) {
  std::set<std::string> words;
  for (const RowCode* code : rowCodes()) {
    SCOPED_TRACE(code->word);
    EXPECT_TRUE(words.insert(code->word).second);
    EXPECT_EQ(rowCodeOf(code->element), code);
    EXPECT_TRUE(byteWidth(code->element).has_value());
    EXPECT_EQ(code->encode == nullptr, code->decode == nullptr);
    EXPECT_GT(code->largest, 0);
    for (int64_t columns : {1, 2, 31, 32, 33, 576})
      EXPECT_GE(code->elementsOf(columns), 1);
  }
  EXPECT_GE(words.size(), 2u);
  EXPECT_EQ(rowCodeOf(ElementType::Float), nullptr);
  EXPECT_EQ(rowCodeOf(ElementType::Undefined), nullptr);
}

} // namespace
} // namespace kvopt
