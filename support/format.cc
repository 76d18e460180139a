// Erased values as arguments of fmt.
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include <fmt/args.h>

namespace kvopt {

namespace {

/// Calls `use` with the value in a type that fmt knows.
template <class Use> void visit(const FormatValue& value, Use use) {
  switch (value.kind) {
  case FormatValue::Kind::Bool:
    return use(value.boolean);
  case FormatValue::Kind::Char:
    return use(value.character);
  case FormatValue::Kind::Signed:
    return use(value.signedInteger);
  case FormatValue::Kind::Unsigned:
    return use(value.unsignedInteger);
  case FormatValue::Kind::Float:
    return use(value.real);
  case FormatValue::Kind::Double:
    return use(value.wideReal);
  case FormatValue::Kind::Pointer:
    return use(value.pointer);
  case FormatValue::Kind::Text:
  case FormatValue::Kind::SafeText:
    return use(std::string_view(value.text.data, value.text.size));
  case FormatValue::Kind::Object:
    return use(value.object.str(value.object.address));
  }
}

} // namespace

std::string formatValues(std::string_view pattern, std::span<const FormatValue> values) {
  if (llvm::any_of(values, [](const FormatValue& value) { return !value.name.empty(); })) {
    fmt::dynamic_format_arg_store<fmt::format_context> store;
    for (const FormatValue& each : values)
      visit(each, [&](const auto& value) {
        if (each.name.empty())
          store.push_back(value);
        else
          store.push_back(fmt::arg(std::string(each.name).c_str(), value));
      });
    return fmt::vformat(pattern, store);
  }
  // An argument refers to text, which must stay where it is.
  llvm::SmallVector<std::string, 4> texts;
  texts.reserve(values.size());
  llvm::SmallVector<fmt::format_args::format_arg, 8> all;
  for (const FormatValue& each : values)
    visit(each, [&](const auto& value) {
      if constexpr (std::is_same_v<decltype(value), const std::string&>)
        all.push_back(fmt::format_args(fmt::make_format_args(texts.emplace_back(value))).get(0));
      else
        all.push_back(fmt::format_args(fmt::make_format_args(value)).get(0));
    });
  return fmt::vformat(pattern, fmt::format_args(all.data(), static_cast<int>(all.size())));
}

} // namespace kvopt
