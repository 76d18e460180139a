// The command line with one rule more: the one of docs/write-a-rule.md, extracted from that page.
#include "cli/app.h"
#include "cli/support/command.h"

namespace kvopt {
using namespace cli;
using namespace driver;
using namespace pattern;

void register_fuse_exp_log_softmax(RuleRegistry& registry);

} // namespace kvopt

int main(int argc, char** argv) {
  return kvopt::cli::runApp(argc, argv, [](kvopt::driver::Toolkit& toolkit) {
    kvopt::register_fuse_exp_log_softmax(toolkit.rules);
  });
}
