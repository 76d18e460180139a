// Checks of the text of option values, shared by all programs that accept options.
#pragma once

#include "driver/options/option_table.h"

#include <string>

namespace kvopt::driver {

/// Error message for a text that is not a whole number: decimal digits that fit in 64 bits. Empty
/// for a valid number.
std::string checkWholeNumber(const std::string& text);
/// Error message for a text that is not a decimal, finite number of at least 0; empty for a valid
/// number.
std::string checkRealNumber(const std::string& text);
/// Error message for an empty file name or word; empty for a valid one.
std::string checkWord(const std::string& text);

/// Error message for a value of the option, or for one part of a list; empty for a valid value.
/// Flags have no value.
std::string checkValue(const OptionInfo& info, const std::string& text);

} // namespace kvopt::driver
