// Putting files in their places, and taking them away again.
#include "support/diagnostic.h"
#include "support/output_file.h"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <set>
#include <sys/stat.h>
#include <tuple>

namespace kvopt {

bool OutputFile::targetExists() const {
  struct stat status {};
  return ::fstatat(folder_.get(), name_.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
}

int OutputFile::link(const char* name) const {
  const std::string own = fmt::format("/proc/self/fd/{}", file_.get());
  return ::linkat(AT_FDCWD, own.c_str(), folder_.get(), name, AT_SYMLINK_FOLLOW) == 0 ? 0 : errno;
}

llvm::Error OutputFile::stage() {
  if (temporary_.isSet() || !targetExists())
    return llvm::Error::success();
  TemporaryName name = TemporaryName::in(folder_.get());
  if (int error = link(name.text()); error != 0) {
    if (error == EEXIST)
      name.release(); // It is somebody else's.
    return fail("put in place", error);
  }
  temporary_ = std::move(name);
  return llvm::Error::success();
}

int OutputFile::placeTemporary(bool keepsOld) {
  const int folder = folder_.get();
  const char* name = name_.c_str();
  struct stat status {};
  const bool replaces = ::fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) == 0;
  if (replaces && S_ISDIR(status.st_mode))
    return EISDIR; // An exchange would move it.
  if (replaces && keepsOld) {
    if (::renameat2(folder, temporary_.text(), folder, name, RENAME_EXCHANGE) == 0) {
      placed_ = Placed::Exchanged;
      return 0;
    }
    // File systems that cannot exchange names may know hard links.
    backup_ = TemporaryName::in(folder);
    if (::linkat(folder, name, folder, backup_.text(), 0) != 0)
      backup_.release();
  }
  if (::renameat(folder, temporary_.text(), folder, name) != 0)
    return errno;
  temporary_.release();
  placed_ = !replaces ? Placed::Fresh : backup_.isSet() ? Placed::Backed : Placed::Replaced;
  return 0;
}

llvm::Error OutputFile::place(bool keepsOld) {
  if (!temporary_.isSet()) {
    const int error = link(name_.c_str());
    if (error == 0) {
      placed_ = Placed::Fresh;
      return llvm::Error::success();
    }
    if (error != EEXIST)
      return fail("put in place", error);
    if (llvm::Error failure = stage())
      return failure;
  }
  if (int error = placeTemporary(keepsOld); error != 0)
    return fail("put in place", error);
  return llvm::Error::success();
}

void OutputFile::undo() {
  const int folder = folder_.get();
  if (placed_ == Placed::Fresh)
    ::unlinkat(folder, name_.c_str(), 0);
  else if (placed_ == Placed::Exchanged)
    ::renameat2(folder, temporary_.text(), folder, name_.c_str(), RENAME_EXCHANGE);
  else if (placed_ == Placed::Backed)
    ::renameat(folder, backup_.text(), folder, name_.c_str());
  placed_ = Placed::No;
  discard();
}

void OutputFile::finish() {
  temporary_.remove();
  backup_.remove();
  file_.reset();
}

llvm::Error OutputFile::commit() {
  if (!isClosed_)
    if (llvm::Error error = close())
      return error;
  if (placed_ != Placed::No || (!file_.isOpen() && !temporary_.isSet()))
    return ioError("commit after a failure or a commit").file(path_);
  const UninterruptedSection section;
  if (llvm::Error error = stage())
    return error;
  if (llvm::Error error = place(/*keepsOld=*/false))
    return error;
  finish();
  return llvm::Error::success();
}

llvm::Error OutputFiles::checkDistinct() const {
  std::set<std::tuple<dev_t, ino_t, std::string>> places;
  for (const OutputFile& file : files_) {
    struct stat folder {};
    if (::fstat(file.folder_.get(), &folder) != 0)
      return ioError("cannot inspect the folder: {}", errnoText(errno)).file(file.path_);
    if (!places.emplace(folder.st_dev, folder.st_ino, file.name_).second)
      return usageError("two outputs have this path")
          .file(file.path_)
          .hint("give one of them another name");
  }
  return llvm::Error::success();
}

llvm::Error OutputFiles::commit() {
  if (llvm::Error error = checkDistinct())
    return error;
  for (OutputFile& file : files_)
    if (llvm::Error error = file.close())
      return error;
  const UninterruptedSection section;
  for (OutputFile& file : files_)
    if (llvm::Error error = file.stage())
      return error;
  for (size_t i = 0; i < files_.size(); ++i)
    if (llvm::Error error = files_[i].place(/*keepsOld=*/i + 1 < files_.size())) {
      while (i-- > 0)
        files_[i].undo();
      return error;
    }
  for (OutputFile& file : files_)
    file.finish();
  return llvm::Error::success();
}

} // namespace kvopt
