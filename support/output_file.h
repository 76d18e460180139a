// Writing a file so that it appears whole or not at all.
#pragma once

#include "support/file_descriptor.h"
#include "support/termination.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace kvopt {

class FileAccess;

/// Collects bytes in a file that has no name, and gives it its name on `commit`. Until then the
/// target is as it was. Without a `commit`, or after any failure, nothing is left behind; not even
/// after the process was killed. File systems without anonymous files (O_TMPFILE) get a temporary
/// name next to the target instead, which only SIGKILL leaves behind (see support/termination.h).
/// Replacing an existing file takes such a name for the moment of the replacement. The data is not
/// forced to the disk.
///
/// Only a new name or a regular file is written: a symbolic link, a device, a pipe, a socket or a
/// folder at the target's place is refused, when the file is created and again when it gets its
/// name. The permissions are 0666 less the umask, also when a file is replaced.
class OutputFile {
public:
  /// What the file is called before the commit.
  enum class Naming {
    Anonymous, ///< Nothing, where the file system and the kernel allow that.
    Temporary, ///< A temporary name.
  };

  /// The file is an output of `access`, which declares it if the caller has not. Fails when it is
  /// an input there, when the folder cannot be written, when the name is too long, and when `path`
  /// exists and is not a regular file.
  static llvm::Expected<OutputFile> create(const std::string& path, FileAccess& access,
                                           Naming naming = Naming::Anonymous);

  /// Fails where `create` would, as far as that is known without creating a file.
  static llvm::Error check(const std::string& path);

  OutputFile(OutputFile&&) noexcept = default;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile() = default;

  /// Appends all bytes. After a failure the file is gone and every later call fails.
  llvm::Error write(std::span<const std::byte> bytes);
  llvm::Error write(llvm::StringRef text);

  /// Appends `bytes` zeros; a hole where the file system has holes.
  llvm::Error skip(int64_t bytes);

  /// Appends `length` bytes of an open file from `offset` on; its holes become holes. The kernel
  /// copies, and shares blocks where the file system can; `source` names the file in errors.
  llvm::Error copy(const FileDescriptor& file, int64_t offset, int64_t length,
                   const std::string& source);

  /// Reserves room for a file of that many bytes, where the file system can promise it. A full disk
  /// is then an error before anything is written.
  llvm::Error reserve(int64_t bytes);

  /// The descriptor, for writers that need one; this object keeps it. -1 after `close` and after a
  /// failure. A caller that writes through it checks its own errors, and does not commit after one.
  int descriptor() const { return isClosed_ ? -1 : file_.get(); }

  /// Ends writing. Errors for lack of room are reported by now. `commit` calls it if necessary.
  llvm::Error close();

  /// Puts the file in its place. Only once, as the last call.
  llvm::Error commit();

  const std::string& path() const { return path_; }

private:
  friend class OutputFiles;
  friend class OutputFolder;

  /// How a file came to its place, and how to take it away again.
  enum class Placed {
    No,
    Fresh,     ///< Nothing was there.
    Exchanged, ///< The file that was there has the temporary name.
    Backed,    ///< The file that was there has the name of the backup.
    Replaced,  ///< The file that was there is gone.
  };

  OutputFile(std::string path, std::string name, FileDescriptor folder);
  /// A file `name` in an open folder; `path` is its name in errors.
  static llvm::Expected<OutputFile> createIn(FileDescriptor folder, const std::string& name,
                                             const std::string& path, Naming naming);
  /// Opens the descriptor: without a name, or with a temporary one. Gives 0 or an errno.
  int open(Naming naming);
  /// Gives an anonymous file the name; 0 or an errno.
  int link(const char* name) const;
  /// Everything about a replacement that can fail before the target is touched.
  llvm::Error stage();
  /// Puts the file in its place; where `keepsOld`, so that `undo` restores what was there.
  llvm::Error place(bool keepsOld);
  llvm::Error placeTemporary(bool keepsOld);
  /// Exchanges the names of the target and the new file. Gives 0 or an errno.
  int exchange() const;
  /// Fails unless `name` in the folder is a regular file.
  llvm::Error checkReplaced(const char* name);
  void undo();
  /// Removes what `undo` would need.
  void finish();
  bool targetExists() const;

  llvm::Error fail(llvm::StringRef action, int error);
  llvm::Error checkOpen(llvm::StringRef action) const;
  llvm::Error copyData(int source, int64_t& offset, int64_t end, const std::string& name);
  void discard();

  std::string path_;
  std::string name_;
  FileDescriptor folder_; // Keeps the place, whatever the current directory becomes.
  FileDescriptor file_;
  TemporaryName temporary_; // Not set for an anonymous file, and once there is nothing to remove.
  TemporaryName backup_;
  bool isClosed_ = false;
  Placed placed_ = Placed::No;
};

/// Files that appear together or not at all, in the order in which they were added. All are
/// complete on the disk before the first is in its place. When one cannot be put in its place,
/// those before it are taken away again, and the files that they replaced are restored.
class OutputFiles {
public:
  /// Files of one program's run.
  explicit OutputFiles(FileAccess& access);
  /// Files of a library's caller, compared with what the functions that add them register.
  OutputFiles();
  OutputFiles(OutputFiles&&) noexcept;
  ~OutputFiles();

  /// Where the files are declared.
  FileAccess& access() const { return *access_; }
  void add(OutputFile file) { files_.push_back(std::move(file)); }
  /// Only once, as the last call. Fails when two files have the same place. A signal that
  /// `endBySignal` handles waits until all files are in their places.
  llvm::Error commit();

private:
  llvm::Error checkDistinct() const;

  std::unique_ptr<FileAccess> own_; // Null where the caller has one.
  FileAccess* access_;
  std::vector<OutputFile> files_;
};

/// Whether both paths lead to one existing file, links followed.
bool sameFile(const std::string& a, const std::string& b);

} // namespace kvopt
