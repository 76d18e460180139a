// Text of any origin inside XML documents.
#pragma once

#include <string>
#include <string_view>

namespace kvopt {

/// Text as the contents of an XML element or attribute: markup is escaped, what is no character of
/// XML 1.0, or no UTF-8, becomes U+FFFD.
std::string xmlText(std::string_view text);

} // namespace kvopt
