// Recognizes a pointer file by its first line.
#include "support/lfs_pointer.h"

#include "support/diagnostic.h"
#include "support/string_ends.h"

namespace kvopt {

llvm::Error checkNoLfsPointer(std::span<const std::byte> bytes) {
  // The specification limits the size of pointer files.
  constexpr size_t mostBytes = 1024;
  const llvm::StringRef text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (bytes.size() >= mostBytes || !startsWith(text, "version https://git-lfs.github.com/spec/"))
    return llvm::Error::success();
  return invalid("the file is a pointer of Git LFS; its contents were not downloaded")
      .hint("git lfs pull");
}

} // namespace kvopt
