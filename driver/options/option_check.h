// What is wrong with the text of an option's value, for every program that takes options.
#pragma once

#include "driver/options/option_table.h"

#include <string>

namespace kvopt::driver {

/// Error in a whole number, which has decimal digits only and fits in 64 bits; empty for a valid
/// one.
std::string checkWholeNumber(const std::string& text);
/// Error in a real number, which is decimal, finite and not negative; empty for a valid one.
std::string checkRealNumber(const std::string& text);
/// Error in a file name or word, which is not empty; empty for a valid one.
std::string checkWord(const std::string& text);

/// Error in the text of a value of the option: of one part of a list. Empty for a valid one. Flags
/// have no value.
std::string checkValue(const OptionInfo& info, const std::string& text);

} // namespace kvopt::driver
