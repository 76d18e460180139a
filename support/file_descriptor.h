// Ownership of a POSIX file descriptor, and flags for opening files.
#pragma once

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

namespace kvopt {

/// Flags for opening a file for reading. O_NONBLOCK keeps the call from waiting forever on a pipe
/// without a writer.
inline constexpr int readFlags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;

/// Repeats a system call that was interrupted by a signal.
template <class Call> auto retry(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR)
    result = call();
  return result;
}

/// Closes its descriptor on destruction; -1 means none.
class FileDescriptor {
public:
  FileDescriptor() = default;
  explicit FileDescriptor(int descriptor) : descriptor_(descriptor) {}
  FileDescriptor(FileDescriptor&& other) noexcept : descriptor_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      reset();
      descriptor_ = other.release();
    }
    return *this;
  }
  ~FileDescriptor() { reset(); }

  int get() const { return descriptor_; }
  bool isOpen() const { return descriptor_ >= 0; }
  /// Releases ownership without closing.
  int release() { return std::exchange(descriptor_, -1); }
  void reset() {
    if (isOpen())
      ::close(release());
  }

private:
  int descriptor_ = -1;
};

} // namespace kvopt
