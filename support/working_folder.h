// Private folder for files that exist only during a computation.
#pragma once

#include "support/file_descriptor.h"
#include "support/termination.h"

#include "llvm/Support/Error.h"

#include <string>

namespace kvopt {

/// A folder with a temporary name that only this user can read. It is removed with its contents
/// when this object is destroyed or a signal ends the process (see TemporaryName, which also limits
/// its depth).
class WorkingFolder {
public:
  /// Creates the folder in `parent`; "" is the current folder.
  static llvm::Expected<WorkingFolder> create(const std::string& parent);

  WorkingFolder(WorkingFolder&&) noexcept = default;
  WorkingFolder& operator=(WorkingFolder&&) = delete;
  ~WorkingFolder() = default;

  /// Absolute path of the folder.
  const std::string& path() const { return path_; }
  /// Absolute path of a file in the folder.
  std::string path(const std::string& name) const { return path_ + "/" + name; }

  /// Creates the folders in `name`, which is relative and has no ".." component.
  llvm::Error makeFoldersOf(const std::string& name);
  /// Gives an existing file a second name in this folder, and creates the folders in `name`. The
  /// file's contents are not copied: the new name is a hard link or, on another file system, a
  /// symbolic link. `name` is relative and has no ".." component.
  llvm::Error link(const std::string& file, const std::string& name);
  /// Removes a file of the folder, if it exists.
  void remove(const std::string& name);

private:
  WorkingFolder() = default;

  FileDescriptor parent_;
  TemporaryName name_; // Destroyed before the descriptor that it needs.
  FileDescriptor folder_;
  std::string path_;
};

} // namespace kvopt
