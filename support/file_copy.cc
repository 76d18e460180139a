// Holes, shared blocks, and free room of Linux file systems.
#include "support/file_copy.h"

#include "support/diagnostic.h"
#include "support/output_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <vector>

namespace kvopt {
namespace {

/// The first byte of data at or after `offset`, at most `end`. A file system without holes reports
/// that everything is data.
int64_t nextData(int file, int64_t offset, int64_t end) {
  const int64_t data = ::lseek(file, offset, SEEK_DATA);
  if (data < 0)
    return errno == ENXIO ? end : offset;
  return std::min(data, end);
}

/// The end of the data at `offset`.
int64_t endOfData(int file, int64_t offset, int64_t end) {
  const int64_t hole = ::lseek(file, offset, SEEK_HOLE);
  return hole <= offset ? end : std::min(hole, end);
}

bool readAt(int file, char* buffer, size_t bytes, int64_t offset) {
  while (bytes != 0) {
    const ssize_t read = retry([&] { return ::pread(file, buffer, bytes, offset); });
    if (read <= 0)
      return false;
    buffer += read;
    offset += read;
    bytes -= static_cast<size_t>(read);
  }
  return true;
}

} // namespace

llvm::Expected<CopySource> CopySource::open(const std::string& path) {
  FileDescriptor file(retry([&] { return ::open(path.c_str(), readFlags); }));
  struct stat status {};
  if (!file.isOpen() || ::fstat(file.get(), &status) != 0)
    return ioError("cannot open: {}", errnoText(errno)).file(path);
  if (!S_ISREG(status.st_mode))
    return usageError("is not a regular file").file(path);
  return CopySource(path, std::move(file), status.st_size);
}

int64_t CopySource::dataBytes() const {
  int64_t total = 0;
  for (int64_t at = nextData(file_.get(), 0, bytes_); at < bytes_;) {
    const int64_t end = endOfData(file_.get(), at, bytes_);
    total += end - at;
    at = nextData(file_.get(), end, bytes_);
  }
  return total;
}

bool CopySource::hasContentsOf(const std::string& path) const {
  llvm::Expected<CopySource> other = open(path);
  if (!other) {
    llvm::consumeError(other.takeError());
    return false;
  }
  if (other->bytes_ != bytes_)
    return false;
  constexpr int64_t chunk = int64_t(1) << 20;
  std::vector<char> mine(chunk);
  std::vector<char> others(chunk);
  for (int64_t at = 0; at < bytes_;) {
    // Both files hold zeros before the next data of either.
    at = std::min(nextData(file_.get(), at, bytes_), nextData(other->file_.get(), at, bytes_));
    const auto count = static_cast<size_t>(std::min(chunk, bytes_ - at));
    if (!readAt(file_.get(), mine.data(), count, at) ||
        !readAt(other->file_.get(), others.data(), count, at) ||
        std::memcmp(mine.data(), others.data(), count) != 0)
      return false;
    at += static_cast<int64_t>(count);
  }
  return true;
}

bool CopySource::isShareableIn(const std::string& folder) const {
  const FileDescriptor trial(
      retry([&] { return ::open(folder.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0600); }));
  return trial.isOpen() && shareBlocks(trial, file_);
}

llvm::Expected<OutputFile> copyOf(const std::string& from, const std::string& path,
                                  FileAccess& access,
                                  const std::function<void(size_t bytes)>& onCopied) {
  auto source = CopySource::open(from);
  if (!source)
    return source.takeError();
  auto target = OutputFile::create(path, access);
  if (!target)
    return target.takeError();
  const int64_t bytes = source->bytes();
  const bool isShared = target->share(source->descriptor());
  constexpr int64_t chunk = int64_t(1) << 26;
  for (int64_t at = 0; at < bytes; at += chunk) {
    const int64_t count = std::min(chunk, bytes - at);
    if (!isShared)
      if (llvm::Error error = target->copy(source->descriptor(), at, count, from))
        return error;
    if (onCopied)
      onCopied(static_cast<size_t>(count));
  }
  return target;
}

bool shareBlocks(const FileDescriptor& target, const FileDescriptor& source) {
  return retry([&] { return ::ioctl(target.get(), FICLONE, source.get()); }) == 0;
}

int64_t roomIn(const std::string& folder) {
  struct statvfs status {};
  int64_t room = 0;
  if (retry([&] { return ::statvfs(folder.empty() ? "." : folder.c_str(), &status); }) != 0 ||
      __builtin_mul_overflow(status.f_bavail, status.f_frsize, &room))
    return std::numeric_limits<int64_t>::max();
  return room;
}

} // namespace kvopt
