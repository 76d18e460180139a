// Text of any origin inside XML documents.
#pragma once

#include "support/safe_text.h"

#include <string>
#include <string_view>

namespace kvopt::cli {

/// Text as the content of an XML element or attribute: `escaped`, and then with its markup as
/// entities.
std::string xmlText(std::string_view text);
/// Text that is escaped already, with its markup as entities.
std::string xmlMarkup(const SafeText& text);

} // namespace kvopt::cli
