// ProgressLine: a line on stderr that shows the progress of a command.
#pragma once

#include "cli/support/command.h"
#include "support/progress.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace kvopt::cli {

/// Text with the name of the work, the percentage done and the time left; without a total, the time
/// so far. Empty in the first second.
std::string progressText(const std::string& what, double done, double total, double seconds);

/// Shows the progress of work that takes more than a second, on a terminal only and not with
/// `--quiet`. A thread paints the line a few times a second, so that it also changes during long
/// steps. The line disappears when the work ends.
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
  /// The next two functions require the lock.
  void paint();
  void clear();

  const bool isEnabled;
  bool isOpen = false; ///< used by the working thread only
  std::mutex lock;
  std::condition_variable wake;
  std::thread painter;
  // The lock guards the following members.
  std::string what;
  double done = 0;
  double total = 0;
  Clock::time_point start;
  bool isWorking = false;
  bool isHidden = false; ///< until the next report
  bool isShown = false;
};

} // namespace kvopt::cli
