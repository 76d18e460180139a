// Rendering of diagnostics, and their conversion from and to llvm::Error.
#include "support/diagnostic.h"

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/raw_ostream.h"
#include <cassert>
#include <memory>
#include <optional>
#include <system_error>

namespace kvopt {

Diagnostic::Diagnostic() = default;
Diagnostic::Diagnostic(const Diagnostic&) = default;
Diagnostic::Diagnostic(Diagnostic&&) noexcept = default;
Diagnostic& Diagnostic::operator=(const Diagnostic&) = default;
Diagnostic& Diagnostic::operator=(Diagnostic&&) noexcept = default;
Diagnostic::~Diagnostic() = default;

const char DiagnosticError::ID = 0;

namespace {

/// `text()` before escaping.
std::string joined(const Diagnostic& diagnostic) {
  std::string out;
  auto append = [&out](llvm::StringRef before, llvm::StringRef text, llvm::StringRef after) {
    if (!text.empty())
      ((out += before) += text) += after;
  };
  append("", diagnostic.file, ": ");
  if (!diagnostic.node.empty() || !diagnostic.op.empty()) {
    out += "node";
    append(" '", diagnostic.node, "'");
    append(" (", diagnostic.op, ")");
    out += ": ";
  }
  append("value '", diagnostic.value, "': ");
  append("", diagnostic.message, "");
  for (const std::string& note : diagnostic.notes)
    append("; note: ", note, "");
  append("; hint: ", diagnostic.hint, "");
  return out;
}

Diagnostic diagnosticOf(llvm::ErrorInfoBase& error) {
  if (error.isA<DiagnosticError>())
    return std::move(static_cast<DiagnosticError&>(error).diagnostic());
  Diagnostic diagnostic;
  diagnostic.kind = error.isA<llvm::ECError>() ? Diagnostic::Kind::Io : Diagnostic::Kind::Invalid;
  diagnostic.message = error.message();
  return diagnostic;
}

llvm::Error transform(llvm::Error error, llvm::function_ref<void(Diagnostic&)> edit) {
  return llvm::handleErrors(std::move(error),
                            [&](std::unique_ptr<llvm::ErrorInfoBase> info) -> llvm::Error {
                              // Errors of a derived type keep their type.
                              if (info->isA<DiagnosticError>()) {
                                edit(static_cast<DiagnosticError&>(*info).diagnostic());
                                return llvm::Error(std::move(info));
                              }
                              Diagnostic diagnostic = diagnosticOf(*info);
                              edit(diagnostic);
                              return makeError(std::move(diagnostic));
                            });
}

} // namespace

SafeText Diagnostic::text() const { return SafeText::trusted(escaped(joined(*this))); }

void DiagnosticError::log(llvm::raw_ostream& out) const { out << diagnostic_.str(); }

std::error_code DiagnosticError::convertToErrorCode() const {
  return llvm::inconvertibleErrorCode();
}

llvm::Error makeError(Diagnostic diagnostic) {
  return llvm::make_error<DiagnosticError>(std::move(diagnostic));
}

std::string errnoText(int errnoValue) { return std::generic_category().message(errnoValue); }

Diagnostic takeDiagnostic(llvm::Error error) {
  assert(error && "success has no diagnostic");
  std::optional<Diagnostic> first;
  llvm::handleAllErrors(std::move(error), [&](llvm::ErrorInfoBase& info) {
    if (first)
      first->notes.push_back(joined(diagnosticOf(info)));
    else
      first = diagnosticOf(info);
  });
  return std::move(first).value_or(Diagnostic());
}

llvm::Error withFile(llvm::Error error, llvm::StringRef file) {
  return transform(std::move(error), [&](Diagnostic& diagnostic) {
    if (diagnostic.file.empty())
      diagnostic.file = file.str();
  });
}

llvm::Error withNote(llvm::Error error, std::string note) {
  return transform(std::move(error),
                   [&](Diagnostic& diagnostic) { diagnostic.notes.push_back(note); });
}

llvm::Error withValue(llvm::Error error, llvm::StringRef value) {
  return transform(std::move(error), [&](Diagnostic& diagnostic) {
    if (diagnostic.node.empty() && diagnostic.value.empty())
      diagnostic.value = value.str();
  });
}

llvm::Error withNode(llvm::Error error, llvm::StringRef node, llvm::StringRef op) {
  return transform(std::move(error), [&](Diagnostic& diagnostic) {
    if (diagnostic.node.empty() && diagnostic.op.empty()) {
      diagnostic.node = node.str();
      diagnostic.op = op.str();
    }
  });
}

} // namespace kvopt
