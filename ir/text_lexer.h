// Tokens of ONNX's textual syntax.
#pragma once

#include "ir/diagnostic.h"

#include "llvm/ADT/StringRef.h"

#include <string>

namespace kvopt {

struct Token {
  enum class Kind { End, Identifier, String, Integer, Float, Punctuation, Arrow, Bad };
  Kind kind = Kind::End;
  /// Identifiers, numbers and punctuation as written; strings without quotes and escapes.
  std::string text;
  size_t offset = 0;

  bool is(char punctuation) const { return kind == Kind::Punctuation && text[0] == punctuation; }
  bool isIdentifier(llvm::StringRef name) const { return kind == Kind::Identifier && text == name; }
};

/// Splits text into tokens, one ahead. `//` and `#` start comments. Identifiers are letters, digits
/// and `_`; numbers may have a sign; strings are in double quotes with \" \\ \n \t and \xHH.
class TextLexer {
public:
  TextLexer(llvm::StringRef source, llvm::StringRef sourceName)
      : text(source), fileName(sourceName) {
    advance();
  }

  const Token& peek() const { return current; }
  Token take() {
    Token token = std::move(current);
    advance();
    return token;
  }
  /// Takes the punctuation character if it is next.
  bool takeIf(char punctuation);
  /// Whether the first character after the current token, blanks apart, is `character`.
  bool isFollowedBy(char character) const;

  /// An error at a token: `file: line:column: message`.
  llvm::Error error(const Token& at, const std::string& message) const;
  /// `expected WHAT, found 'text'` at the current token.
  llvm::Error expected(const std::string& what) const;

private:
  void advance();
  void skipBlanks();
  void lexString();
  void lexNumber();
  bool startsNumber() const;

  llvm::StringRef text;
  llvm::StringRef fileName;
  size_t position = 0;
  Token current;
};

} // namespace kvopt
