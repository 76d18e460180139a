// UTF-8: what is a character, and what is a stray byte.
#include "support/utf8.h"

#include <gtest/gtest.h>

namespace kvopt {
namespace {

TEST(Utf8, EveryCodePointRoundTrips) {
  for (uint32_t point = 0; point <= 0x110000; ++point) {
    const bool isScalar = point <= 0x10FFFF && (point < 0xD800 || point >= 0xE000);
    const std::string text = utf8Of(point);
    ASSERT_EQ(!text.empty(), isScalar) << point;
    if (!isScalar)
      continue;
    const Utf8Character character = firstCharacter(text + "x");
    ASSERT_TRUE(character.isValid) << point;
    ASSERT_EQ(character.point, point);
    ASSERT_EQ(character.length, text.size());
    for (size_t cut = 1; cut < text.size(); ++cut) {
      ASSERT_EQ(incompleteSuffix("x" + text.substr(0, cut)), cut) << point;
      ASSERT_FALSE(firstCharacter(text.substr(0, cut)).isValid) << point;
    }
    ASSERT_EQ(incompleteSuffix(text), 0u) << point;
  }
}

TEST(Utf8, OtherBytesAreInvalid) {
  // Continuation without a start, overlong forms, a surrogate, beyond Unicode, bytes never used.
  for (const char* text :
       {"\x80", "\xbf", "\xc0\xaf", "\xc1\xbf", "\xe0\x80\xaf", "\xf0\x80\x80\xaf", "\xed\xa0\x80",
        "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff"}) {
    const Utf8Character character = firstCharacter(text);
    EXPECT_FALSE(character.isValid) << text;
    EXPECT_EQ(character.length, 1u) << text;
    EXPECT_EQ(character.point, static_cast<unsigned char>(text[0])) << text;
  }
}

} // namespace
} // namespace kvopt
