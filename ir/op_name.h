// OpName: an operator's domain and type.
#pragma once

#include "llvm/ADT/DenseMapInfo.h"
#include "llvm/ADT/Hashing.h"
#include "llvm/ADT/StringRef.h"

#include <string>

namespace kvopt::ir {

/// Domain of kvopt's own operators.
inline constexpr const char* kvoptDomain = "ai.kvopt";

/// Name of an operator: `MatMul`, `com.microsoft::Attention`, `ai.kvopt::Sdpa`. Does not own its
/// text: literals are static, and a node's name lives as long as its model. The ONNX domain can be
/// written as "" and "ai.onnx"; an OpName always stores "".
class OpName {
public:
  OpName() = default;
  OpName(llvm::StringRef domain, llvm::StringRef type)
      : domainName(domain == "ai.onnx" ? llvm::StringRef() : domain), typeName(type) {}
  /// Parses `Type` or `domain::Type`.
  OpName(llvm::StringRef text);                               // NOLINT(google-explicit-constructor)
  OpName(const char* text) : OpName(llvm::StringRef(text)) {} // NOLINT

  llvm::StringRef domain() const { return domainName; }
  llvm::StringRef type() const { return typeName; }
  bool isOnnx() const { return domainName.empty(); }
  std::string str() const;

  bool operator==(const OpName& other) const {
    return typeName == other.typeName && domainName == other.domainName;
  }
  bool operator!=(const OpName& other) const { return !(*this == other); }
  bool operator<(const OpName& other) const {
    return domainName != other.domainName ? domainName < other.domainName
                                          : typeName < other.typeName;
  }
  friend llvm::hash_code hash_value(const OpName& name) {
    return llvm::hash_combine(name.domainName, name.typeName);
  }

private:
  llvm::StringRef domainName;
  llvm::StringRef typeName;
};

} // namespace kvopt::ir

namespace llvm {
template <> struct DenseMapInfo<kvopt::ir::OpName> {
  static kvopt::ir::OpName getEmptyKey() {
    return {StringRef(), DenseMapInfo<StringRef>::getEmptyKey()};
  }
  static kvopt::ir::OpName getTombstoneKey() {
    return {StringRef(), DenseMapInfo<StringRef>::getTombstoneKey()};
  }
  static unsigned getHashValue(const kvopt::ir::OpName& name) {
    return static_cast<unsigned>(static_cast<size_t>(hash_value(name)));
  }
  static bool isEqual(const kvopt::ir::OpName& a, const kvopt::ir::OpName& b) {
    return DenseMapInfo<StringRef>::isEqual(a.type(), b.type()) && a.domain() == b.domain();
  }
};
} // namespace llvm
