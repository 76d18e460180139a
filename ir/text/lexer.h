// Tokens of ONNX's textual syntax, and a cursor over them that keeps the first error. Private to
// the text reader.
#pragma once

#include "support/diagnostic.h"

#include <optional>
#include <string>

namespace kvopt::ir {

/// One token; `text` is the source text, including quotes.
struct Token {
  enum class Kind { End, Identifier, String, Integer, Float, Punctuation, Arrow, Bad };
  Kind kind = Kind::End;
  llvm::StringRef text;
  size_t offset = 0;
  /// Description of the error of a Bad token.
  const char* problem = "";

  bool is(char c) const { return kind == Kind::Punctuation && text.front() == c; }
};

/// [A-Za-z_][A-Za-z0-9_]*
bool isTextIdentifier(llvm::StringRef text);
/// Whether the text is inf, infinity or nan in any case, which is a number wherever numbers are
/// allowed.
bool isSpecialFloat(llvm::StringRef text);
/// Whether a name needs no quotes anywhere: an identifier that is not a number and does not start a
/// type.
bool isBareName(llvm::StringRef text);
/// Whether the text is the name of a type, or the first word of one.
bool isTypeWord(llvm::StringRef text);
/// Text in quotes. Quotes and backslashes are preceded by a backslash, which also starts the
/// escapes of support/escape.h (`\x1b`, `\u{202e}`); ONNX's own parser reads these as `x1b` and
/// `u{202e}`. Line feeds are escaped, too, except in indented JSON, where spaces or closing
/// brackets follow.
std::string quotedText(llvm::StringRef text);

/// Reads a text token by token, with a lookahead of two. The first failure is kept, and all later
/// calls fail: functions return false, and `takeError` returns the reason.
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

  /// Records the failure at a position of the text and returns false.
  bool fail(size_t place, std::string message, llvm::StringRef hint = "");
  /// Fails with "expected `what`, found …" at the current token.
  bool unexpected(llvm::StringRef what, llvm::StringRef hint = "");
  bool failed() const { return problem.has_value(); }
  /// Requires failed().
  llvm::Error takeError();
  /// Line and column (in bytes), both from 1: "3:14".
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
