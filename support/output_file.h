// Writing of a file that appears completely or not at all.
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

/// Writes bytes to a file without a name, and gives it its name on `commit`. Until then the target
/// is unchanged. Without a `commit`, or after any failure, no file is left; not even if the process
/// is killed. On file systems without anonymous files (O_TMPFILE), the file has a temporary name
/// next to the target, which remains only after SIGKILL (see support/termination.h). Replacing an
/// existing file needs such a name for a moment. The data is not flushed to the disk.
///
///  Writes new files and replaces regular files only: if the target is a symbolic link, a device, a
///  pipe, a socket or a folder, creating the file fails, and so does `commit`. The permissions are
///  0666 minus the umask, also when a file is replaced.
class OutputFile {
public:
  /// Name of the file before the commit.
  enum class Naming {
    Anonymous, ///< No name, if the file system and the kernel support it.
    Temporary, ///< A temporary name.
  };

  /// Creates an output of `access`, and declares it there if the caller has not. Fails if the file
  /// is an input of `access`, if the folder is not writable, if the name is too long, or if `path`
  /// exists and is not a regular file.
  static llvm::Expected<OutputFile> create(const std::string& path, FileAccess& access,
                                           Naming naming = Naming::Anonymous);

  /// Fails if `create` would fail, as far as this is known without creating a file.
  static llvm::Error check(const std::string& path);

  OutputFile(OutputFile&&) noexcept = default;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile() = default;

  /// Appends all bytes. After a failure the file is removed and every later call fails.
  llvm::Error write(std::span<const std::byte> bytes);
  llvm::Error write(llvm::StringRef text);

  /// Appends `bytes` zeros, as a hole if the file system supports holes.
  llvm::Error skip(int64_t bytes);

  /// Appends `length` bytes of an open file, starting at `offset`. Holes are preserved. The kernel
  /// copies, and shares blocks if the file system can. `source` names the file in errors.
  llvm::Error copy(const FileDescriptor& file, int64_t offset, int64_t length,
                   const std::string& source);

  /// Shares all blocks of an open file instead of copying them. False if the file system cannot, or
  /// if this file is not empty; it is then unchanged.
  bool share(const FileDescriptor& file);

  /// Reserves space for a file of `bytes` bytes, if the file system can guarantee it. A full disk
  /// is then an error before anything is written.
  llvm::Error reserve(int64_t bytes);

  /// Descriptor for writers that need one; owned by this object. -1 after `close` and after a
  /// failure. A caller that writes through it checks its own errors, and does not commit after one.
  int descriptor() const { return isClosed_ ? -1 : file_.get(); }

  /// Ends writing, and reports errors such as a full disk. `commit` calls it if necessary.
  llvm::Error close();

  /// Gives the file its final path. Call it once, as the last call.
  llvm::Error commit();

  const std::string& path() const { return path_; }

private:
  friend class OutputFiles;
  friend class OutputFolder;

  /// How a file was put in place, which determines how to undo it.
  enum class Placed {
    No,
    Fresh,     ///< There was no file before.
    Exchanged, ///< The previous file has the temporary name.
    Backed,    ///< The previous file has the name of the backup.
    Replaced,  ///< The previous file is gone.
  };

  OutputFile(std::string path, std::string name, FileDescriptor folder);
  /// Creates a file `name` in an open folder; `path` is its name in errors.
  static llvm::Expected<OutputFile> createIn(FileDescriptor folder, const std::string& name,
                                             const std::string& path, Naming naming);
  /// Opens the descriptor, without a name or with a temporary one. Returns 0 or an errno.
  int open(Naming naming);
  /// Gives an anonymous file its name. Returns 0 or an errno.
  int link(const char* name) const;
  /// Performs all steps of a replacement that can fail before the target changes.
  llvm::Error stage();
  /// Puts the file in place. With `keepsOld`, keeps the previous file for `undo`.
  llvm::Error place(bool keepsOld);
  llvm::Error placeTemporary(bool keepsOld);
  /// Exchanges the names of the target and the new file. Returns 0 or an errno.
  int exchange() const;
  /// Fails unless `name` in the folder is a regular file.
  llvm::Error checkReplaced(const char* name);
  void undo();
  /// Removes the backup that `undo` would need.
  void finish();
  bool targetExists() const;

  llvm::Error fail(llvm::StringRef action, int error);
  llvm::Error checkOpen(llvm::StringRef action) const;
  llvm::Error copyData(int source, int64_t& offset, int64_t end, const std::string& name);
  void discard();

  std::string path_;
  std::string name_;
  FileDescriptor folder_; // Stays valid when the current directory changes.
  FileDescriptor file_;
  TemporaryName temporary_; // Not set for an anonymous file, or when nothing is left to remove.
  TemporaryName backup_;
  bool isClosed_ = false;
  Placed placed_ = Placed::No;
};

/// Files that appear together or not at all, in the order in which they were added. All are
/// completely written before the first one is put in place. If one cannot be put in place, those
/// before it are removed again, and the files that they replaced are restored.
class OutputFiles {
public:
  /// Files of one run of a program.
  explicit OutputFiles(FileAccess& access);
  /// Files of a library's caller, checked only against the files registered by functions that add
  /// them.
  OutputFiles();
  OutputFiles(OutputFiles&&) noexcept;
  ~OutputFiles();

  /// Registry in which the files are declared.
  FileAccess& access() const { return *access_; }
  void add(OutputFile file) { files_.push_back(std::move(file)); }
  /// Puts all files in place. Call it once, as the last call. Fails if two files have the same
  /// path. A signal that `endBySignal` handles waits until all files are in place.
  llvm::Error commit();

private:
  llvm::Error checkDistinct() const;

  std::unique_ptr<FileAccess> own_; // Null if the caller has one.
  FileAccess* access_;
  std::vector<OutputFile> files_;
};

/// Whether both paths lead to the same existing file, after following links.
bool sameFile(const std::string& a, const std::string& b);

} // namespace kvopt
