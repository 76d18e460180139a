// Sums of units.
#include "support/progress.h"

#include <algorithm>

namespace kvopt {

Progress::Progress(ProgressListener* given, const std::string& what)
    : listener(given && given->begin(what) ? given : nullptr) {}

Progress::~Progress() {
  if (listener)
    listener->end();
}

void Progress::expect(double units) {
  total += units;
  if (listener)
    listener->report(done, total);
}

void Progress::advanceTo(double units) {
  done = std::max(done, units);
  if (listener)
    listener->report(std::min(done, total), total);
}

void Progress::hide() {
  if (listener)
    listener->hide();
}

} // namespace kvopt
