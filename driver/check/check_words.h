// Options of a check, by the words of the command line.
#pragma once

#include "driver/check/check_files.h"

namespace kvopt::driver {

struct CheckWords {
  CheckRequest request;
  /// Whether equality in the whole scope counts as equality.
  bool allowsTested = false;
};

/// Adds the options that do not name files.
template <class Options> void addCheckOptions(Options& add, CheckWords& words) {
  add.add("--seed", words.request.seed);
  add.add("--allow-tested", words.allowsTested);
}

} // namespace kvopt::driver
