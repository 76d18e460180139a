// The options that choose the form of a written model: --to, --cache, --rows, --latent, --split and
// --opset.
#pragma once

#include "driver/forms/form_words.h"

namespace CLI {
class App;
}

namespace kvopt::cli {

/// Adds all of them, and `--cache-dtype`, the older name of `--rows`.
void addFormOptions(CLI::App& command, driver::FormWords& words);

/// Whether any of them is given.
bool choosesForm(const driver::FormWords& words);

} // namespace kvopt::cli
