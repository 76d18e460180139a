// The command line with one rule more: the one of docs/write-a-rule.md, extracted from that page.
#include "cli/app.h"
#include "cli/command.h"

namespace kvopt {

void register_fuse_exp_log_softmax(RuleRegistry& registry);

} // namespace kvopt

int main(int argc, char** argv) {
  return kvopt::runApp(argc, argv, [](kvopt::Toolkit& toolkit) {
    kvopt::register_fuse_exp_log_softmax(toolkit.rules);
  });
}
