// Ownership of one POSIX file descriptor.
#pragma once

#include <unistd.h>
#include <utility>

namespace kvopt {

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
  /// Gives up ownership without closing.
  int release() { return std::exchange(descriptor_, -1); }
  void reset() {
    if (isOpen())
      ::close(release());
  }

private:
  int descriptor_ = -1;
};

} // namespace kvopt
