// Sums of units.
#include "support/progress.h"

#include <algorithm>

namespace kvopt {

namespace {

bool isPartOfOther(ProgressListener* listener, const std::string& what) {
  if (!listener)
    return true;
  listener->checkpoint();
  return !listener->begin(what);
}

} // namespace

Progress::Progress(ProgressListener* given, const std::string& what)
    : listener(given), isPart(isPartOfOther(given, what)) {}

Progress::~Progress() {
  if (!isPart)
    listener->end();
}

void Progress::report() {
  if (!listener)
    return;
  listener->checkpoint();
  if (!isPart)
    listener->report(std::min(done, total), total);
}

void Progress::expect(double units) {
  total += units;
  report();
}

void Progress::advanceTo(double units) {
  done = std::max(done, units);
  report();
}

void Progress::hide() {
  if (!isPart)
    listener->hide();
}

} // namespace kvopt
