// Erased values as arguments of fmt.
#include "support/format.h"

#include <fmt/args.h>

namespace kvopt {

namespace {

using Store = fmt::dynamic_format_arg_store<fmt::format_context>;

template <class T> void add(Store& store, std::string_view name, const T& value) {
  if (name.empty())
    store.push_back(value);
  else
    store.push_back(fmt::arg(std::string(name).c_str(), value));
}

void add(Store& store, const FormatValue& value) {
  switch (value.kind) {
  case FormatValue::Kind::Bool:
    return add(store, value.name, value.boolean);
  case FormatValue::Kind::Char:
    return add(store, value.name, value.character);
  case FormatValue::Kind::Signed:
    return add(store, value.name, value.signedInteger);
  case FormatValue::Kind::Unsigned:
    return add(store, value.name, value.unsignedInteger);
  case FormatValue::Kind::Float:
    return add(store, value.name, value.real);
  case FormatValue::Kind::Double:
    return add(store, value.name, value.wideReal);
  case FormatValue::Kind::Text:
  case FormatValue::Kind::SafeText:
    return add(store, value.name, std::string_view(value.text.data, value.text.size));
  case FormatValue::Kind::Pointer:
    return add(store, value.name, value.pointer);
  case FormatValue::Kind::Object:
    return add(store, value.name, value.object.str(value.object.address));
  }
}

} // namespace

std::string formatValues(std::string_view pattern, std::span<const FormatValue> values) {
  Store store;
  for (const FormatValue& value : values)
    add(store, value);
  return fmt::vformat(pattern, store);
}

} // namespace kvopt
