// Printing of names, operators and the lists of a header.
#include "ir/text/names.h"

#include "ir/text/lexer.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"

namespace kvopt::ir {

std::string nameText(llvm::StringRef name) {
  return isBareName(name) ? name.str() : quotedText(name);
}

namespace {

bool isBareDomain(llvm::StringRef domain) {
  llvm::SmallVector<llvm::StringRef, 4> parts;
  domain.split(parts, '.');
  return llvm::all_of(parts, isTextIdentifier);
}

} // namespace

std::string operatorText(OpName op) {
  std::string type = isTextIdentifier(op.type()) ? op.type().str() : quotedText(op.type());
  if (op.isOnnx())
    return type;
  return (isBareDomain(op.domain()) ? op.domain().str() : quotedText(op.domain())) + "." + type;
}

std::string pairsText(const Metadata& metadata) {
  std::string text = "[";
  for (const auto& [key, value] : metadata) {
    text += text.size() == 1 ? "" : ", ";
    text += quotedText(key) + ": " + quotedText(value);
  }
  return text + ']';
}

std::string opsetsText(const OpsetImports& opsets) {
  std::string text = "[";
  for (const auto& [domain, version] : opsets) {
    text += text.size() == 1 ? "" : ", ";
    text += formatted("{} : {}", quotedText(domain), version);
  }
  return text + ']';
}

std::string commentText(std::string text) {
  for (char& c : text)
    if (c == '\n' || c == '\r')
      c = ' ';
  return text;
}

} // namespace kvopt::ir
