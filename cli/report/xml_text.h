// Untrusted text in XML documents.
#pragma once

#include "support/safe_text.h"

#include <string>
#include <string_view>

namespace kvopt::cli {

/// Text as the content of an XML element or attribute: `escaped`, with markup replaced by entities.
std::string xmlText(std::string_view text);
/// Escaped text with its markup replaced by entities.
std::string xmlMarkup(const SafeText& text);

} // namespace kvopt::cli
