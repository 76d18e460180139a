// Sections and temporary names that signal handlers read.
#include "support/termination.h"

#include "support/child_process.h"
#include "support/format.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <random>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

namespace kvopt {
namespace {

// A single word, so that a section and a signal cannot miss each other: the number of sections,
// whether the process is ending, and the signal that waits for the sections.
constexpr uint32_t oneSection = 1;
constexpr uint32_t sectionMask = 0xffff;
constexpr uint32_t endingBit = 1U << 16;
constexpr unsigned signalShift = 24;
std::atomic<uint32_t> progress{0};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

enum SlotState : int { Free, Claimed, Active };

struct Slot {
  std::atomic<int> state{Free};
  int folder = -1;
  TemporaryName::Kind kind = TemporaryName::Kind::File;
  std::array<char, 40> name{};
};
// Size of the table; further files get names that signals do not remove.
std::array<Slot, 1024> slots;

[[noreturn]] void waitForTheEnd() {
  for (;;)
    ::pause();
}

/// Requires that this caller has set the ending bit.
void endNow(int number) {
  endRunningCommand(); // It may read and write temporary files.
  removeTemporaryFiles();
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  ::sigaction(number, &action, nullptr);
  ::kill(::getpid(), number);
}

/// Maximum depth of a temporary folder.
constexpr int mostLevels = 4;

bool removeFolder(int parent, const char* name, int levels);

/// Removes the contents of an open folder. Async-signal-safe.
void removeEntries(int folder, int levels) {
  alignas(dirent64) std::array<char, 2048> buffer;
  // Removing may move entries that were not read yet, so the loop ends when a pass removes nothing.
  for (bool hasRemoved = true; hasRemoved;) {
    hasRemoved = false;
    ::lseek(folder, 0, SEEK_SET);
    for (;;) {
      const long bytes = ::syscall(SYS_getdents64, folder, buffer.data(), buffer.size());
      if (bytes <= 0)
        break;
      for (long at = 0; at < bytes;) {
        const auto* entry = reinterpret_cast<const dirent64*>(buffer.data() + at);
        at += entry->d_reclen;
        const char* name = entry->d_name;
        if (std::strcmp(name, ".") == 0 || std::strcmp(name, "..") == 0)
          continue;
        if (::unlinkat(folder, name, 0) == 0)
          hasRemoved = true;
        else if (levels > 0)
          hasRemoved |= removeFolder(folder, name, levels - 1);
      }
    }
  }
}

/// Removes a folder and its contents; follows no links. Returns whether it is gone.
/// Async-signal-safe.
bool removeFolder(int parent, const char* name, int levels) {
  const int folder = ::openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder < 0)
    return false;
  removeEntries(folder, levels);
  ::close(folder);
  return ::unlinkat(parent, name, AT_REMOVEDIR) == 0;
}

/// Async-signal-safe.
void removeName(int folder, const char* name, TemporaryName::Kind kind) {
  if (kind == TemporaryName::Kind::Folder)
    removeFolder(folder, name, mostLevels);
  else
    ::unlinkat(folder, name, 0);
}

int claimSlot(int folder, const std::string& name, TemporaryName::Kind kind) {
  for (size_t i = 0; i < slots.size(); ++i) {
    int expected = Free;
    if (!slots[i].state.compare_exchange_strong(expected, Claimed))
      continue;
    slots[i].folder = folder;
    slots[i].kind = kind;
    std::memcpy(slots[i].name.data(), name.c_str(), name.size() + 1);
    slots[i].state.store(Active);
    return static_cast<int>(i);
  }
  return -1;
}

} // namespace

UninterruptedSection::UninterruptedSection() {
  if ((progress.fetch_add(oneSection) & endingBit) != 0)
    waitForTheEnd();
}

UninterruptedSection::~UninterruptedSection() {
  uint32_t now = progress.fetch_sub(oneSection) - oneSection;
  // Another section may have begun since; its end checks again.
  while ((now & sectionMask) == 0 && (now & endingBit) == 0 && now >> signalShift != 0)
    if (progress.compare_exchange_weak(now, now | endingBit)) {
      endNow(static_cast<int>(now >> signalShift));
      waitForTheEnd(); // The signal may be delivered to another thread.
    }
}

void endBySignal(int number) {
  const int savedErrno = errno;
  uint32_t now = progress.load();
  for (;;) {
    if ((now & endingBit) != 0)
      break; // The process is already ending.
    const bool mustWait = (now & sectionMask) != 0;
    const uint32_t next = mustWait ? (now & ~(0xffU << signalShift)) | static_cast<uint32_t>(number)
                                                                           << signalShift
                                   : now | endingBit;
    if (!progress.compare_exchange_weak(now, next))
      continue;
    if (!mustWait)
      endNow(number);
    break;
  }
  errno = savedErrno;
}

void removeTemporaryFiles() {
  for (Slot& slot : slots)
    if (slot.state.load() == Active)
      removeName(slot.folder, slot.name.data(), slot.kind);
}

TemporaryName TemporaryName::in(int folder, Kind kind) {
  // Independent of the target's name, which may have the maximum length of the file system.
  std::random_device random;
  TemporaryName result;
  result.folder = folder;
  result.kind = kind;
  result.name = formatted(".kvopt-{:08x}{:08x}.tmp", random(), random());
  result.slot = claimSlot(folder, result.name, kind);
  return result;
}

TemporaryName::TemporaryName(TemporaryName&& other) noexcept
    : folder(other.folder), kind(other.kind), slot(std::exchange(other.slot, -1)),
      name(std::exchange(other.name, std::string())) {}

TemporaryName& TemporaryName::operator=(TemporaryName&& other) noexcept {
  if (this != &other) {
    remove();
    folder = other.folder;
    kind = other.kind;
    slot = std::exchange(other.slot, -1);
    name = std::exchange(other.name, std::string());
  }
  return *this;
}

void TemporaryName::remove() {
  if (isSet())
    removeName(folder, name.c_str(), kind);
  release();
}

void TemporaryName::release() {
  if (slot >= 0)
    slots[static_cast<size_t>(std::exchange(slot, -1))].state.store(Free);
  name.clear();
}

} // namespace kvopt
