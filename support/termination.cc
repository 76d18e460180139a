// The sections and names that signal handlers see.
#include "support/termination.h"

#include "support/format.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <random>
#include <unistd.h>
#include <utility>

namespace kvopt {
namespace {

// One word, so that a section and a signal cannot miss each other: the number of sections, whether
// the process is being ended, and the signal that waits for the sections.
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
  std::array<char, 40> name{};
};
// More files than that at once get names that signals do not remove.
std::array<Slot, 1024> slots;

[[noreturn]] void waitForTheEnd() {
  for (;;)
    ::pause();
}

/// Requires that this caller set the ending bit.
void endNow(int number) {
  removeTemporaryFiles();
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  ::sigaction(number, &action, nullptr);
  ::kill(::getpid(), number);
}

int claimSlot(int folder, const std::string& name) {
  for (size_t i = 0; i < slots.size(); ++i) {
    int expected = Free;
    if (!slots[i].state.compare_exchange_strong(expected, Claimed))
      continue;
    slots[i].folder = folder;
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
  // Another section may have begun since; then its end looks again.
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
      break; // It is on its way.
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
      ::unlinkat(slot.folder, slot.name.data(), 0);
}

TemporaryName TemporaryName::in(int folder) {
  // Independent of the target's name, which may already be as long as the file system allows.
  std::random_device random;
  TemporaryName result;
  result.folder = folder;
  result.name = fmt::format(".kvopt-{:08x}{:08x}.tmp", random(), random());
  result.slot = claimSlot(folder, result.name);
  return result;
}

TemporaryName::TemporaryName(TemporaryName&& other) noexcept
    : folder(other.folder), slot(std::exchange(other.slot, -1)),
      name(std::exchange(other.name, std::string())) {}

TemporaryName& TemporaryName::operator=(TemporaryName&& other) noexcept {
  if (this != &other) {
    remove();
    folder = other.folder;
    slot = std::exchange(other.slot, -1);
    name = std::exchange(other.name, std::string());
  }
  return *this;
}

void TemporaryName::remove() {
  if (isSet())
    ::unlinkat(folder, name.c_str(), 0);
  release();
}

void TemporaryName::release() {
  if (slot >= 0)
    slots[static_cast<size_t>(std::exchange(slot, -1))].state.store(Free);
  name.clear();
}

} // namespace kvopt
