// What changed when in the operators of ONNX's own domain.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace kvopt::opset {

/// The newest opset that the table below knows.
inline constexpr int64_t newestKnownOpset = 28;

/// A version of an operator: the opset that brought it.
struct OpVersion {
  int64_t since = 0;
  /// What was valid for the version before is not valid, or means something else. A version that
  /// only takes more (types, attributes with a default that means what was, optional operands)
  /// changes nothing for nodes of older ones.
  bool isChanged = false;
};

struct OpHistory {
  llvm::StringRef name;
  /// Oldest first, up to `newestKnownOpset`; older ones than the first are not known.
  llvm::ArrayRef<OpVersion> versions;

  /// The version that an import of `opset` selects; null if that is not known.
  const OpVersion* versionAt(int64_t opset) const;
};

/// nullopt for an operator that the table does not have: nothing may be assumed of it then.
std::optional<OpHistory> findHistory(llvm::StringRef op);

/// The whole table, sorted by name.
std::vector<OpHistory> opHistories();

} // namespace kvopt::opset
