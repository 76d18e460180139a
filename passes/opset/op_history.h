// History of the operators in ONNX's own domain: the changes of each version.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace kvopt::opset {

/// Newest opset covered by the table below.
inline constexpr int64_t newestKnownOpset = 28;

/// A version of an operator: the opset that introduced it.
struct OpVersion {
  int64_t since = 0;
  /// Whether the version makes valid nodes of the version before invalid or changes their meaning.
  /// A version that only accepts more (types, attributes whose default keeps the meaning, optional
  /// operands) does not affect older nodes.
  bool isChanged = false;
};

struct OpHistory {
  llvm::StringRef name;
  /// Oldest first, up to `newestKnownOpset`; versions before the first are unknown.
  llvm::ArrayRef<OpVersion> versions;

  /// The version that an import of `opset` selects; null if it is unknown.
  const OpVersion* versionAt(int64_t opset) const;
};

/// nullopt for an operator that is not in the table: its behavior at other opsets is unknown.
std::optional<OpHistory> findHistory(llvm::StringRef op);

/// The whole table, sorted by name.
std::vector<OpHistory> opHistories();

} // namespace kvopt::opset
