// Parsing and printing of operators' names.
#include "ir/op_name.h"

#include <cstring>

namespace kvopt::ir {

OpName::OpName(llvm::StringRef text) {
  // Patterns and rules compare operators with literals frequently, and most have no domain.
  const bool isPlain = text.empty() || !std::memchr(text.data(), ':', text.size());
  const size_t separator = isPlain ? llvm::StringRef::npos : text.rfind("::");
  if (separator == llvm::StringRef::npos) {
    typeName = text;
    return;
  }
  *this = OpName(text.take_front(separator), text.drop_front(separator + 2));
}

std::string OpName::str() const {
  return isOnnx() ? typeName.str() : (domainName.str() + "::" + typeName.str());
}

} // namespace kvopt::ir
