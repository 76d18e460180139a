// Escaping of the values of a pattern.
#include "support/safe_text.h"

#include <deque>
#include <vector>

namespace kvopt {

SafeText formatSafely(std::string_view pattern, std::span<const FormatValue> values) {
  std::vector<FormatValue> safe(values.begin(), values.end());
  std::deque<std::string> escapedTexts;
  for (FormatValue& value : safe) {
    if (value.kind != FormatValue::Kind::Text)
      continue;
    const std::string& text =
        escapedTexts.emplace_back(escaped(std::string_view(value.text.data, value.text.size)));
    value.text = {text.data(), text.size()};
  }
  return SafeText::trusted(formatValues(pattern, safe));
}

} // namespace kvopt
