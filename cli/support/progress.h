// One line on stderr that says how far a command is.
#pragma once

#include "cli/support/command.h"
#include "support/progress.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace kvopt::cli {

/// What is done, its share in percent and the time left; without a total, the time so far. Empty in
/// the first second.
std::string progressText(const std::string& what, double done, double total, double seconds);

/// Shows work that takes more than a second, on a terminal only and not with `--quiet`. A thread
/// paints the line a few times a second, so that it moves in long steps too; the line is gone when
/// the work ends.
class ProgressLine final : public ProgressListener {
public:
  explicit ProgressLine(const CommonOptions& options);
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  ~ProgressLine() override;

  bool begin(const std::string& what) override;
  void report(double done, double total) override;
  void hide() override;
  void end() override;

private:
  using Clock = std::chrono::steady_clock;

  void paintWhileOpen();
  /// The next two require the lock.
  void paint();
  void clear();

  const bool isEnabled;
  bool isOpen = false; ///< used by the working thread only
  std::mutex lock;
  std::condition_variable wake;
  std::thread painter;
  // What follows is guarded by the lock.
  std::string what;
  double done = 0;
  double total = 0;
  Clock::time_point start;
  bool isWorking = false;
  bool isHidden = false; ///< until the next report
  bool isShown = false;
};

} // namespace kvopt::cli
