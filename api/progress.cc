// Calls report on the thread that made them.
#include "api/progress.h"

#include "api/memory_reserve.h"
#include "support/diagnostic.h"

#include <chrono>

namespace kvopt::api {
namespace {

using Clock = std::chrono::steady_clock;

/// The call that runs on a thread.
struct CurrentCall {
  const kvopt_progress* callback = nullptr;
  std::string what;
  bool isWorking = false;
  uint64_t done = 0;
  uint64_t total = 0;
  Clock::time_point next; ///< time from which the next report is passed on
};

thread_local CurrentCall current;

class Forwarder final : public ProgressListener {
public:
  bool begin(const std::string& what) override {
    if (!current.callback || current.isWorking)
      return false;
    current.what = what;
    current.isWorking = true;
    current.done = 0;
    current.total = 0;
    current.next = Clock::time_point();
    return true;
  }

  void report(double done, double total) override {
    current.done = static_cast<uint64_t>(done);
    current.total = static_cast<uint64_t>(total);
    passOn();
  }

  /// Parts of the work report nothing of their own, but they can be cancelled.
  void checkpoint() override {
    MemoryReserve::check();
    if (current.isWorking && current.total != 0)
      passOn();
  }

  void hide() override {}
  void end() override { current.isWorking = false; }

private:
  static void passOn() {
    const Clock::time_point now = Clock::now();
    if (now < current.next)
      return;
    current.next = now + std::chrono::milliseconds(100);
    if (current.callback->report(current.callback->user, current.what.c_str(), current.done,
                                 current.total) != 0)
      throw Cancelled();
  }
};

} // namespace

ProgressListener& progressListener() {
  static Forwarder forwarder;
  return forwarder;
}

ProgressScope::ProgressScope(const kvopt_progress* callback) {
  current = {};
  current.callback = callback;
}
ProgressScope::~ProgressScope() { current = {}; }

llvm::Error checkProgress(const kvopt_progress* callback) {
  if (!callback)
    return llvm::Error::success();
  if (callback->size != sizeof(kvopt_progress))
    return usageError("kvopt_progress has a size of {}, not {}", callback->size,
                      sizeof(kvopt_progress));
  if (!callback->report)
    return usageError("kvopt_progress has no callback");
  return llvm::Error::success();
}

} // namespace kvopt::api
