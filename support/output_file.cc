// Anonymous files, complete writes, and renaming of files to their final paths.
#include "support/output_file.h"

#include "support/diagnostic.h"
#include "support/file_access.h"
#include "support/file_copy.h"
#include "support/mapped_ranges.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <set>
#include <sys/stat.h>
#include <tuple>
#include <utility>

namespace kvopt {

namespace {

std::string descriptorPath(int descriptor) { return formatted("/proc/self/fd/{}", descriptor); }

struct Place {
  std::string folder;
  std::string name;
};

Place split(const std::string& path) {
  size_t slash = path.rfind('/');
  if (slash == std::string::npos)
    return {".", path};
  return {slash == 0 ? "/" : path.substr(0, slash), path.substr(slash + 1)};
}

llvm::Error notReplaced(const std::string& path, mode_t mode) {
  if (S_ISLNK(mode))
    return usageError("is a symbolic link; it is not replaced")
        .file(path)
        .hint("give the path that it leads to");
  return usageError("exists and is not a regular file; it is not replaced").file(path);
}

llvm::Error checkTarget(const std::string& path, const std::string& name) {
  if (path.find('\0') != std::string::npos || name.empty() || name == "." || name == "..")
    return usageError("'{}' is not a name for an output file", path);
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0) {
    if (!S_ISREG(status.st_mode))
      return notReplaced(path, status.st_mode);
  } else if (errno == ENAMETOOLONG) {
    return ioError("cannot create: {}", errnoText(errno)).file(path);
  }
  return llvm::Error::success();
}

llvm::Expected<FileDescriptor> openFolderOf(const std::string& path, const std::string& folder) {
  FileDescriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened.isOpen())
    return ioError("cannot open the folder '{}': {}", folder, errnoText(errno)).file(path);
  return opened;
}

} // namespace

OutputFile::OutputFile(std::string path, std::string name, FileDescriptor folder)
    : path_(std::move(path)), name_(std::move(name)), folder_(std::move(folder)) {}

llvm::Error OutputFile::check(const std::string& path) {
  const Place place = split(path);
  if (llvm::Error error = checkTarget(path, place.name))
    return error;
  llvm::Expected<FileDescriptor> folder = openFolderOf(path, place.folder);
  if (!folder)
    return folder.takeError();
  if (::faccessat(folder->get(), ".", W_OK | X_OK, AT_EACCESS) != 0)
    return ioError("cannot create a file in '{}': {}", place.folder, errnoText(errno)).file(path);
  return llvm::Error::success();
}

llvm::Expected<OutputFile> OutputFile::create(const std::string& path, FileAccess& access,
                                              Naming naming) {
  if (llvm::Error error = access.ensureWrites(path, "the output"))
    return error;
  const Place place = split(path);
  if (llvm::Error error = checkTarget(path, place.name))
    return error;
  llvm::Expected<FileDescriptor> folder = openFolderOf(path, place.folder);
  if (!folder)
    return folder.takeError();
  return createIn(std::move(*folder), place.name, path, naming);
}

llvm::Expected<OutputFile> OutputFile::createIn(FileDescriptor folder, const std::string& name,
                                                const std::string& path, Naming naming) {
  OutputFile file(path, name, std::move(folder));
  if (int error = file.open(naming); error != 0)
    return ioError("cannot create a file in '{}': {}", split(path).folder, errnoText(error))
        .file(path);
  return file;
}

int OutputFile::open(Naming naming) {
  if (naming == Naming::Anonymous) {
    FileDescriptor file(::openat(folder_.get(), ".", O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666));
    // Without /proc, the file could never get a name.
    if (file.isOpen() && ::access(descriptorPath(file.get()).c_str(), F_OK) == 0) {
      file_ = std::move(file);
      return 0;
    }
  }
  constexpr int maxAttempts = 16;
  int error = EEXIST;
  for (int attempt = 0; attempt < maxAttempts && (error == EEXIST || error == EINTR); ++attempt) {
    const UninterruptedSection section;
    TemporaryName name = TemporaryName::in(folder_.get());
    file_ = FileDescriptor(::openat(folder_.get(), name.text(),
                                    O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666));
    if (file_.isOpen()) {
      temporary_ = std::move(name);
      return 0;
    }
    error = errno;
    if (error == EEXIST)
      name.release(); // The name belongs to another file.
  }
  return error;
}

