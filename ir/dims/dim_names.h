// Characters that are allowed in a symbol's name. Private to Dim.
#pragma once

#include "llvm/ADT/StringExtras.h"

namespace kvopt::ir {

inline bool isDimNameStart(char c) { return llvm::isAlpha(c) || c == '_'; }
inline bool isDimNamePart(char c) { return llvm::isAlnum(c) || c == '_' || c == '.' || c == ':'; }

} // namespace kvopt::ir
