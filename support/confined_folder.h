// Opening of files that an untrusted file names, confined to the folder of that file.
#pragma once

#include "support/file_descriptor.h"

#include "llvm/Support/Error.h"

#include <string>
#include <utility>

namespace kvopt {

/// Folder that contains the files named by a model.
///
///  Download caches keep files in a store and put links to them in a folder: a model's path and the
///  paths of its data are then links into the store. Such a model may use every file that a model
///  in the store may use.
struct ConfinedFolder {
  /// An opened file, and the path at which it was found.
  struct File {
    FileDescriptor descriptor;
    std::string path;
  };

  ConfinedFolder() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): a folder is its path
  ConfinedFolder(std::string folder) : path(std::move(folder)) {}
  // NOLINTNEXTLINE(google-explicit-constructor): a folder is its path
  ConfinedFolder(const char* folder) : path(folder) {}

  /// Folder of a file, and the store if the file's path is a link.
  static ConfinedFolder of(const std::string& file);

  /// Opens a file for reading. `name` comes from an untrusted file: an absolute path and a ".."
  /// component are errors. A symbolic link that leads out of the folder is an error unless its
  /// target is beneath the store. A name that is not in the folder is looked up in the store.
  /// Kernels without openat2 use `openByWalk`.
  llvm::Expected<File> open(const std::string& name) const;

  /// The same, opening one component after another. Stricter: in the folder and in the store, every
  /// symbolic link is an error, except links from the folder to the store.
  llvm::Expected<File> openByWalk(const std::string& name) const;

  /// Path of a name in the folder; in the store if the folder has no such name.
  std::string locate(const std::string& name) const;

  /// Folder to which names are relative; empty for the current folder.
  std::string path;
  /// Folder of the file to which the model's path links; empty if the path is not a link.
  std::string store;
};

} // namespace kvopt
