// Temporary files, complete writes, and the final rename.
#include "ir/output_file.h"

#include "ir/diagnostic.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <random>
#include <sys/stat.h>
#include <utility>

namespace kvopt {
namespace {

// Independent of the target's name, which may already be as long as the file system allows.
std::string randomName() {
  std::random_device random;
  return fmt::format(".kvopt-{:08x}{:08x}.tmp", random(), random());
}

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

llvm::Error checkTarget(const std::string& path, const std::string& name) {
  if (path.find('\0') != std::string::npos || name.empty() || name == "." || name == "..")
    return usageError("'{}' is no name for an output file", path);
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
    return usageError("exists and is not a regular file; it is not replaced").file(path);
  return llvm::Error::success();
}

} // namespace

OutputFile::OutputFile(std::string path, std::string name, std::string temporaryName,
                       FileDescriptor folder, FileDescriptor file)
    : path_(std::move(path)), name_(std::move(name)), temporaryName_(std::move(temporaryName)),
      folder_(std::move(folder)), file_(std::move(file)) {}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)), name_(std::move(other.name_)),
      temporaryName_(std::exchange(other.temporaryName_, std::string())),
      folder_(std::move(other.folder_)), file_(std::move(other.file_)) {}

OutputFile::~OutputFile() { discard(); }

llvm::Expected<OutputFile> OutputFile::create(const std::string& path) {
  Place place = split(path);
  if (llvm::Error error = checkTarget(path, place.name))
    return error;
  FileDescriptor folder(::open(place.folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.isOpen())
    return ioError("cannot open the folder '{}': {}", place.folder, errnoText(errno)).file(path);

  constexpr int maxAttempts = 16;
  int error = EEXIST;
  for (int attempt = 0; attempt < maxAttempts && (error == EEXIST || error == EINTR); ++attempt) {
    std::string temporary = randomName();
    FileDescriptor file(::openat(folder.get(), temporary.c_str(),
                                 O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666));
    if (file.isOpen())
      return OutputFile(path, place.name, std::move(temporary), std::move(folder), std::move(file));
    error = errno;
  }
  return ioError("cannot create a file in '{}': {}", place.folder, errnoText(error)).file(path);
}

llvm::Error OutputFile::write(std::span<const std::byte> bytes) {
  if (llvm::Error error = checkOpen("write"))
    return error;
  // Linux writes at most 2 GiB less a page in one call.
  constexpr size_t chunk = size_t(1) << 30;
  while (!bytes.empty()) {
    ssize_t written = ::write(file_.get(), bytes.data(), std::min(bytes.size(), chunk));
    if (written < 0 && errno == EINTR)
      continue;
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
  // Not every file system can; then writing will tell.
  if (result != 0 && (errno == ENOSPC || errno == EFBIG || errno == EDQUOT))
    return fail(fmt::format("make room for {} bytes", bytes), errno);
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
  // Linux copies at most 2 GiB less a page in one call.
  constexpr int64_t most = int64_t(1) << 30;
  std::vector<std::byte> buffer;
  while (offset < end) {
    const auto wanted = static_cast<size_t>(std::min(end - offset, most));
    ssize_t copied = -1;
    if (buffer.empty()) {
      off_t from = offset;
      copied = ::copy_file_range(source, &from, file_.get(), nullptr, wanted, 0);
      // Between some file systems, and in some sandboxes, the bytes have to come this way.
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
      return fail(fmt::format("copy from '{}'", name), errno);
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
    return fail(fmt::format("inspect '{}'", source), errno);
  if (status.st_size < end) {
    discard();
    return invalid("ends before its contents do").file(source);
  }
  while (offset < end) {
    // A file system that knows no holes says that all is data.
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

llvm::Error OutputFile::close() {
  if (llvm::Error error = checkOpen("close"))
    return error;
  // Network file systems report a full disk as late as this. The descriptor is gone either way.
  if (::close(file_.release()) != 0 && errno != EINTR)
    return fail("close", errno);
  return llvm::Error::success();
}

llvm::Error OutputFile::commit() {
  if (file_.isOpen() || temporaryName_.empty())
    if (llvm::Error error = close())
      return error;
  if (::renameat(folder_.get(), temporaryName_.c_str(), folder_.get(), name_.c_str()) != 0)
    return fail("put in place", errno);
  temporaryName_.clear();
  return llvm::Error::success();
}

bool OutputFile::sharesPlaceWith(const OutputFile& other) const {
  struct stat mine {
  }, others{};
  return name_ == other.name_ && ::fstat(folder_.get(), &mine) == 0 &&
         ::fstat(other.folder_.get(), &others) == 0 && mine.st_dev == others.st_dev &&
         mine.st_ino == others.st_ino;
}

llvm::Error OutputFiles::commit() {
  for (size_t i = 1; i < files_.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (files_[i].sharesPlaceWith(files_[j]))
        return usageError("two of the files that are written have this path")
            .file(files_[i].path())
            .hint("give one of them another name");
  for (OutputFile& file : files_)
    if (llvm::Error error = file.close())
      return error;
  for (OutputFile& file : files_)
    if (llvm::Error error = file.commit())
      return error;
  return llvm::Error::success();
}

llvm::Error OutputFile::checkOpen(llvm::StringRef action) const {
  if (!file_.isOpen())
    return ioError("{} after a failure or a commit", action).file(path_);
  return llvm::Error::success();
}

llvm::Error OutputFile::fail(llvm::StringRef action, int error) {
  discard();
  return ioError("cannot {}: {}", action, errnoText(error)).file(path_);
}

void OutputFile::discard() {
  file_.reset();
  if (!temporaryName_.empty())
    ::unlinkat(folder_.get(), std::exchange(temporaryName_, std::string()).c_str(), 0);
}

bool sameFile(const std::string& a, const std::string& b) {
  struct stat first {
  }, second{};
  return ::stat(a.c_str(), &first) == 0 && ::stat(b.c_str(), &second) == 0 &&
         first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

} // namespace kvopt
