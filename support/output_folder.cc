// Temporary folders, and renaming of folders to their final paths.
#include "support/output_folder.h"

#include <cassert>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

namespace kvopt {
namespace {

namespace fs = std::filesystem;

constexpr int outputFolderFlags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;

struct FolderPlace {
  std::string parent;
  std::string name;
};

FolderPlace placeOf(std::string path) {
  while (path.size() > 1 && path.back() == '/')
    path.pop_back();
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos)
    return {".", path};
  return {slash == 0 ? "/" : path.substr(0, slash), path.substr(slash + 1)};
}

llvm::Error cannotCreate(const std::string& path, int error) {
  return ioError("cannot create the folder: {}", errnoText(error)).file(path);
}

/// Renames the entry, unless something has the new name already. Returns 0 or an errno.
int moveEntry(int from, const char* entry, int to, const char* name) {
  if (::renameat2(from, entry, to, name, RENAME_NOREPLACE) == 0)
    return 0;
  // File systems without that flag replace only empty folders.
  if (errno == EINVAL && ::renameat(from, entry, to, name) == 0)
    return 0;
  return errno;
}

} // namespace

llvm::Error OutputFolder::check(const std::string& path) {
  const FolderPlace place = placeOf(path);
  if (path.find('\0') != std::string::npos || place.name.empty())
    return usageError("'{}' is not a name for an output folder", path);
  std::string writable = path;
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) {
    if (!S_ISDIR(status.st_mode))
      return usageError("exists and is not a folder").file(path);
    std::error_code code;
    const bool isEmpty = fs::is_empty(path, code);
    if (code)
      return ioError("cannot read the folder: {}", code.message()).file(path);
    if (!isEmpty)
      return usageError("the folder is not empty").file(path);
  } else if (const int error = errno; ::lstat(path.c_str(), &status) == 0) {
    return usageError("is a symbolic link that leads nowhere; it is not replaced").file(path);
  } else if (error != ENOENT) {
    return cannotCreate(path, error);
  } else {
    writable = place.parent;
  }
  if (::access(writable.c_str(), W_OK | X_OK) != 0)
    return cannotCreate(path, errno);
  return llvm::Error::success();
}

llvm::Expected<OutputFolder> OutputFolder::create(const std::string& path, FileAccess& access) {
  if (llvm::Error error = access.ensureWrites(path, "the output"))
    return error;
  if (llvm::Error error = check(path))
    return error;
  const FolderPlace place = placeOf(path);
  struct stat status {};
  OutputFolder folder(path, place.name, ::stat(path.c_str(), &status) == 0);
  const std::string& parent = folder.exists_ ? path : place.parent;
  folder.parent_ = FileDescriptor(::open(parent.c_str(), outputFolderFlags));
  if (!folder.parent_.isOpen())
    return cannotCreate(path, errno);
  const UninterruptedSection section;
  TemporaryName name = TemporaryName::in(folder.parent_.get(), TemporaryName::Kind::Folder);
  if (::mkdirat(folder.parent_.get(), name.text(), 0777) != 0) {
    const int error = errno;
    name.release();
    return cannotCreate(path, error);
  }
  folder.temporary_ = std::move(name);
  folder.content_ = FileDescriptor(
      ::openat(folder.parent_.get(), folder.temporary_.text(), outputFolderFlags | O_NOFOLLOW));
  if (!folder.content_.isOpen())
    return cannotCreate(path, errno);
  return folder;
}

llvm::Error OutputFolder::addFolder(const std::string& name) {
  assert(temporary_.isSet() && name.find('/') == std::string::npos);
  const UninterruptedSection section;
  if (::mkdirat(content_.get(), name.c_str(), 0777) != 0)
    return cannotCreate(path_ + "/" + name, errno);
  entries_.push_back(name);
  return llvm::Error::success();
}

llvm::Expected<OutputFile> OutputFolder::addFile(const std::string& folder,
                                                 const std::string& name) {
  assert(temporary_.isSet());
  const std::string path = path_ + "/" + folder + "/" + name;
  FileDescriptor opened(::openat(content_.get(), folder.c_str(), outputFolderFlags | O_NOFOLLOW));
  if (!opened.isOpen())
    return ioError("cannot open the folder: {}", errnoText(errno)).file(path);
  return OutputFile::createIn(std::move(opened), name, path, OutputFile::Naming::Anonymous);
}

llvm::Error OutputFolder::rename() {
  if (const int error = moveEntry(parent_.get(), temporary_.text(), parent_.get(), name_.c_str());
      error != 0)
    return cannotCreate(path_, error);
  temporary_.release();
  return llvm::Error::success();
}

llvm::Error OutputFolder::moveEntries() {
  for (size_t i = 0; i < entries_.size(); ++i) {
    const int error =
        moveEntry(content_.get(), entries_[i].c_str(), parent_.get(), entries_[i].c_str());
    if (error == 0)
      continue;
    const std::string& failed = entries_[i];
    while (i-- > 0)
      moveEntry(parent_.get(), entries_[i].c_str(), content_.get(), entries_[i].c_str());
    return ioError("cannot put '{}' in place: {}", failed, errnoText(error)).file(path_);
  }
  temporary_.remove();
  return llvm::Error::success();
}

llvm::Error OutputFolder::commit() {
  assert(temporary_.isSet() && "a folder is committed once");
  const UninterruptedSection section;
  llvm::Error error = exists_ ? moveEntries() : rename();
  if (error)
    temporary_.remove();
  return error;
}

} // namespace kvopt
