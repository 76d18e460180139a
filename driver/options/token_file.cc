// Reading of texts and numbers as tokens.
#include "driver/options/token_file.h"

#include "support/diagnostic.h"
#include "support/mapped_file.h"

#include "llvm/ADT/StringRef.h"

namespace kvopt::driver {

namespace {

/// Parses numbers separated by white space or commas.
llvm::Expected<std::vector<int64_t>> tokensOf(llvm::StringRef text) {
  std::vector<int64_t> tokens;
  for (;;) {
    text = text.ltrim(" \t\r\n,");
    if (text.empty())
      return tokens;
    const llvm::StringRef word = text.take_until([](char c) { return isspace(c) || c == ','; });
    int64_t token = 0;
    if (word.getAsInteger(10, token))
      return usageError("'{}' is not a token number", word.take_front(40));
    tokens.push_back(token);
    text = text.drop_front(word.size());
  }
}

} // namespace

llvm::Expected<std::vector<int64_t>> readTokens(const TokenFiles& files) {
  if (files.path().empty())
    return std::vector<int64_t>();
  auto file = MappedFile::open(files.path());
  if (!file)
    return file.takeError();
  const std::span<const std::byte> bytes = (*file)->bytes();
  const llvm::StringRef text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  llvm::Expected<std::vector<int64_t>> tokens =
      std::vector<int64_t>(text.bytes_begin(), text.bytes_end());
  if (files.text.empty())
    tokens = tokensOf(text);
  if (!tokens)
    return withFile(tokens.takeError(), files.path());
  if (tokens->size() < 2)
    return withFile(usageError("fewer than two tokens"), files.path());
  return tokens;
}

} // namespace kvopt::driver
