// Escaping for XML.
#include "cli/report/xml_text.h"

namespace kvopt::cli {

std::string xmlText(std::string_view text) { return xmlMarkup(SafeText::trusted(escaped(text))); }

std::string xmlMarkup(const SafeText& text) {
  std::string markup;
  for (char byte : text.str())
    if (byte == '&')
      markup += "&amp;";
    else if (byte == '<')
      markup += "&lt;";
    else if (byte == '>')
      markup += "&gt;";
    else if (byte == '"')
      markup += "&quot;";
    else if (byte == '\'')
      markup += "&#39;";
    else
      markup += byte;
  return markup;
}

} // namespace kvopt::cli
