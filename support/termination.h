// State that a signal which ends the process must wait for, and files that it must remove.
//
// A signal handler can access only process-wide state. Therefore this file, support/mapped_ranges.h
// and cli/process.h have mutable globals, as an exception. Nothing here installs a handler: a
// program does that, as cli/process.cc shows. Without handlers, a signal ends the process at once
// and may leave temporary names of files that are being put in place.
#pragma once

#include <string>

namespace kvopt {

/// Delays `endBySignal` during its lifetime, so that steps that belong together are not
/// interrupted. Keep sections short. They may be nested, and may exist in several threads.
class UninterruptedSection {
public:
  /// Does not return if the process is ending.
  UninterruptedSection();
  /// Ends the process if a signal arrived meanwhile and this was the last section.
  ~UninterruptedSection();
  UninterruptedSection(const UninterruptedSection&) = delete;
  UninterruptedSection& operator=(const UninterruptedSection&) = delete;
};

/// A name in a folder that is removed when this object is destroyed or when a signal ends the
/// process. Create the object before the file, both in one UninterruptedSection.
class TemporaryName {
public:
  /// Kind of entry that has the name.
  enum class Kind {
    File,
    Folder, ///< With files and folders in it, at most four levels deep; all are removed.
  };

  /// Holds no name.
  TemporaryName() = default;
  /// A new random name in a folder, given as an open descriptor that outlives this object.
  static TemporaryName in(int folder, Kind kind = Kind::File);

  TemporaryName(TemporaryName&& other) noexcept;
  TemporaryName& operator=(TemporaryName&& other) noexcept;
  ~TemporaryName() { remove(); }

  bool isSet() const { return !name.empty(); }
  /// Name relative to the folder. Requires that it is set.
  const char* text() const { return name.c_str(); }
  /// Removes the file or folder of this name, if it exists, and forgets the name.
  void remove();
  /// Forgets the name, after its file was removed or renamed.
  void release();

private:
  int folder = -1;
  Kind kind = Kind::File;
  int slot = -1; ///< index in the table that signal handlers read; -1 if the table was full
  std::string name;
};

/// Removes all entries with temporary names. Async-signal-safe.
void removeTemporaryFiles();

/// Handles a signal that ends the process: removes temporary files and raises the signal again with
/// its default action, at once or when the last UninterruptedSection ends. Async-signal-safe.
void endBySignal(int number);

} // namespace kvopt
