// Read-only, lazily paged views of files.
#pragma once

#include "support/confined_folder.h"
#include "support/mapped_ranges.h"

#include "llvm/Support/Error.h"
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace kvopt {

/// Identity of an open file; equal for two descriptors of the same file.
struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  friend bool operator==(const FileIdentity& a, const FileIdentity& b) {
    return a.device == b.device && a.inode == b.inode;
  }
};

/// A regular file mapped read-only. Mapping reads nothing: pages load when they are touched.
///
/// The mapping shows the bytes on disk, not a copy. When another process truncates the file, later
/// reads past its new end raise SIGBUS. A handler of that signal finds the file's name with
/// `mappedFileAt`, as cli/process.cc does; without a handler, the signal ends the process. An
/// output never overwrites a mapped input in place (see FileAccess and OutputFile).
class MappedFile {
public:
  using Result = llvm::Expected<std::shared_ptr<const MappedFile>>;

  /// Maps `path`, after following symbolic links. Fails unless it is a regular file; never blocks
  /// on a pipe.
  static Result open(const std::string& path);

  /// Maps a file that an untrusted file names: see ConfinedFolder::open.
  static Result openBeneath(const ConfinedFolder& folder, const std::string& name);
  /// The same: see ConfinedFolder::openByWalk.
  static Result openBeneathByWalk(const ConfinedFolder& folder, const std::string& name);

  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  /// The whole file; valid as long as this object.
  std::span<const std::byte> bytes() const { return bytes_; }
  /// `length` bytes at `offset`. If the file is shorter, returns an error that names it.
  llvm::Expected<std::span<const std::byte>> slice(uint64_t offset, uint64_t length) const;

  /// Declares that few places of the file are read, so that the system does not read those after
  /// them as well.
  void expectFewReads() const;
  /// Frees the memory of pages that were read. They are read again when they are touched.
  void release() const;

  const std::string& path() const { return path_; }
  FileIdentity identity() const { return identity_; }

private:
  MappedFile(std::string path, std::span<const std::byte> bytes, FileIdentity identity)
      : path_(std::move(path)), bytes_(bytes), identity_(identity),
        range_(std::in_place, bytes_, path_) {}
  void advise(int advice) const;
  static Result map(int descriptor, std::string path);
  static Result map(llvm::Expected<ConfinedFolder::File> file);

  std::string path_;
  std::span<const std::byte> bytes_;
  FileIdentity identity_;
  std::optional<MappedRange> range_;
};

} // namespace kvopt
