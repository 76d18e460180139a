// Writing of a folder of files that appears completely or not at all.
#pragma once

#include "support/file_access.h"
#include "support/output_file.h"

#include <string>
#include <vector>

namespace kvopt {

/// Collects folders of files in a folder with a temporary name, and gives it its name on `commit`.
/// An existing empty folder is filled instead: its entries appear one after another. Without a
/// `commit`, or after any failure, nothing is left, and a folder that existed is empty again. Only
/// SIGKILL leaves the temporary name (see support/termination.h).
class OutputFolder {
public:
  /// Creates an output of `access`, and declares it there if the caller has not. Fails if `check`
  /// fails or if the folder cannot be created.
  static llvm::Expected<OutputFolder> create(const std::string& path, FileAccess& access);

  /// Fails if `path` exists and is not an empty folder, or if it cannot be created, as far as this
  /// is known without creating it. Follows links to folders.
  static llvm::Error check(const std::string& path);

  OutputFolder(OutputFolder&&) noexcept = default;
  OutputFolder& operator=(OutputFolder&&) = delete;
  ~OutputFolder() = default;

  /// Creates a subfolder. `name` contains no separator.
  llvm::Error addFolder(const std::string& name);
  /// Creates a file `name` in a subfolder; the caller commits it at once. It appears together with
  /// this folder.
  llvm::Expected<OutputFile> addFile(const std::string& folder, const std::string& name);

  /// Puts everything in place. Call it once, as the last call.
  llvm::Error commit();

private:
  OutputFolder(std::string path, std::string name, bool exists)
      : path_(std::move(path)), name_(std::move(name)), exists_(exists) {}
  llvm::Error rename();
  llvm::Error moveEntries();

  std::string path_;
  std::string name_; ///< name in `parent_` of a folder that does not exist yet
  bool exists_ = false;
  FileDescriptor
      parent_; ///< folder with the temporary name: the parent folder, or the existing folder itself
  TemporaryName temporary_; // Destroyed before the descriptor that it needs.
  FileDescriptor content_;
  std::vector<std::string> entries_;
};

} // namespace kvopt
