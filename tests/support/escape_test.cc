// Escaping: nothing that a terminal interprets gets through, and nothing is lost.
#include "support/escape.h"

#include "support/utf8.h"

#include <gtest/gtest.h>

#include <random>

namespace kvopt {
namespace {

/// Undoes `escaped`.
std::string unescaped(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    size_t end = text.find('}');
    if (text.starts_with("\\u{") && end != std::string_view::npos) {
      out += utf8Of(
          static_cast<uint32_t>(std::stoul(std::string(text.substr(3, end - 3)), nullptr, 16)));
      text.remove_prefix(end + 1);
    } else if (text.starts_with("\\x") && text.size() >= 4 && std::isxdigit(text[2]) != 0 &&
               std::isxdigit(text[3]) != 0) {
      out += static_cast<char>(std::stoul(std::string(text.substr(2, 2)), nullptr, 16));
      text.remove_prefix(4);
    } else {
      out += text.front();
      text.remove_prefix(1);
    }
  }
  return out;
}

TEST(Escape, KeepsOrdinaryText) {
  for (const char* text : {"", "layer.0/MatMul_1", "attention é € 😀 אב", "C:\\models\\new.onnx",
                           "a\\b", "\\x", "\\xg0", "\\u", "\xef\xbf\xbd"}) {
    EXPECT_EQ(escaped(text), text);
    EXPECT_EQ(escapedLines(text), text);
    EXPECT_FALSE(hasUnsafeCharacters(text)) << text;
  }
}

TEST(Escape, ShowsWhatATerminalWouldInterpret) {
  EXPECT_EQ(escaped("\x1b[2J\a\r\n\t\x7f"), "\\x1b[2J\\x07\\x0d\\x0a\\x09\\x7f");
  EXPECT_EQ(escaped(std::string_view("\0", 1)), "\\x00");
  EXPECT_EQ(escaped("\u009b31m\u0085"), "\\u{9b}31m\\u{85}");
  EXPECT_EQ(escaped("a\u202eb\u2066c\u200f\u061c"), "a\\u{202e}b\\u{2066}c\\u{200f}\\u{61c}");
  EXPECT_EQ(escaped("\u200b\u00ad\ufeff\u2060\u180e\ufe0f\U000e0041"),
            "\\u{200b}\\u{ad}\\u{feff}\\u{2060}\\u{180e}\\u{fe0f}\\u{e0041}");
  EXPECT_EQ(escaped("\u2028\u2029"), "\\u{2028}\\u{2029}");
  EXPECT_EQ(escaped("\x80\xc0\xaf\xed\xa0\x80\xff"), "\\x80\\xc0\\xaf\\xed\\xa0\\x80\\xff");
}

TEST(Escape, KeepsLineFeedsAndTabsOfLines) {
  EXPECT_EQ(escapedLines("a\n\tb\r\n\x1b"), "a\n\tb\\x0d\n\\x1b");
  EXPECT_EQ(escapedLines("\\x1b"), "\\x1b");
}

TEST(Escape, IsReversible) {
  EXPECT_EQ(escaped("\\x1b \\u{202e}"), "\\x5cx1b \\x5cu{202e}");
  std::mt19937 random(5);
  constexpr std::string_view pieces[] = {"\\", "x",    "1",    "b",      "u{",
                                         "}",  "\x1b", "\xff", "\u202e", "é"};
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (int i = 0; i < 12; ++i)
      text += pieces[random() % std::size(pieces)];
    ASSERT_EQ(unescaped(escaped(text)), text);
    ASSERT_FALSE(hasUnsafeCharacters(escaped(text)));
    ASSERT_EQ(escapedLines(escaped(text)), escaped(text));
  }
}

TEST(Escape, JsonKeepsItsMeaning) {
  EXPECT_EQ(escapedJson("{\n  \"a\u202e\": \"\u009b\x7f\U000e0041é\"\n}"),
            "{\n  \"a\\u202e\": \"\\u009b\\u007f\\udb40\\udc41é\"\n}");
}

TEST(Escape, LinesInPiecesAreLinesAtOnce) {
  const std::string text = "a\u202e é😀\n\x1b\xf0\x9f\x98 b\xff\xe2\x82";
  for (size_t size = 1; size < 6; ++size) {
    LineEscaper escaper;
    std::string out;
    for (size_t at = 0; at < text.size(); at += size)
      out += escaper.add(std::string_view(text).substr(at, size));
    EXPECT_EQ(out + escaper.finish(), escapedLines(text)) << size;
  }
}

} // namespace
} // namespace kvopt