llvm::Error OutputFile::write(std::span<const std::byte> bytes) {
  if (llvm::Error error = checkOpen("write"))
    return error;
  // Linux writes at most 2 GiB minus one page per call.
  constexpr size_t chunk = size_t(1) << 30;
  while (!bytes.empty()) {
    ssize_t written = ::write(file_.get(), bytes.data(), std::min(bytes.size(), chunk));
    if (written < 0 && errno == EINTR)
      continue;
    // The kernel reads the bytes itself, and returns an error where a read here would raise SIGBUS.
    if (const char* source =
            written < 0 && errno == EFAULT ? mappedFileAt(bytes.data()) : nullptr) {
      discard();
      return invalid("the file became shorter while it was read").file(source);
    }
    if (written <= 0)
      return fail("write", written < 0 ? errno : EIO);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return llvm::Error::success();
}

llvm::Error OutputFile::write(llvm::StringRef text) {
  return write(std::as_bytes(std::span<const char>(text.data(), text.size())));
}

llvm::Error OutputFile::reserve(int64_t bytes) {
  if (llvm::Error error = checkOpen("reserve"))
    return error;
  if (bytes <= 0)
    return llvm::Error::success();
  int result = 0;
  do
    result = ::fallocate(file_.get(), FALLOC_FL_KEEP_SIZE, 0, bytes);
  while (result != 0 && errno == EINTR);
  // Not every file system can reserve space; on others the write reports a full disk.
  if (result != 0 && (errno == ENOSPC || errno == EFBIG || errno == EDQUOT))
    return fail(formatted("make room for {} bytes", bytes), errno);
  return llvm::Error::success();
}

llvm::Error OutputFile::skip(int64_t bytes) {
  if (llvm::Error error = checkOpen("skip"))
    return error;
  if (bytes == 0)
    return llvm::Error::success();
  const off_t end = ::lseek(file_.get(), bytes, SEEK_CUR);
  if (end < 0 || ::ftruncate(file_.get(), end) != 0)
    return fail("extend", errno);
  return llvm::Error::success();
}

llvm::Error OutputFile::copyData(int source, int64_t& offset, int64_t end,
                                 const std::string& name) {
  // Linux copies at most 2 GiB minus one page per call.
  constexpr int64_t most = int64_t(1) << 30;
  std::vector<std::byte> buffer;
  while (offset < end) {
    const auto wanted = static_cast<size_t>(std::min(end - offset, most));
    ssize_t copied = -1;
    if (buffer.empty()) {
      off_t from = offset;
      copied = ::copy_file_range(source, &from, file_.get(), nullptr, wanted, 0);
      // Between some file systems, and in some sandboxes, the bytes must be read and written.
      if (copied < 0 && (errno == EXDEV || errno == EINVAL || errno == ENOSYS ||
                         errno == EOPNOTSUPP || errno == EPERM)) {
        buffer.resize(size_t{1} << 20);
        continue;
      }
    } else {
      copied = ::pread(source, buffer.data(), std::min(wanted, buffer.size()), offset);
      if (copied > 0)
        if (llvm::Error error =
                write(std::span<const std::byte>(buffer).first(static_cast<size_t>(copied))))
          return error;
    }
    if (copied < 0 && errno == EINTR)
      continue;
    if (copied < 0)
      return fail(formatted("copy from '{}'", name), errno);
    if (copied == 0) {
      discard();
      return invalid("ends before its contents do").file(name);
    }
    offset += copied;
  }
  return llvm::Error::success();
}

llvm::Error OutputFile::copy(const FileDescriptor& file, int64_t offset, int64_t length,
                             const std::string& source) {
  if (llvm::Error error = checkOpen("copy"))
    return error;
  const int64_t end = offset + length;
  struct stat status {};
  if (::fstat(file.get(), &status) != 0)
    return fail(formatted("inspect '{}'", source), errno);
  if (status.st_size < end) {
    discard();
    return invalid("ends before its contents do").file(source);
  }
  while (offset < end) {
    // A file system without holes reports that everything is data.
    int64_t data = ::lseek(file.get(), offset, SEEK_DATA);
    if (data < 0)
      data = errno == ENXIO ? end : offset;
    data = std::min(data, end);
    if (data > offset)
      if (llvm::Error error = skip(data - offset))
        return error;
    offset = data;
    int64_t hole = offset < end ? ::lseek(file.get(), offset, SEEK_HOLE) : end;
    if (hole <= offset)
      hole = end;
    if (llvm::Error error = copyData(file.get(), offset, std::min(hole, end), source))
      return error;
  }
  return llvm::Error::success();
}

bool OutputFile::share(const FileDescriptor& file) {
  return !isClosed_ && file_.isOpen() && ::lseek(file_.get(), 0, SEEK_CUR) == 0 &&
         shareBlocks(file_, file);
}

llvm::Error OutputFile::close() {
  if (llvm::Error error = checkOpen("close"))
    return error;
  // Network file systems may not report a full disk before the file is closed. An anonymous file
  // must stay open until it has a name, so a copy of its descriptor is closed.
  const int closed =
      temporary_.isSet() ? file_.release() : ::fcntl(file_.get(), F_DUPFD_CLOEXEC, 0);
  if (closed < 0 || (::close(closed) != 0 && errno != EINTR))
    return fail("close", errno);
  isClosed_ = true;
  return llvm::Error::success();
}

llvm::Error OutputFile::checkOpen(llvm::StringRef action) const {
  if (isClosed_ || !file_.isOpen())
    return ioError("{} after a failure or a commit", action).file(path_);
  return llvm::Error::success();
}

llvm::Error OutputFile::fail(llvm::StringRef action, int error) {
  discard();
  return ioError("cannot {}: {}", action, errnoText(error)).file(path_);
}

void OutputFile::discard() {
  file_.reset();
  temporary_.remove();
  backup_.remove();
}

bool sameFile(const std::string& a, const std::string& b) {
  struct stat first {
  }, second{};
  return ::stat(a.c_str(), &first) == 0 && ::stat(b.c_str(), &second) == 0 &&
         first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

// Renaming of files to their final paths, and undoing it.

bool OutputFile::targetExists() const {
  struct stat status {};
  return ::fstatat(folder_.get(), name_.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
}

int OutputFile::link(const char* name) const {
  const std::string own = formatted("/proc/self/fd/{}", file_.get());
  return ::linkat(AT_FDCWD, own.c_str(), folder_.get(), name, AT_SYMLINK_FOLLOW) == 0 ? 0 : errno;
}

llvm::Error OutputFile::stage() {
  if (temporary_.isSet() || !targetExists())
    return llvm::Error::success();
  TemporaryName name = TemporaryName::in(folder_.get());
  if (int error = link(name.text()); error != 0) {
    if (error == EEXIST)
      name.release(); // The name belongs to another file.
    return fail("put in place", error);
  }
  temporary_ = std::move(name);
  return llvm::Error::success();
}

int OutputFile::exchange() const {
  return ::renameat2(folder_.get(), temporary_.text(), folder_.get(), name_.c_str(),
                     RENAME_EXCHANGE) == 0
             ? 0
             : errno;
}

llvm::Error OutputFile::checkReplaced(const char* name) {
  struct stat status {};
  if (::fstatat(folder_.get(), name, &status, AT_SYMLINK_NOFOLLOW) != 0)
    return fail("put in place", errno);
  if (S_ISREG(status.st_mode))
    return llvm::Error::success();
  if (S_ISDIR(status.st_mode))
    return fail("put in place", EISDIR);
  discard();
  return notReplaced(path_, status.st_mode);
}

llvm::Error OutputFile::placeTemporary(bool keepsOld) {
  const int folder = folder_.get();
  const char* name = name_.c_str();
  if (::renameat2(folder, temporary_.text(), folder, name, RENAME_NOREPLACE) == 0) {
    temporary_.release();
    placed_ = Placed::Fresh;
    return llvm::Error::success();
  }
  // File systems without that flag return an error other than EEXIST.
  const bool replaces = errno == EEXIST || targetExists();
  if (replaces)
    if (llvm::Error error = checkReplaced(name))
      return error;
  if (replaces && exchange() == 0) {
    // The exchanged file may have appeared after the check.
    struct stat old {};
    if (::fstatat(folder, temporary_.text(), &old, AT_SYMLINK_NOFOLLOW) == 0 &&
        !S_ISREG(old.st_mode)) {
      if (exchange() != 0)
        temporary_.release(); // It names the file that was there before.
      discard();
      return notReplaced(path_, old.st_mode);
    }
    placed_ = Placed::Exchanged;
    return llvm::Error::success();
  }
  if (replaces && keepsOld) {
    // File systems that cannot exchange names may support hard links.
    backup_ = TemporaryName::in(folder);
    if (::linkat(folder, name, folder, backup_.text(), 0) != 0)
      backup_.release();
  }
  if (::renameat(folder, temporary_.text(), folder, name) != 0)
    return fail("put in place", errno);
  temporary_.release();
  placed_ = !replaces ? Placed::Fresh : backup_.isSet() ? Placed::Backed : Placed::Replaced;
  return llvm::Error::success();
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
  return placeTemporary(keepsOld);
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

OutputFiles::OutputFiles(FileAccess& access) : access_(&access) {}
OutputFiles::OutputFiles() : own_(std::make_unique<FileAccess>()), access_(own_.get()) {}
OutputFiles::OutputFiles(OutputFiles&&) noexcept = default;
OutputFiles::~OutputFiles() = default;

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
