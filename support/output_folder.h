// Writing a folder of files so that it appears whole or not at all.
#pragma once

#include "support/file_access.h"
#include "support/output_file.h"

#include <string>
#include <vector>

namespace kvopt {

/// Collects folders with files in a folder that has a temporary name, and gives it its name on
/// `commit`. An empty folder that exists is filled instead: it keeps its place, and its entries
/// appear in it one after the other. Without a `commit`, or after any failure, nothing is left, and
/// a folder that existed is empty again; only SIGKILL leaves the temporary name (see
/// support/termination.h).
class OutputFolder {
public:
  /// The folder is an output of `access`, which declares it if the caller has not. Fails as `check`
  /// does, and when it cannot be created.
  static llvm::Expected<OutputFolder> create(const std::string& path, FileAccess& access);

  /// Fails when `path` exists and is not an empty folder, and when it cannot be created, as far as
  /// that is known without creating it. Links that lead to a folder are followed.
  static llvm::Error check(const std::string& path);

  OutputFolder(OutputFolder&&) noexcept = default;
  OutputFolder& operator=(OutputFolder&&) = delete;
  ~OutputFolder() = default;

  /// Creates a folder in it. `name` has no separator.
  llvm::Error addFolder(const std::string& name);
  /// A file `name` in a folder that was added; the caller commits it at once. It appears with this
  /// folder.
  llvm::Expected<OutputFile> addFile(const std::string& folder, const std::string& name);

  /// Puts everything in its place. Only once, as the last call.
  llvm::Error commit();

private:
  OutputFolder(std::string path, std::string name, bool exists)
      : path_(std::move(path)), name_(std::move(name)), exists_(exists) {}
  llvm::Error rename();
  llvm::Error moveEntries();

  std::string path_;
  std::string name_; ///< in `parent_`, of a folder that does not exist yet
  bool exists_ = false;
  FileDescriptor parent_;   ///< where the temporary name is: the folder's parent, or the folder
  TemporaryName temporary_; // Destroyed before the descriptor that it needs.
  FileDescriptor content_;
  std::vector<std::string> entries_;
};

} // namespace kvopt
