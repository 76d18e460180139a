// What a signal that ends the process has to wait for, and what it has to remove.
//
// A signal handler can reach process-wide state only, so this file, support/mapped_ranges.h and
// cli/process.h have mutable globals, as an exception. Nothing here installs a handler: a program
// does that, as cli/process.cc shows. Without handlers, a signal ends the process at once and may
// leave the temporary names of files that are being put in place.
#pragma once

#include <string>

namespace kvopt {

/// While one exists, `endBySignal` waits: steps that only make sense together are not torn apart.
/// Keep them short. May be nested, and may exist in several threads.
class UninterruptedSection {
public:
  /// Does not return when the process is being ended.
  UninterruptedSection();
  /// Ends the process when a signal arrived meanwhile and this was the last section.
  ~UninterruptedSection();
  UninterruptedSection(const UninterruptedSection&) = delete;
  UninterruptedSection& operator=(const UninterruptedSection&) = delete;
};

/// A name in a folder that is removed when this object is destroyed, and when a signal ends the
/// process. Create the object before the file, both in one UninterruptedSection.
class TemporaryName {
public:
  /// What has the name.
  enum class Kind {
    File,
    Folder, ///< With files and folders in it, four levels at most; all are removed.
  };

  /// No name.
  TemporaryName() = default;
  /// A new random name in a folder, which is an open descriptor that outlives this object.
  static TemporaryName in(int folder, Kind kind = Kind::File);

  TemporaryName(TemporaryName&& other) noexcept;
  TemporaryName& operator=(TemporaryName&& other) noexcept;
  ~TemporaryName() { remove(); }

  bool isSet() const { return !name.empty(); }
  /// The name, relative to the folder. Requires that it is set.
  const char* text() const { return name.c_str(); }
  /// Removes the file or folder, if there is one of this name, and forgets the name.
  void remove();
  /// Forgets the name: what had it is gone or has another name.
  void release();

private:
  int folder = -1;
  Kind kind = Kind::File;
  int slot = -1; ///< in the table that signal handlers read; -1 if the table was full
  std::string name;
};

/// Removes everything that has a temporary name. Async-signal-safe.
void removeTemporaryFiles();

/// Handles a signal that ends the process: removes temporary files and raises the signal again with
/// its default action, at once or when the last UninterruptedSection ends. Async-signal-safe.
void endBySignal(int number);

} // namespace kvopt
