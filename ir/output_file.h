// Writing a file so that it appears whole or not at all.
#pragma once

#include "ir/file_descriptor.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace kvopt {

/// Collects bytes in a temporary file beside the target and renames it on `commit`. Until then the
/// target is as it was, so it may be one of the inputs. Without a `commit`, or after any failure,
/// nothing is left behind. The data is not forced to the disk.
///
/// The permissions are 0666 less the umask, also when a file is replaced. A symbolic link at the
/// target's place is replaced, not followed.
class OutputFile {
public:
  /// Fails when the folder cannot be written, and when `path` exists and is no regular file:
  /// renaming would destroy a device or a pipe.
  static llvm::Expected<OutputFile> create(const std::string& path);

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  /// Appends all bytes. After a failure the temporary file is gone and every later call fails.
  llvm::Error write(std::span<const std::byte> bytes);
  llvm::Error write(llvm::StringRef text);

  /// Goes on `bytes` further, with zeros between; a hole where the file system has holes.
  llvm::Error skip(int64_t bytes);

  /// Appends `length` bytes of an open file from `offset` on; its holes become holes. The kernel
  /// copies, and shares blocks where the file system can; `source` names the file in errors.
  llvm::Error copy(const FileDescriptor& file, int64_t offset, int64_t length,
                   const std::string& source);

  /// Makes sure of room for a file of that many bytes, where the file system can promise it. A full
  /// disk is then known before anything is written.
  llvm::Error reserve(int64_t bytes);

  /// For writers that need a descriptor; stays owned by this object, -1 once there is none. Whoever
  /// writes through it checks its own errors, and does not commit after one.
  int descriptor() const { return file_.get(); }

  /// Ends writing: what can fail for want of room has failed after it. `commit` does it where it
  /// was not called.
  llvm::Error close();

  /// Puts the file in its place. Only once, as the last call.
  llvm::Error commit();

  const std::string& path() const { return path_; }

  /// Would both be put in one place?
  bool sharesPlaceWith(const OutputFile& other) const;

private:
  OutputFile(std::string path, std::string name, std::string temporaryName, FileDescriptor folder,
             FileDescriptor file);
  llvm::Error fail(llvm::StringRef action, int error);
  llvm::Error checkOpen(llvm::StringRef action) const;
  llvm::Error copyData(int source, int64_t& offset, int64_t end, const std::string& name);
  void discard();

  std::string path_;
  std::string name_;
  std::string temporaryName_; // Empty once there is nothing to remove.
  FileDescriptor folder_;     // Keeps the place, whatever the current directory becomes.
  FileDescriptor file_;
};

/// Files that appear together, in the order in which they were added. Each is complete on the disk
/// before the first is in its place.
class OutputFiles {
public:
  void add(OutputFile file) { files_.push_back(std::move(file)); }
  /// Only once, as the last call. Fails where two of them would be put in one place. After an error
  /// nothing is left behind, unless a folder changed meanwhile so that only some of the files could
  /// be renamed.
  llvm::Error commit();

private:
  std::vector<OutputFile> files_;
};

/// Do both paths lead to one existing file, links followed? False when either does not exist.
bool sameFile(const std::string& a, const std::string& b);

} // namespace kvopt
