// A file that is copied as a whole: its size, its contents, and the room that a copy needs.
#pragma once

#include "support/file_descriptor.h"

#include "llvm/Support/Error.h"

#include <cstdint>
#include <functional>
#include <string>

namespace kvopt {

class FileAccess;
class OutputFile;

/// A regular file that is open for copying.
class CopySource {
public:
  /// Opens `path`, after following symbolic links. Fails unless it is a regular file.
  static llvm::Expected<CopySource> open(const std::string& path);

  const std::string& path() const { return path_; }
  const FileDescriptor& descriptor() const { return file_; }
  int64_t bytes() const { return bytes_; }
  /// Number of bytes outside holes, which a copy that keeps holes needs.
  int64_t dataBytes() const;
  /// Whether the file at `path` is a regular file with the same contents.
  bool hasContentsOf(const std::string& path) const;
  /// Whether a file in `folder` can share the blocks of this file, so that a copy needs no room.
  bool isShareableIn(const std::string& folder) const;

private:
  CopySource(std::string path, FileDescriptor file, int64_t bytes)
      : path_(std::move(path)), file_(std::move(file)), bytes_(bytes) {}

  std::string path_;
  FileDescriptor file_;
  int64_t bytes_ = 0;
};

/// Creates a copy of a whole file without putting it in place. It shares the blocks of the file
/// where the file system can, and holes stay holes. `onCopied` receives numbers of bytes, and may
/// be empty.
llvm::Expected<OutputFile> copyOf(const std::string& from, const std::string& path,
                                  FileAccess& access,
                                  const std::function<void(size_t bytes)>& onCopied = {});

/// Lets the empty file `target` share all blocks of `source`. False if the file system cannot, for
/// example between two file systems; the target is then still empty.
bool shareBlocks(const FileDescriptor& target, const FileDescriptor& source);

/// Number of bytes that this user can still write to the file system of `folder`; INT64_MAX if that
/// is unknown.
int64_t roomIn(const std::string& folder);

} // namespace kvopt
