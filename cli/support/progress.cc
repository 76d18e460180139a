// Carriage return, text, erase to the end of the line.
#include "cli/support/progress.h"

#include "cli/support/style.h"
#include "cli/support/terminal.h"
#include "support/format.h"

#include <cmath>
#include <cstdio>
#include <unistd.h>

namespace kvopt::cli {

namespace {

constexpr std::chrono::milliseconds paintInterval{200};

/// Text such as "12 s", "3 min 20 s", "2 h 5 min".
std::string durationText(double seconds) {
  const auto whole = static_cast<int64_t>(std::ceil(seconds));
  if (whole < 60)
    return formatted("{} s", whole);
  if (whole < 3600)
    return formatted("{} min {} s", whole / 60, whole % 60);
  return formatted("{} h {} min", whole / 3600, whole / 60 % 60);
}

} // namespace

std::string progressText(const std::string& what, double done, double total, double seconds) {
  if (seconds < 1)
    return "";
  if (done <= 0 || total <= 0)
    return formatted("{}, {}", what, durationText(seconds));
  return formatted("{}: {} %, {} left", what, std::floor(100 * done / total),
                   durationText(seconds * (total - done) / done));
}

ProgressLine::ProgressLine(const CommonOptions& options)
    : isEnabled(!options.quiet && ::isatty(::fileno(stderr)) == 1) {}

ProgressLine::~ProgressLine() { end(); }

bool ProgressLine::begin(const std::string& text) {
  if (!isEnabled || isOpen)
    return false;
  isOpen = true;
  what = text;
  done = total = 0;
  start = Clock::now();
  isWorking = true;
  isHidden = false;
  painter = std::thread([this] { paintWhileOpen(); });
  return true;
}

void ProgressLine::report(double doneUnits, double totalUnits) {
  const std::lock_guard guard(lock);
  done = doneUnits;
  total = totalUnits;
  isHidden = false;
}

void ProgressLine::hide() {
  const std::lock_guard guard(lock);
  isHidden = true;
  clear();
}

void ProgressLine::end() {
  if (!isOpen)
    return;
  {
    const std::lock_guard guard(lock);
    isWorking = false;
  }
  wake.notify_one();
  painter.join();
  clear();
  isOpen = false;
}

void ProgressLine::paintWhileOpen() {
  std::unique_lock guard(lock);
  while (!wake.wait_for(guard, paintInterval, [this] { return !isWorking; }))
    if (!isHidden)
      paint();
}

void ProgressLine::paint() {
  const std::chrono::duration<double> elapsed = Clock::now() - start;
  const std::string text = progressText(what, done, total, elapsed.count());
  if (text.empty())
    return;
  constexpr size_t usual = 80;
  const size_t columns = terminalColumns(stderr).value_or(usual) - 1;
  printErr(SafeText::trusted(formatted("\r{:.{}}\x1b[K", escaped(text), columns)));
  std::fflush(stderr);
  isShown = true;
}

void ProgressLine::clear() {
  if (!isShown)
    return;
  printErr(SafeText::trusted("\r\x1b[K"));
  std::fflush(stderr);
  isShown = false;
}

} // namespace kvopt::cli
