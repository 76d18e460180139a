// A strict reader of XML documents that only says whether one is well-formed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvopt {

/// Elements, attributes in double quotes, character data, the five entities and decimal references;
/// no comments, declarations or CDATA. Bytes below 0x20 are allowed as white space only.
class XmlCheck {
public:
  explicit XmlCheck(std::string_view document) : rest(document) {}

  /// Empty when there is exactly one element and nothing else but white space; else what is wrong.
  std::string problem() {
    skipSpace();
    if (!element())
      return message.empty() ? "no element"
                             : message + " before: " + std::string(rest.substr(0, 60));
    skipSpace();
    return rest.empty() ? "" : "something follows the root: " + std::string(rest.substr(0, 60));
  }
  size_t elements() const { return count; }

private:
  bool fail(const char* what) {
    if (message.empty())
      message = what;
    return false;
  }
  bool take(std::string_view text) {
    if (rest.substr(0, text.size()) != text)
      return false;
    rest.remove_prefix(text.size());
    return true;
  }
  static bool isSpace(char byte) {
    return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
  }
  bool skipSpace() {
    bool any = false;
    for (; !rest.empty() && isSpace(rest[0]); rest.remove_prefix(1))
      any = true;
    return any;
  }
  std::string name() {
    size_t length = 0;
    auto isName = [](char byte) {
      return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
             (byte >= '0' && byte <= '9') || byte == '-' || byte == ':';
    };
    while (length < rest.size() && isName(rest[length]))
      ++length;
    std::string found(rest.substr(0, length));
    rest.remove_prefix(length);
    return found;
  }
  /// One character of text, or a reference.
  bool character() {
    auto byte = static_cast<unsigned char>(rest[0]);
    if (byte == '&') {
      for (const char* entity : {"&amp;", "&lt;", "&gt;", "&quot;", "&apos;"})
        if (take(entity))
          return true;
      if (!take("&#") || rest.empty() || rest[0] < '0' || rest[0] > '9')
        return fail("a wrong reference");
      while (!rest.empty() && rest[0] >= '0' && rest[0] <= '9')
        rest.remove_prefix(1);
      return take(";") || fail("a reference without end");
    }
    if ((byte < 0x20 && !isSpace(rest[0])) || byte == 0x7f || byte == '<')
      return fail("a forbidden character");
    size_t length = byte < 0x80 ? 1 : byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc2 ? 2 : 0;
    if (length == 0 || rest.size() < length)
      return fail("no UTF-8");
    for (size_t i = 1; i < length; ++i)
      if ((static_cast<unsigned char>(rest[i]) & 0xc0) != 0x80)
        return fail("no UTF-8");
    rest.remove_prefix(length);
    return true;
  }
  bool attributes() {
    std::vector<std::string> seen;
    while (skipSpace() && !rest.empty() && rest[0] != '>' && rest[0] != '/') {
      std::string attribute = name();
      for (const std::string& other : seen)
        if (other == attribute)
          return fail("an attribute twice");
      seen.push_back(attribute);
      if (attribute.empty() || !take("=\""))
        return fail("a wrong attribute");
      while (!rest.empty() && rest[0] != '"')
        if (!character())
          return false;
      if (!take("\""))
        return fail("an attribute without end");
    }
    return true;
  }
  bool element() {
    if (!take("<"))
      return fail("no element");
    std::string tag = name();
    ++count;
    if (tag.empty() || !attributes())
      return fail("a wrong tag");
    if (take("/>"))
      return true;
    if (!take(">"))
      return fail("a tag without end");
    while (!rest.empty() && rest.substr(0, 2) != "</")
      if (!(rest[0] == '<' ? element() : character()))
        return false;
    return (take("</") && name() == tag && take(">")) || fail("a wrong end tag");
  }

  std::string_view rest;
  std::string message;
  size_t count = 0;
};

} // namespace kvopt
