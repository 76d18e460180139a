// Confinement with openat2, or with a walk over path components that follows no link.
#include "support/confined_folder.h"

#include "support/diagnostic.h"
#include "support/string_ends.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringRef.h"

#include <cassert>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <linux/openat2.h>
#include <optional>
#include <sys/stat.h>
#include <sys/syscall.h>

namespace kvopt {
namespace {

namespace fs = std::filesystem;

constexpr int folderFlags = O_PATH | O_DIRECTORY | O_CLOEXEC;

llvm::Error cannotOpen(const std::string& path, int error) {
  return ioError("cannot open: {}", errnoText(error)).file(path);
}

llvm::Error leavesFolder(const std::string& name, const std::string& folder, llvm::StringRef how) {
  return invalid("path '{}' {}", name, how)
      .file(folder)
      .hint("copy the file into the model's folder and refer to it by a relative path");
}

std::string joinPath(const std::string& folder, const std::string& name) {
  if (folder.empty())
    return name;
  return folder.back() == '/' ? folder + name : folder + "/" + name;
}

// A path with an embedded NUL would silently name another file.
bool holdsNul(const std::string& path) { return path.find('\0') != std::string::npos; }

llvm::Error checkRelative(const std::string& folder, const std::string& name) {
  if (holdsNul(folder) || holdsNul(name))
    return invalid("path '{}' contains a NUL byte", name).file(folder);
  if (name.empty())
    return invalid("empty file name").file(folder);
  if (name.front() == '/')
    return leavesFolder(name, folder, "is absolute");
  for (llvm::StringRef component : llvm::split(name, '/'))
    if (component == "..")
      return leavesFolder(name, folder, "has a '..' component");
  return llvm::Error::success();
}

/// An opened file, or the reason that opening failed.
struct Attempt {
  FileDescriptor file;
  int error = 0;                ///< errno of the system call that failed
  std::string failed;           ///< path for which it failed
  const char* leaves = nullptr; ///< how the name leaves the folder

  bool isMissing() const { return !leaves && error == ENOENT; }
};

FileDescriptor openFolder(const std::string& folder) {
  const char* name = folder.empty() ? "." : folder.c_str();
  return FileDescriptor(retry([&] { return ::open(name, folderFlags); }));
}

// Returns -1 and sets errno on failure, as the system call does.
int openat2Beneath(int folder, const std::string& name) {
  open_how how{};
  how.flags = static_cast<uint64_t>(readFlags);
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  // The kernel returns EAGAIN when a concurrent rename prevented it from proving confinement.
  constexpr int maxAttempts = 32;
  int descriptor = -1;
  for (int attempt = 0; attempt < maxAttempts; ++attempt) {
    descriptor = static_cast<int>(
        retry([&] { return ::syscall(SYS_openat2, folder, name.c_str(), &how, sizeof(how)); }));
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

Attempt walk(FileDescriptor current, const std::string& folder, const std::string& name) {
  llvm::SmallVector<llvm::StringRef, 8> components;
  llvm::StringRef(name).split(components, '/', -1, /*KeepEmpty=*/false);
  assert(!components.empty());
  for (size_t i = 0; i < components.size(); ++i) {
    const bool last = i + 1 == components.size();
    const std::string component = components[i].str();
    const int flags = (last ? readFlags : folderFlags) | O_NOFOLLOW;
    FileDescriptor next(retry([&] { return ::openat(current.get(), component.c_str(), flags); }));
    if (!next.isOpen()) {
      const int error = errno;
      return {{},
              error,
              joinPath(folder, name),
              isSymlink(current.get(), component) ? "goes through a symbolic link" : nullptr};
    }
    current = std::move(next);
  }
  return {std::move(current), 0, {}, nullptr};
}

enum class Way { Kernel, Walk };

// Requires that `name` has passed `checkRelative`.
Attempt openBeneath(const std::string& folder, const std::string& name, Way way) {
  FileDescriptor root = openFolder(folder);
  if (!root.isOpen())
    return {{}, errno, folder.empty() ? "." : folder, nullptr};
  if (way == Way::Walk)
    return walk(std::move(root), folder, name);
  FileDescriptor file(openat2Beneath(root.get(), name));
  if (file.isOpen())
    return {std::move(file), 0, {}, nullptr};
  const int error = errno;
  // Sandboxes that do not know openat2 return EPERM, which opening a file for reading never
  // returns.
  if (error == ENOSYS || error == EPERM)
    return walk(std::move(root), folder, name);
  return {{}, error, joinPath(folder, name), error == EXDEV ? "leads out of the folder" : nullptr};
}

/// The file's real path relative to the store; nullopt if it is not beneath the store.
std::optional<std::string> nameInStore(const std::string& file, const std::string& store) {
  std::error_code error;
  const fs::path real = fs::canonical(file, error);
  if (error)
    return std::nullopt;
  std::string name = real.lexically_relative(store).string();
  if (name.empty() || name == "." || startsWith(name, ".."))
    return std::nullopt;
  return name;
}

// The second opening is confined as well, so that a link that changes meanwhile cannot escape.
llvm::Expected<ConfinedFolder::File> openConfined(const ConfinedFolder& folder,
                                                  const std::string& name, Way way) {
  if (llvm::Error error = checkRelative(folder.path, name))
    return error;
  const std::string path = joinPath(folder.path, name);
  Attempt first = openBeneath(folder.path, name, way);
  if (first.file.isOpen())
    return ConfinedFolder::File{std::move(first.file), path};
  if (!folder.store.empty() && first.leaves) {
    if (const auto inStore = nameInStore(path, folder.store)) {
      Attempt second = openBeneath(folder.store, *inStore, way);
      if (second.file.isOpen())
        return ConfinedFolder::File{std::move(second.file), path};
    }
  } else if (!folder.store.empty() && first.isMissing()) {
    Attempt second = openBeneath(folder.store, name, way);
    if (second.file.isOpen())
      return ConfinedFolder::File{std::move(second.file), joinPath(folder.store, name)};
    if (second.leaves)
      return leavesFolder(name, folder.store, second.leaves);
  }
  if (first.leaves)
    return leavesFolder(name, folder.path, first.leaves);
  return cannotOpen(first.failed, first.error);
}

} // namespace

ConfinedFolder ConfinedFolder::of(const std::string& file) {
  ConfinedFolder folder(fs::path(file).parent_path().string());
  std::error_code error;
  if (!fs::is_symlink(file, error))
    return folder;
  const fs::path target = fs::canonical(file, error);
  if (!error)
    folder.store = target.parent_path().string();
  return folder;
}

llvm::Expected<ConfinedFolder::File> ConfinedFolder::open(const std::string& name) const {
  return openConfined(*this, name, Way::Kernel);
}

llvm::Expected<ConfinedFolder::File> ConfinedFolder::openByWalk(const std::string& name) const {
  return openConfined(*this, name, Way::Walk);
}

std::string ConfinedFolder::locate(const std::string& name) const {
  const std::string here = joinPath(path, name);
  std::error_code error;
  if (store.empty() || fs::exists(fs::symlink_status(here, error)))
    return here;
  const std::string there = joinPath(store, name);
  return fs::exists(fs::symlink_status(there, error)) ? there : here;
}

} // namespace kvopt
