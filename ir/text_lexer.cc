// The lexer.
#include "ir/text_lexer.h"

#include "llvm/ADT/StringExtras.h"

namespace kvopt {

void TextLexer::skipBlanks() {
  while (position < text.size()) {
    if (llvm::isSpace(text[position])) {
      ++position;
      continue;
    }
    bool isComment = text[position] == '#' || text.substr(position).startswith("//");
    if (!isComment)
      return;
    position = std::min(text.find('\n', position), text.size());
  }
}

bool TextLexer::startsNumber() const {
  auto digitAt = [&](size_t index) { return index < text.size() && llvm::isDigit(text[index]); };
  size_t index = position;
  if (text[index] == '-' || text[index] == '+')
    ++index;
  if (digitAt(index) || (index < text.size() && text[index] == '.' && digitAt(index + 1)))
    return true;
  return index != position &&
         (text.substr(index).startswith("inf") || text.substr(index).startswith("nan"));
}

void TextLexer::lexNumber() {
  size_t start = position;
  bool isFloat = false;
  if (text[position] == '-' || text[position] == '+')
    ++position;
  if (position < text.size() && llvm::isAlpha(text[position])) {
    position += 3; // inf or nan
    isFloat = true;
  }
  while (position < text.size()) {
    char character = text[position];
    bool afterExponent = position > start && llvm::toLower(text[position - 1]) == 'e';
    if (llvm::isDigit(character)) {
    } else if (character == '.' || llvm::toLower(character) == 'e' ||
               ((character == '-' || character == '+') && afterExponent)) {
      isFloat = true;
    } else {
      break;
    }
    ++position;
  }
  current.kind = isFloat ? Token::Kind::Float : Token::Kind::Integer;
  current.text = text.slice(start, position).str();
}

void TextLexer::lexString() {
  ++position;
  current.kind = Token::Kind::String;
  while (position < text.size() && text[position] != '"') {
    char character = text[position++];
    if (character != '\\') {
      current.text += character;
      continue;
    }
    char escaped = position < text.size() ? text[position++] : '\0';
    if (escaped == 'n')
      current.text += '\n';
    else if (escaped == 't')
      current.text += '\t';
    else if (escaped == 'x' && position + 1 < text.size() && llvm::isHexDigit(text[position]) &&
             llvm::isHexDigit(text[position + 1])) {
      current.text += static_cast<char>(llvm::hexDigitValue(text[position]) * 16 +
                                        llvm::hexDigitValue(text[position + 1]));
      position += 2;
    } else if (escaped == '"' || escaped == '\\')
      current.text += escaped;
    else
      current.kind = Token::Kind::Bad;
  }
  if (position >= text.size())
    current.kind = Token::Kind::Bad;
  else
    ++position;
}

void TextLexer::advance() {
  skipBlanks();
  current = Token();
  current.offset = position;
  if (position >= text.size())
    return;
  char character = text[position];
  if (character == '"')
    return lexString();
  if (llvm::isAlpha(character) || character == '_') {
    size_t start = position;
    while (position < text.size() && (llvm::isAlnum(text[position]) || text[position] == '_'))
      ++position;
    current.kind = Token::Kind::Identifier;
    current.text = text.slice(start, position).str();
    return;
  }
  if (startsNumber())
    return lexNumber();
  if (text.substr(position).startswith("=>")) {
    current.kind = Token::Kind::Arrow;
    current.text = "=>";
    position += 2;
    return;
  }
  current.kind = llvm::StringRef("<>()[]{}=,:;@.?").contains(character) ? Token::Kind::Punctuation
                                                                        : Token::Kind::Bad;
  current.text = std::string(1, character);
  ++position;
}

bool TextLexer::takeIf(char punctuation) {
  if (!current.is(punctuation))
    return false;
  advance();
  return true;
}

bool TextLexer::isFollowedBy(char character) const {
  TextLexer ahead = *this;
  ahead.skipBlanks();
  return ahead.position < text.size() && text[ahead.position] == character;
}

llvm::Error TextLexer::error(const Token& at, const std::string& message) const {
  llvm::StringRef before = text.take_front(at.offset);
  size_t line = before.count('\n') + 1;
  size_t lineStart = before.rfind('\n');
  size_t column = lineStart == llvm::StringRef::npos ? at.offset + 1 : at.offset - lineStart;
  return invalid("{}:{}: {}", line, column, message).file(fileName);
}

llvm::Error TextLexer::expected(const std::string& what) const {
  if (current.kind == Token::Kind::End)
    return error(current, "expected " + what + ", found the end of the text");
  return error(current, "expected " + what + ", found '" + current.text + "'");
}

} // namespace kvopt
