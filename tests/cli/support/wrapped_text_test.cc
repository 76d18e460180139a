// Lines are as long as they may be, and no longer.
#include "cli/support/wrapped_text.h"

#include <gtest/gtest.h>

namespace kvopt {
using namespace cli;

namespace {

TEST(WrappedText, BreaksBetweenWords) {
  EXPECT_EQ(wrapped("one two three", 13, 0, 0), "one two three");
  EXPECT_EQ(wrapped("one two three", 12, 0, 0), "one two\nthree");
  EXPECT_EQ(wrapped("one two three", 12, 2, 6), "one\n  two three");
  EXPECT_EQ(wrapped("one  two", 80, 0, 0), "one two");
  EXPECT_EQ(wrapped("", 80, 4, 4), "");
}

TEST(WrappedText, LongWordsAreAlone) {
  EXPECT_EQ(wrapped("a incomprehensible b", 5, 1, 0), "a\n incomprehensible\n b");
  EXPECT_EQ(wrapped("incomprehensible", 5, 1, 4), "incomprehensible");
}

TEST(WrappedText, CountsCodePoints) {
  EXPECT_EQ(columnsOf("a…b"), 3u);
  EXPECT_EQ(wrapped("… … …", 5, 0, 0), "… … …");
}

TEST(WrappedText, KeepsWhatFits) {
  EXPECT_EQ(wrappedIfLong("a  b", 10, 4), "a  b");
  EXPECT_EQ(wrappedIfLong("a  b", 6, 4), "a\n    b");
  EXPECT_EQ(wrappedIfLong("a b", SIZE_MAX, 4), "a b");
}

TEST(WrappedText, WrapsLinesBelowTheirText) {
  EXPECT_EQ(wrappedLines("short\n  one two three\n", 11), "short\n  one two\n    three\n");
  EXPECT_EQ(wrappedLines("  mask  one two three", 16), "  mask  one two\n        three");
  EXPECT_EQ(wrappedLines("  a: --to b --c d, --to e", 22), "  a: --to b --c d,\n    --to e");
  EXPECT_EQ(wrappedLines("incomprehensible a b", 6), "incomprehensible\n  a b");
  EXPECT_EQ(wrappedLines("a incomprehensible", 4), "a\n  incomprehensible");
  EXPECT_EQ(wrappedLines("", 4), "");
}

TEST(WrappedText, ColorsHaveNoWidth) {
  EXPECT_EQ(wrappedLines("\x1b[32mone\x1b[0m two", 7), "\x1b[32mone\x1b[0m two");
  EXPECT_EQ(wrappedLines("\x1b[32mone\x1b[0m two", 6), "\x1b[32mone\x1b[0m\n  two");
}

TEST(WrappedText, CutsLinesOfTables) {
  EXPECT_EQ(cutLines("abc\nabcd\nabcde\n", 4), "abc\nabcd\nabc…\n");
  EXPECT_EQ(cutLines("│é│é│", 4), "│é│…");
  EXPECT_EQ(cutLines("", 4), "");
}

} // namespace
} // namespace kvopt
