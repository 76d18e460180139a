// Tokens and errors of the text reader.
#include "ir/text/lexer.h"

#include "ir/element_type.h"
#include "support/string_ends.h"

#include "support/escape.h"
#include "support/utf8.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace kvopt::ir {
namespace {

bool isNameStart(char c) { return llvm::isAlpha(c) || c == '_'; }
bool isNamePart(char c) { return llvm::isAlnum(c) || c == '_'; }

/// Removes the escape at the start of `text` and returns its character in UTF-8, or the byte of
/// `\xNN`. Any other character after a backslash is returned unchanged.
std::string takeEscaped(llvm::StringRef& text) {
  llvm::StringRef rest = text.drop_front();
  unsigned code = 0;
  if (startsWith(rest, "x") && !rest.substr(1, 2).getAsInteger(16, code) && rest.size() >= 3) {
    text = rest.drop_front(3);
    return std::string(1, static_cast<char>(code));
  }
  const size_t end = rest.find('}');
  if (startsWith(rest, "u{") && end != llvm::StringRef::npos && end <= 8 &&
      !rest.slice(2, end).getAsInteger(16, code))
    if (std::string character = utf8Of(code); !character.empty()) {
      text = rest.drop_front(end + 1);
      return character;
    }
  text = rest.drop_front();
  return rest.take_front().str();
}

std::string decoded(llvm::StringRef quoted) {
  std::string out;
  llvm::StringRef body = quoted.drop_front().drop_back();
  out.reserve(body.size());
  while (!body.empty()) {
    if (body.front() == '\\') { // the lexer has ensured that a character follows
      out += takeEscaped(body);
    } else {
      out += body.front();
      body = body.drop_front();
    }
  }
  return out;
}

std::string describe(const Token& token) {
  constexpr size_t longest = 40;
  if (token.kind == Token::Kind::End)
    return "the end of the text";
  llvm::StringRef shown = token.text.take_front(longest);
  return formatted("`{}{}`", shown, shown.size() < token.text.size() ? "..." : "");
}

} // namespace

bool isTextIdentifier(llvm::StringRef text) {
  return !text.empty() && isNameStart(text.front()) && llvm::all_of(text, isNamePart);
}

bool isSpecialFloat(llvm::StringRef text) {
  return text.equals_insensitive("inf") || text.equals_insensitive("infinity") ||
         text.equals_insensitive("nan");
}

bool isTypeWord(llvm::StringRef text) {
  static constexpr llvm::StringLiteral others[] = {"undefined", "seq",           "map",
                                                   "optional",  "sparse_tensor", "opaque"};
  return elementTypeFromOnnxName(text) || llvm::is_contained(others, text) ||
         startsWith(text, "dtype_");
}

bool isBareName(llvm::StringRef text) {
  return isTextIdentifier(text) && !isSpecialFloat(text) && !isTypeWord(text);
}

std::string quotedText(llvm::StringRef text) {
  std::string out = "\"";
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"' || c == '\\')
      out += '\\';
    const bool isLayout = llvm::StringRef(" }]").contains(text.substr(i + 1).take_front());
    if (c == '\n' && (i + 1 == text.size() || !isLayout))
      out += "\\x0a";
    else
      out += c;
  }
  return escapedLines(out + '"');
}

TextCursor::TextCursor(llvm::StringRef source, llvm::StringRef fileName)
    : text(source), file(fileName.str()) {
  current = lex();
  following = lex();
}

Token TextCursor::take() {
  Token taken = current;
  current = following;
  following = lex();
  return taken;
}

void TextCursor::skipBlanks() {
  while (next < text.size()) {
    if (llvm::StringRef(" \t\r\n\f\v").contains(text[next])) {
      ++next;
    } else if (text[next] == '#' || startsWith(text.substr(next), "//")) {
      next = std::min(text.find('\n', next), text.size());
    } else {
      return;
    }
  }
}

Token TextCursor::finish(Token::Kind kind, size_t end) {
  Token token{kind, text.slice(next, end), next, ""};
  next = end;
  return token;
}

Token TextCursor::bad(size_t end, const char* why) {
  Token token = finish(Token::Kind::Bad, end);
  token.problem = why;
  return token;
}

