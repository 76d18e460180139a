// Tokens of ONNX's textual syntax, and a cursor over them that keeps the first error. Private to
// the text reader.
#pragma once

#include "support/diagnostic.h"

#include <optional>
#include <string>

namespace kvopt::ir {

/// One token; `text` is as written, quotes included.
struct Token {
  enum class Kind { End, Identifier, String, Integer, Float, Punctuation, Arrow, Bad };
  Kind kind = Kind::End;
  llvm::StringRef text;
  size_t offset = 0;
  /// What is wrong with a Bad token.
  const char* problem = "";

  bool is(char c) const { return kind == Kind::Punctuation && text.front() == c; }
};

/// [A-Za-z_][A-Za-z0-9_]*
bool isTextIdentifier(llvm::StringRef text);
/// inf, infinity or nan in any case: a number wherever one may stand.
bool isSpecialFloat(llvm::StringRef text);
/// Whether a name can stand without quotes anywhere: an identifier that starts no type and is no
/// number.
bool isBareName(llvm::StringRef text);
/// The name of a type, or the first word of one.
bool isTypeWord(llvm::StringRef text);
/// Text in quotes. A backslash comes before quotes and backslashes, and starts the escapes of
/// support/escape.h (`\x1b`, `\u{202e}`), which ONNX's own parser reads as `x1b` and `u{202e}`.
/// Line feeds are escaped, too, but for those of indented JSON, which spaces or closing brackets
/// follow.
std::string quotedText(llvm::StringRef text);

/// Reads a text token by token, two ahead. The first failure is kept and everything after it fails:
/// functions return false, and `takeError` says why.
class TextCursor {
public:
  TextCursor(llvm::StringRef source, llvm::StringRef fileName);

  const Token& peek() const { return current; }
  const Token& peekNext() const { return following; }
  Token take();
  bool atEnd() const { return current.kind == Token::Kind::End; }
  bool atName() const {
    return current.kind == Token::Kind::Identifier || current.kind == Token::Kind::String;
  }
  size_t offset() const { return current.offset; }
  size_t remainingBytes() const { return text.size() - current.offset; }

  bool accept(char punctuation);
  bool expect(char punctuation, llvm::StringRef where);
  bool expectArrow();
  /// An identifier or a quoted string.
  bool name(std::string& out, llvm::StringRef what);
  bool identifier(std::string& out, llvm::StringRef what);
  bool string(std::string& out, llvm::StringRef what);
  bool integer(int64_t& out, llvm::StringRef what);

  /// Records the failure at a place of the text and returns false.
  bool fail(size_t place, std::string message, llvm::StringRef hint = "");
  /// "expected `what`, found …" at the current token.
  bool unexpected(llvm::StringRef what, llvm::StringRef hint = "");
  bool failed() const { return problem.has_value(); }
  /// Requires failed().
  llvm::Error takeError();
  /// "3:14": line and column (in bytes), both from 1.
  std::string position(size_t place) const;

private:
  Token lex();
  Token lexNumber();
  Token lexString();
  Token finish(Token::Kind kind, size_t end);
  Token bad(size_t end, const char* why);
  void skipBlanks();

  llvm::StringRef text;
  std::string file;
  size_t next = 0;
  Token current;
  Token following;
  std::optional<Diagnostic> problem;
};

} // namespace kvopt::ir
