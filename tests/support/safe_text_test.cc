// SafeText: what is inserted is escaped, what the program wrote is not.
#include "support/safe_text.h"

#include <gtest/gtest.h>

namespace kvopt {
namespace {

TEST(SafeText, EscapesArgumentsAndKeepsTheFormat) {
  const std::string name = "a\nkvopt: OK\x1b[2J";
  EXPECT_EQ(formatText("{}: {:>3}\n", name, 7).str(), "a\\x0akvopt: OK\\x1b[2J:   7\n");
  EXPECT_EQ(formatText("[{:<5}] {}", "\x1b", std::string_view("é")).str(), "[\\x1b ] é");
}

TEST(SafeText, KeepsWhatIsSafeAlready) {
  const SafeText red = SafeText::trusted("\x1b[31m") + formatText("{}", "\x1b") + "\n";
  EXPECT_EQ(formatText("{}", red).str(), "\x1b[31m\\x1b\n");
}

TEST(SafeText, TextThatNobodyFormattedKeepsItsLinesOnly) {
  EXPECT_EQ(SafeText(std::string("a\nb\x1b\u202e")).str(), "a\nb\\x1b\\u{202e}");
}

} // namespace
} // namespace kvopt
