// Creation of a private folder, and links in it.
#include "support/working_folder.h"

#include "support/diagnostic.h"

#include <cassert>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <memory>
#include <sys/stat.h>

namespace kvopt {
namespace {

/// The path with all links followed; empty if it does not exist.
std::string realPath(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr),
                                                         &std::free);
  return real ? std::string(real.get()) : std::string();
}

} // namespace

llvm::Expected<WorkingFolder> WorkingFolder::create(const std::string& parent) {
  const std::string folder = parent.empty() ? "." : parent;
  const auto fail = [&](int error) {
    return ioError("cannot create a folder for candidates: {}", errnoText(error)).file(folder);
  };
  WorkingFolder made;
  made.parent_ = FileDescriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!made.parent_.isOpen())
    return fail(errno);
  {
    const UninterruptedSection section;
    made.name_ = TemporaryName::in(made.parent_.get(), TemporaryName::Kind::Folder);
    if (::mkdirat(made.parent_.get(), made.name_.text(), 0700) != 0) {
      const int error = errno;
      made.name_.release();
      return fail(error);
    }
  }
  made.folder_ = FileDescriptor(::openat(made.parent_.get(), made.name_.text(),
                                         O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  const std::string real = realPath(folder);
  if (!made.folder_.isOpen() || real.empty())
    return fail(errno);
  made.path_ = (real == "/" ? "" : real) + "/" + made.name_.text();
  return made;
}

llvm::Error WorkingFolder::makeFoldersOf(const std::string& name) {
  assert(!name.empty() && name.front() != '/');
  for (size_t slash = name.find('/'); slash != std::string::npos; slash = name.find('/', slash + 1))
    if (::mkdirat(folder_.get(), name.substr(0, slash).c_str(), 0700) != 0 && errno != EEXIST)
      return ioError("cannot create a folder: {}", errnoText(errno)).file(path(name));
  return llvm::Error::success();
}

llvm::Error WorkingFolder::link(const std::string& file, const std::string& name) {
  if (llvm::Error error = makeFoldersOf(name))
    return error;
  // A hard link to the file itself, because programs that confine data to a folder refuse links
  // that lead out of it.
  const std::string real = realPath(file);
  if (real.empty())
    return ioError("cannot read the file: {}", errnoText(errno)).file(file);
  if (::linkat(AT_FDCWD, real.c_str(), folder_.get(), name.c_str(), 0) == 0)
    return llvm::Error::success();
  if (errno == EEXIST || ::symlinkat(real.c_str(), folder_.get(), name.c_str()) == 0)
    return llvm::Error::success();
  return ioError("cannot link to the file: {}", errnoText(errno)).file(file);
}

void WorkingFolder::remove(const std::string& name) { ::unlinkat(folder_.get(), name.c_str(), 0); }

} // namespace kvopt
