// The options that choose the form of a written model: --to, --cache, --rows, --latent, --split and
// --opset.
#pragma once

#include "driver/forms/form_words.h"

namespace kvopt::cli {

class CommandOptions;

/// Adds all of them, and `--cache-dtype`, the older name of `--rows`.
void addFormOptions(CommandOptions& add, driver::FormWords& words);

/// Whether any of them is given.
bool choosesForm(const driver::FormWords& words);

} // namespace kvopt::cli
