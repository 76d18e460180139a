// OpName: parsing and printing.
#include "ir/op_name.h"

namespace kvopt {

OpName::OpName(llvm::StringRef text) {
  size_t separator = text.rfind("::");
  if (separator == llvm::StringRef::npos) {
    typeName = text;
    return;
  }
  *this = OpName(text.take_front(separator), text.drop_front(separator + 2));
}

std::string OpName::str() const {
  return isOnnx() ? typeName.str() : (domainName.str() + "::" + typeName.str());
}

} // namespace kvopt
