// Errors about input: what is wrong, where, and how to fix it, carried by llvm::Error.
#pragma once

#include "support/format.h"
#include "support/safe_text.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvopt {

/// One problem with the user's input. All fields but `message` may be empty. They hold raw text,
/// which may come from a hostile file: print it through `text()`.
struct Diagnostic {
  Diagnostic();
  Diagnostic(const Diagnostic&);
  Diagnostic(Diagnostic&&) noexcept;
  Diagnostic& operator=(const Diagnostic&);
  Diagnostic& operator=(Diagnostic&&) noexcept;
  ~Diagnostic();

  enum class Kind {
    Invalid,     ///< The input breaks the rules of its format.
    Unsupported, ///< The input is valid but kvopt does not handle it.
    Io,          ///< The operating system failed to read or write.
    Usage,       ///< The request itself is wrong.
  };

  Kind kind = Kind::Invalid;
  std::string file;
  std::string node;
  std::string op;
  std::string value;
  std::string message;
  std::string hint;
  std::vector<std::string> notes;

  /// One line: "file: node 'n' (Op): value 'v': message; note: a; note: b; hint: h". Empty parts
  /// are omitted.
  SafeText text() const;
  std::string str() const { return text().str(); }
};

class DiagnosticError : public llvm::ErrorInfo<DiagnosticError> {
public:
  explicit DiagnosticError(Diagnostic diagnostic) : diagnostic_(std::move(diagnostic)) {}

  const Diagnostic& diagnostic() const { return diagnostic_; }
  Diagnostic& diagnostic() { return diagnostic_; }

  void log(llvm::raw_ostream& out) const override;
  std::error_code convertToErrorCode() const override;

  /// LLVM identifies an error class by this address.
  static const char ID;

private:
  Diagnostic diagnostic_;
};

llvm::Error makeError(Diagnostic diagnostic);

/// Assembles a Diagnostic and converts to an llvm::Error or a failed llvm::Expected:
///   return invalid("rank is {}, not 4", rank).node(name, "MatMul").hint("…");
class [[nodiscard]] DiagnosticBuilder {
public:
  DiagnosticBuilder(Diagnostic::Kind kind, std::string message) {
    diagnostic_.kind = kind;
    diagnostic_.message = std::move(message);
  }

  DiagnosticBuilder&& file(llvm::StringRef name) && {
    diagnostic_.file = name.str();
    return std::move(*this);
  }
  DiagnosticBuilder&& node(llvm::StringRef name, llvm::StringRef op = "") && {
    diagnostic_.node = name.str();
    diagnostic_.op = op.str();
    return std::move(*this);
  }
  DiagnosticBuilder&& value(llvm::StringRef name) && {
    diagnostic_.value = name.str();
    return std::move(*this);
  }
  DiagnosticBuilder&& hint(llvm::StringRef text) && {
    diagnostic_.hint = text.str();
    return std::move(*this);
  }
  DiagnosticBuilder&& note(llvm::StringRef text) && {
    diagnostic_.notes.push_back(text.str());
    return std::move(*this);
  }

  /// An error of a type derived from DiagnosticError.
  template <class Derived> llvm::Error as() && {
    return llvm::make_error<Derived>(std::move(diagnostic_));
  }
  Diagnostic take() && { return std::move(diagnostic_); }
  operator llvm::Error() && { return makeError(std::move(diagnostic_)); }
  template <class T> operator llvm::Expected<T>() && { return makeError(std::move(diagnostic_)); }

private:
  Diagnostic diagnostic_;
};

template <class... Values>
DiagnosticBuilder invalid(FormatPattern<std::type_identity_t<Values>...> pattern,
                          const Values&... values) {
  return {Diagnostic::Kind::Invalid, formattedAs(pattern.text, values...)};
}
template <class... Values>
DiagnosticBuilder unsupported(FormatPattern<std::type_identity_t<Values>...> pattern,
                              const Values&... values) {
  return {Diagnostic::Kind::Unsupported, formattedAs(pattern.text, values...)};
}
template <class... Values>
DiagnosticBuilder usageError(FormatPattern<std::type_identity_t<Values>...> pattern,
                             const Values&... values) {
  return {Diagnostic::Kind::Usage, formattedAs(pattern.text, values...)};
}
template <class... Values>
DiagnosticBuilder ioError(FormatPattern<std::type_identity_t<Values>...> pattern,
                          const Values&... values) {
  return {Diagnostic::Kind::Io, formattedAs(pattern.text, values...)};
}

/// Text of an errno value. Thread-safe.
std::string errnoText(int errnoValue);

/// Converts any failure to one Diagnostic. Several joined errors give the first one, with the
/// others as notes. `error` must be a failure.
Diagnostic takeDiagnostic(llvm::Error error);

/// Adds the file name to every joined diagnostic without one. Errors of other classes become
/// diagnostics. Success stays success.
llvm::Error withFile(llvm::Error error, llvm::StringRef file);

/// Adds a note to every joined diagnostic.
llvm::Error withNote(llvm::Error error, std::string note);

/// Adds the name of a value to every joined diagnostic that names neither a node nor a value.
llvm::Error withValue(llvm::Error error, llvm::StringRef value);

/// Adds the node and its operator to every joined diagnostic that has neither.
llvm::Error withNode(llvm::Error error, llvm::StringRef node, llvm::StringRef op = "");

} // namespace kvopt
