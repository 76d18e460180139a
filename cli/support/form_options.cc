// The words are checked together, after parsing (driver/forms/form_words.h).
#include "cli/support/form_options.h"

#include "cli/support/command_options.h"

namespace kvopt::cli {

void addFormOptions(CommandOptions& add, driver::FormWords& words) {
  add.add("--to", words.to);
  add.add("--cache", words.cache);
  add.add("--rows", words.rows);
  add.add("--cache-dtype", words.cacheDtype);
  add.add("--latent", words.latent);
  add.add("--split", words.split);
  add.add("--opset", words.opset);
}

bool choosesForm(const driver::FormWords& words) {
  return words.latent || words.opset || !words.to.empty() || !words.cache.empty() ||
         !words.rows.empty() || !words.cacheDtype.empty() || !words.split.empty();
}

} // namespace kvopt::cli
