// What kvopt rewrite was asked for.
#pragma once

#include "passes/matcher.h"

#include <string>
#include <vector>

namespace kvopt {

struct RewriteOptions {
  std::string model;
  std::string output;
  std::string target;
  std::string capacity = "dynamic";
  std::string require = "all";
  std::string layers;
  std::string verify = "quick";
  std::vector<std::string> inputs; ///< recipes for what the driver does not know
  std::string manifest;
  std::string genaiConfig;
  std::string externalData = "keep";
  std::vector<std::string> printAfter;
  std::vector<std::string> disabled;
  bool dryRun = false;
  MatcherOptions matcher;

  /// The file that is written; empty for none.
  std::string written() const { return dryRun ? "" : output; }
};

} // namespace kvopt
