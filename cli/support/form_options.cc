// The words are checked together, after parsing (driver/forms/form_words.h).
#include "cli/support/form_options.h"

#include <CLI/CLI.hpp>

namespace kvopt::cli {

void addFormOptions(CLI::App& command, driver::FormWords& words) {
  command.add_option("--to", words.to, "Engine that runs the model, or a preset");
  command.add_option("--cache", words.cache, "How caches are kept");
  command.add_option("--rows", words.rows, "What rows of caches hold");
  command.add_option("--cache-dtype", words.cacheDtype, "An older name of --rows");
  command.add_flag("--latent", words.latent, "Cache compressed rows");
  command.add_option("--split", words.split, "Divide a model with caches in blocks");
  command.add_option("--opset", words.opset, "Opset of ONNX's Attention");
}

bool choosesForm(const driver::FormWords& words) {
  return words.latent || words.opset || !words.to.empty() || !words.cache.empty() ||
         !words.rows.empty() || !words.cacheDtype.empty() || !words.split.empty();
}

} // namespace kvopt::cli
