// How a text begins and ends. LLVM renamed these members of `StringRef` (`startswith` until 17,
// `starts_with` from 16 on), so the tree calls neither.

#pragma once

#include "llvm/ADT/StringRef.h"

namespace kvopt {

/// True if the first characters of `text` are `prefix`.
inline bool startsWith(llvm::StringRef text, llvm::StringRef prefix) {
  return text.size() >= prefix.size() && text.take_front(prefix.size()) == prefix;
}

/// True if the last characters of `text` are `suffix`.
inline bool endsWith(llvm::StringRef text, llvm::StringRef suffix) {
  return text.size() >= suffix.size() && text.take_back(suffix.size()) == suffix;
}

} // namespace kvopt
