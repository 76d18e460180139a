// Options of a check, by the words of the command line.
#pragma once

#include "driver/check/check_files.h"

namespace kvopt::driver {

struct CheckWords {
  CheckRequest request;
  /// Whether equality in the whole scope counts as equality.
  bool allowsTested = false;
  /// Folder for the step in which the models differ; empty: it is not written.
  std::string counterexample;
};

/// Adds the options that do not name files.
template <class Options> void addCheckOptions(Options& add, CheckWords& words) {
  add.add("--seed", words.request.seed);
  add.add("--allow-tested", words.allowsTested);
}

/// Adds the option that names the folder of a counterexample.
template <class Options> void addCounterexampleOption(Options& add, CheckWords& words) {
  add.add("--counterexample", words.counterexample);
}

} // namespace kvopt::driver