Token TextCursor::lex() {
  skipBlanks();
  if (next >= text.size())
    return finish(Token::Kind::End, text.size());
  char c = text[next];
  if (isNameStart(c)) {
    size_t end = next;
    while (end < text.size() && isNamePart(text[end]))
      ++end;
    return finish(Token::Kind::Identifier, end);
  }
  if (c == '"')
    return lexString();
  if (llvm::isDigit(c) || c == '-')
    return lexNumber();
  if (startsWith(text.substr(next), "=>"))
    return finish(Token::Kind::Arrow, next + 2);
  if (startsWith(text.substr(next), "\xE2\x80\xA6"))
    return bad(next + 3, "the contents of this tensor were left out when the text was printed "
                         "(kvopt opt --elements all prints them)");
  if (llvm::StringRef("<>(){}[],:=.?@").contains(c))
    return finish(Token::Kind::Punctuation, next + 1);
  return bad(next + 1, "a character that has no meaning here");
}

Token TextCursor::lexString() {
  for (size_t end = next + 1; end < text.size(); ++end) {
    if (text[end] == '"')
      return finish(Token::Kind::String, end + 1);
    if (text[end] == '\\')
      ++end;
  }
  return bad(text.size(), "a string without a closing quote");
}

Token TextCursor::lexNumber() {
  size_t end = next + (text[next] == '-' ? 1 : 0);
  auto digits = [&] {
    size_t begin = end;
    while (end < text.size() && llvm::isDigit(text[end]))
      ++end;
    return end != begin;
  };
  if (end < text.size() && llvm::isAlpha(text[end])) {
    size_t begin = end;
    while (end < text.size() && isNamePart(text[end]))
      ++end;
    return isSpecialFloat(text.slice(begin, end)) ? finish(Token::Kind::Float, end)
                                                  : bad(end, "a sign without a number");
  }
  if (!digits())
    return bad(end, "a sign without a number");
  bool isFloat = end < text.size() && text[end] == '.';
  if (isFloat) {
    ++end;
    digits();
  }
  if (end < text.size() && (text[end] == 'e' || text[end] == 'E')) {
    isFloat = true;
    ++end;
    if (end < text.size() && (text[end] == '+' || text[end] == '-'))
      ++end;
    if (!digits())
      return bad(end, "a number whose exponent has no digits");
  }
  if (end < text.size() && isNamePart(text[end]))
    return bad(end + 1, "a number that runs into a name");
  return finish(isFloat ? Token::Kind::Float : Token::Kind::Integer, end);
}

bool TextCursor::accept(char punctuation) {
  if (failed() || !current.is(punctuation))
    return false;
  take();
  return true;
}

bool TextCursor::expect(char punctuation, llvm::StringRef where) {
  return accept(punctuation) || unexpected(formatted("`{}` {}", punctuation, where));
}

bool TextCursor::expectArrow() {
  if (current.kind != Token::Kind::Arrow)
    return unexpected("`=>` between inputs and outputs");
  take();
  return true;
}

bool TextCursor::name(std::string& out, llvm::StringRef what) {
  return current.kind == Token::Kind::String ? string(out, what) : identifier(out, what);
}

bool TextCursor::identifier(std::string& out, llvm::StringRef what) {
  if (current.kind != Token::Kind::Identifier)
    return unexpected(what);
  out = take().text.str();
  return true;
}

bool TextCursor::string(std::string& out, llvm::StringRef what) {
  if (current.kind != Token::Kind::String)
    return unexpected(what);
  out = decoded(take().text);
  return true;
}

bool TextCursor::integer(int64_t& out, llvm::StringRef what) {
  if (current.kind != Token::Kind::Integer)
    return unexpected(what);
  if (current.text.getAsInteger(10, out))
    return fail(current.offset, formatted("{} does not fit in 64 bits", describe(current)));
  take();
  return true;
}

bool TextCursor::fail(size_t place, std::string message, llvm::StringRef hint) {
  if (problem)
    return false;
  problem.emplace();
  problem->file = formatted("{}:{}", file, position(place));
  problem->message = std::move(message);
  problem->hint = hint.str();
  return false;
}

bool TextCursor::unexpected(llvm::StringRef what, llvm::StringRef hint) {
  if (current.kind == Token::Kind::Bad)
    return fail(current.offset, current.problem);
  return fail(current.offset, formatted("expected {}, found {}", what, describe(current)), hint);
}

llvm::Error TextCursor::takeError() {
  assert(problem);
  return makeError(std::move(*problem));
}

std::string TextCursor::position(size_t place) const {
  llvm::StringRef before = text.take_front(place);
  size_t lineStart = before.rfind('\n');
  size_t column = lineStart == llvm::StringRef::npos ? place + 1 : place - lineStart;
  return formatted("{}:{}", before.count('\n') + 1, column);
}

} // namespace kvopt::ir
