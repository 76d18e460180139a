// Opening and mapping of regular files.
#include "support/mapped_file.h"

#include "support/diagnostic.h"
#include "support/file_descriptor.h"
#include "support/memory_error.h"

#include <cerrno>
#include <limits>
#include <sys/mman.h>
#include <sys/stat.h>

namespace kvopt {

const char MemoryError::ID = 0;

MappedFile::Result MappedFile::open(const std::string& path) {
  // A path with an embedded NUL would silently name another file.
  if (path.empty() || path.find('\0') != std::string::npos)
    return invalid("'{}' is not a file name", path);
  FileDescriptor file(retry([&] { return ::open(path.c_str(), readFlags); }));
  if (!file.isOpen())
    return ioError("cannot open: {}", errnoText(errno)).file(path);
  return map(file.get(), path);
}

MappedFile::Result MappedFile::map(llvm::Expected<ConfinedFolder::File> file) {
  if (!file)
    return file.takeError();
  return map(file->descriptor.get(), file->path);
}

MappedFile::Result MappedFile::openBeneath(const ConfinedFolder& folder, const std::string& name) {
  return map(folder.open(name));
}

MappedFile::Result MappedFile::openBeneathByWalk(const ConfinedFolder& folder,
                                                 const std::string& name) {
  return map(folder.openByWalk(name));
}

MappedFile::Result MappedFile::map(int descriptor, std::string path) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0)
    return ioError("cannot inspect: {}", errnoText(errno)).file(path);
  if (S_ISDIR(status.st_mode))
    return invalid("is a directory, not a file").file(path);
  if (!S_ISREG(status.st_mode))
    return invalid("is not a regular file").file(path);
  auto size = static_cast<uint64_t>(status.st_size);
  if (size > std::numeric_limits<size_t>::max())
    return unsupported("is too large to be mapped ({} bytes)", size).file(path);

  std::span<const std::byte> bytes;
  if (size != 0) {
    void* data = ::mmap(nullptr, static_cast<size_t>(size), PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (data == MAP_FAILED) {
      const int error = errno;
      auto refused = ioError("cannot map {} bytes: {}", size, errnoText(error)).file(path).take();
      return error == ENOMEM ? llvm::make_error<MemoryError>(std::move(refused))
                             : makeError(std::move(refused));
    }
    bytes = {static_cast<const std::byte*>(data), static_cast<size_t>(size)};
  }
  FileIdentity identity{static_cast<uint64_t>(status.st_dev), static_cast<uint64_t>(status.st_ino)};
  return std::shared_ptr<const MappedFile>(new MappedFile(std::move(path), bytes, identity));
}

MappedFile::~MappedFile() {
  range_.reset();
  if (!bytes_.empty())
    ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void MappedFile::expectFewReads() const { advise(MADV_RANDOM); }

void MappedFile::release() const { advise(MADV_DONTNEED); }

void MappedFile::advise(int advice) const {
  if (!bytes_.empty())
    ::madvise(const_cast<std::byte*>(bytes_.data()), bytes_.size(), advice);
}

llvm::Expected<std::span<const std::byte>> MappedFile::slice(uint64_t offset,
                                                             uint64_t length) const {
  uint64_t size = bytes_.size();
  if (offset > size || length > size - offset)
    return invalid("has {} bytes; {} bytes at offset {} were asked for", size, length, offset)
        .file(path_);
  return bytes_.subspan(static_cast<size_t>(offset), static_cast<size_t>(length));
}

} // namespace kvopt
