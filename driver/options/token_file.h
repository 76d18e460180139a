// Files of tokens that commands read.
#pragma once

#include "llvm/Support/Error.h"

#include <cstdint>
#include <string>
#include <vector>

namespace kvopt::driver {

/// Paths of the files; at most one is given.
struct TokenFiles {
  std::string text;    ///< its bytes are the tokens of a byte-level model
  std::string numbers; ///< token numbers, separated by white space or commas

  const std::string& path() const { return text.empty() ? numbers : text; }
};

/// Tokens of the file; empty if no file is given. Fails for a file that cannot be read, has other
/// contents, or has fewer than two tokens.
llvm::Expected<std::vector<int64_t>> readTokens(const TokenFiles& files);

} // namespace kvopt::driver
