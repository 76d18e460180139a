// The command line with one rule more: the one of docs/write-a-rule.md, extracted from that page.
#include "cli/app.h"
#include "driver/toolkit.h"

namespace kvopt::rules {
void register_fuse_exp_log_softmax(pattern::RuleRegistry& registry);
} // namespace kvopt::rules

int main(int argc, char** argv) {
  return kvopt::cli::runApp(argc, argv, [](kvopt::driver::Toolkit& toolkit) {
    kvopt::rules::register_fuse_exp_log_softmax(toolkit.rules);
  });
}
