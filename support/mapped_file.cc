// Opening of regular files, confined to a folder where asked, and mapping them.
#include "support/mapped_file.h"

#include "support/diagnostic.h"
#include "support/file_descriptor.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringRef.h"
#include <cassert>
#include <cerrno>
#include <fcntl.h>
#include <limits>
#include <linux/openat2.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

namespace kvopt {
namespace {

// O_NONBLOCK keeps the opening of a pipe without a writer from waiting forever.
constexpr int readFlags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
constexpr int folderFlags = O_PATH | O_DIRECTORY | O_CLOEXEC;

// Repeats a system call that a signal interrupted.
template <class Call> auto retry(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR)
    result = call();
  return result;
}

llvm::Error cannotOpen(const std::string& path, int error) {
  return ioError("cannot open: {}", errnoText(error)).file(path);
}

llvm::Error leavesFolder(const std::string& relativePath, const std::string& folder,
                         llvm::StringRef how) {
  return invalid("path '{}' {}", relativePath, how)
      .file(folder)
      .hint("copy the file into the model's folder and refer to it by a relative path");
}

std::string joinPath(const std::string& folder, const std::string& relativePath) {
  if (folder.empty())
    return relativePath;
  return folder.back() == '/' ? folder + relativePath : folder + "/" + relativePath;
}

// A path with an embedded NUL would silently name another file.
bool holdsNul(const std::string& path) { return path.find('\0') != std::string::npos; }

llvm::Error checkRelative(const std::string& folder, const std::string& relativePath) {
  if (holdsNul(folder) || holdsNul(relativePath))
    return invalid("path '{}' contains a NUL byte", relativePath).file(folder);
  if (relativePath.empty())
    return invalid("empty file name").file(folder);
  if (relativePath.front() == '/')
    return leavesFolder(relativePath, folder, "is absolute");
  for (llvm::StringRef component : llvm::split(relativePath, '/'))
    if (component == "..")
      return leavesFolder(relativePath, folder, "has a '..' component");
  return llvm::Error::success();
}

llvm::Expected<FileDescriptor> openFolder(const std::string& folder) {
  const char* name = folder.empty() ? "." : folder.c_str();
  FileDescriptor descriptor(retry([&] { return ::open(name, folderFlags); }));
  if (!descriptor.isOpen())
    return cannotOpen(name, errno);
  return descriptor;
}

// Gives -1 and errno on failure, as the system call does.
int openat2Beneath(int folder, const std::string& relativePath) {
  open_how how{};
  how.flags = static_cast<uint64_t>(readFlags);
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  // The kernel answers EAGAIN when a concurrent rename kept it from proving confinement.
  constexpr int maxAttempts = 32;
  int descriptor = -1;
  for (int attempt = 0; attempt < maxAttempts; ++attempt) {
    descriptor = static_cast<int>(retry(
        [&] { return ::syscall(SYS_openat2, folder, relativePath.c_str(), &how, sizeof(how)); }));
    if (descriptor >= 0 || errno != EAGAIN)
      break;
  }
  return descriptor;
}

bool isSymlink(int folder, const std::string& name) {
  struct stat status {};
  return ::fstatat(folder, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
         S_ISLNK(status.st_mode);
}

// `relativePath` has passed `checkRelative`.
llvm::Expected<FileDescriptor> walk(FileDescriptor current, const std::string& folder,
                                    const std::string& relativePath) {
  llvm::SmallVector<llvm::StringRef, 8> components;
  llvm::StringRef(relativePath).split(components, '/', -1, /*KeepEmpty=*/false);
  assert(!components.empty());
  for (size_t i = 0; i < components.size(); ++i) {
    bool last = i + 1 == components.size();
    std::string name = components[i].str();
    int flags = (last ? readFlags : folderFlags) | O_NOFOLLOW;
    FileDescriptor next(retry([&] { return ::openat(current.get(), name.c_str(), flags); }));
    if (!next.isOpen()) {
      int error = errno;
      if (isSymlink(current.get(), name))
        return leavesFolder(relativePath, folder, "goes through a symbolic link");
      return cannotOpen(joinPath(folder, relativePath), error);
    }
    current = std::move(next);
  }
  return current;
}

} // namespace

MappedFile::Result MappedFile::open(const std::string& path) {
  if (path.empty() || holdsNul(path))
    return invalid("'{}' is no file name", path);
  FileDescriptor file(retry([&] { return ::open(path.c_str(), readFlags); }));
  if (!file.isOpen())
    return cannotOpen(path, errno);
  return map(file.get(), path);
}

llvm::Expected<FileDescriptor> MappedFile::openDescriptorBeneath(const std::string& folder,
                                                                 const std::string& relativePath) {
  if (llvm::Error error = checkRelative(folder, relativePath))
    return error;
  llvm::Expected<FileDescriptor> root = openFolder(folder);
  if (!root)
    return root.takeError();
  FileDescriptor file(openat2Beneath(root->get(), relativePath));
  if (file.isOpen())
    return file;
  int error = errno;
  // Sandboxes that do not know openat2 answer EPERM, which a plain opening for reading never does.
  if (error == ENOSYS || error == EPERM)
    return walk(std::move(*root), folder, relativePath);
  if (error == EXDEV)
    return leavesFolder(relativePath, folder, "leads out of the folder");
  return cannotOpen(joinPath(folder, relativePath), error);
}

MappedFile::Result MappedFile::openBeneath(const std::string& folder,
                                           const std::string& relativePath) {
  llvm::Expected<FileDescriptor> file = openDescriptorBeneath(folder, relativePath);
  if (!file)
    return file.takeError();
  return map(file->get(), joinPath(folder, relativePath));
}

MappedFile::Result MappedFile::openBeneathByWalk(const std::string& folder,
                                                 const std::string& relativePath) {
  if (llvm::Error error = checkRelative(folder, relativePath))
    return error;
  llvm::Expected<FileDescriptor> root = openFolder(folder);
  if (!root)
    return root.takeError();
  llvm::Expected<FileDescriptor> file = walk(std::move(*root), folder, relativePath);
  if (!file)
    return file.takeError();
  return map(file->get(), joinPath(folder, relativePath));
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
    if (data == MAP_FAILED)
      return ioError("cannot map {} bytes: {}", size, errnoText(errno)).file(path);
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

llvm::Expected<std::span<const std::byte>> MappedFile::slice(uint64_t offset,
                                                             uint64_t length) const {
  uint64_t size = bytes_.size();
  if (offset > size || length > size - offset)
    return invalid("has {} bytes; {} bytes at offset {} were asked for", size, length, offset)
        .file(path_);
  return bytes_.subspan(static_cast<size_t>(offset), static_cast<size_t>(length));
}

} // namespace kvopt
