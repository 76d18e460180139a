// Values of keys in JSON, which may come from anyone.
#include "ir/manifest/field_table.h"

#include "support/format.h"

#include <cmath>

namespace kvopt::ir {

void ManifestProblem::set(const std::string& object, const std::string& text) {
  if (diagnostic)
    return;
  diagnostic.emplace();
  diagnostic->message =
      formatted("manifest: {} {}", object.empty() ? "the manifest" : object, text);
}

void ManifestProblem::setUnsupported(const std::string& text) {
  if (diagnostic)
    return;
  diagnostic.emplace();
  diagnostic->kind = Diagnostic::Kind::Unsupported;
  diagnostic->message = "manifest: " + text;
}

llvm::Error ManifestProblem::takeError() const {
  return diagnostic ? makeError(*diagnostic) : llvm::Error::success();
}

std::string FieldValue::path() const {
  return object.empty() ? field.key : formatted("{}.{}", object, field.key);
}

llvm::ArrayRef<OrderedJson> FieldValue::entries() const {
  if (const auto* list = json.get_ptr<const OrderedJson::array_t*>())
    return *list;
  fail(formatted("'{}' is not a list", field.key));
  return {};
}

namespace {

/// An integer in [0, 2^63).
std::optional<int64_t> countOf(const OrderedJson& json) {
  if (const auto* number = json.get_ptr<const OrderedJson::number_unsigned_t*>())
    return *number <= static_cast<uint64_t>(INT64_MAX) ? std::optional<int64_t>(*number)
                                                       : std::nullopt;
  const auto* number = json.get_ptr<const OrderedJson::number_integer_t*>();
  return number && *number >= 0 ? std::optional<int64_t>(*number) : std::nullopt;
}

/// Files are in the folder of the manifest.
void checkFileName(const FieldValue& value, const std::string& file) {
  if (file.find_first_of("/\\") != std::string::npos || file == "." || file == "..")
    value.fail(formatted("'{}' is '{}', which is not the name of a file in the manifest's folder",
                         value.field.key, file));
}

std::string quotedWords(const ManifestField& field) {
  std::string text;
  for (const FieldWord& word : field.words())
    text += formatted("{}'{}'", text.empty() ? "" : ", ", word.text);
  return text;
}

} // namespace

void readValue(const FieldValue& value, bool& out) {
  if (const auto* flag = value.json.get_ptr<const OrderedJson::boolean_t*>())
    out = *flag;
  else
    value.fail(formatted("'{}' is neither true nor false", value.field.key));
}

void readValue(const FieldValue& value, int64_t& out) {
  const std::optional<int64_t> number = countOf(value.json);
  if (number && *number >= value.field.least)
    out = *number;
  else
    value.fail(
        formatted("'{}' is not an integer in [{}, 2^63)", value.field.key, value.field.least));
}

void readValue(const FieldValue& value, std::optional<int64_t>& out) {
  const bool mayBeNull = value.field.type == FieldType::CountOrNull;
  if (mayBeNull && value.json.is_null())
    out = std::nullopt;
  else if (mayBeNull && !countOf(value.json))
    value.fail(formatted("'{}' is neither null nor an integer in [0, 2^63)", value.field.key));
  else
    readValue(value, out.emplace());
}

void readValue(const FieldValue& value, std::optional<size_t>& out) {
  int64_t number = 0;
  readValue(value, number);
  out = static_cast<size_t>(number);
}

void readValue(const FieldValue& value, std::string& out) {
  const auto* text = value.json.get_ptr<const std::string*>();
  if (!text)
    return value.fail(formatted("'{}' is not a string", value.field.key));
  if (value.field.type == FieldType::Name && text->empty())
    value.fail(formatted("has an empty '{}'", value.field.key));
  if (value.field.type == FieldType::FileName)
    checkFileName(value, *text);
  out = *text;
}

void failWord(const FieldValue& value, const std::string& text) {
  const bool isOnly = value.field.words().size() == 1;
  value.fail(formatted("'{}' is '{}', not {}{}", value.field.key, text, isOnly ? "" : "one of ",
                       quotedWords(value.field)));
}

void readValue(const FieldValue& value, ElementType& out) {
  std::string text;
  readValue(value, text);
  if (value.problem)
    return;
  if (const std::optional<ElementType> type = elementTypeFromDtypeName(text))
    out = *type;
  else
    value.fail(formatted("'{}' is '{}', which is not an element type", value.field.key, text));
}

void readValue(const FieldValue& value, std::vector<ManifestExtent>& out) {
  for (const OrderedJson& entry : value.entries()) {
    const auto* symbol = entry.get_ptr<const std::string*>();
    if (const std::optional<int64_t> number = countOf(entry))
      out.emplace_back(*number);
    else if (symbol && !symbol->empty())
      out.emplace_back(*symbol);
    else
      value.fail(
          formatted("'{}' has an extent that is neither a size nor a name", value.field.key));
  }
}

void readValue(const FieldValue& value, std::vector<std::string>& out) {
  const bool areFiles = value.field.type == FieldType::FileNames;
  const bool mayBeEmpty = areFiles || value.field.type == FieldType::Texts;
  for (const OrderedJson& entry : value.entries()) {
    const auto* name = entry.get_ptr<const std::string*>();
    if (!name || (name->empty() && !mayBeEmpty))
      return value.fail(formatted("'{}' has an entry that is not a name", value.field.key));
    if (areFiles)
      checkFileName(value, *name);
    out.push_back(*name);
  }
}

void readValue(const FieldValue& value, std::vector<int64_t>& out) {
  for (const OrderedJson& entry : value.entries()) {
    const std::optional<int64_t> number = countOf(entry);
    if (!number)
      return value.fail(
          formatted("'{}' has an entry that is not an integer in [0, 2^63)", value.field.key));
    out.push_back(*number);
  }
}

void readValue(const FieldValue& value, std::vector<double>& out) {
  for (const OrderedJson& entry : value.entries()) {
    const double number = entry.is_number() ? entry.get<double>() : std::nan("");
    if (!std::isfinite(number))
      return value.fail(
          formatted("'{}' has an entry that is not a finite number", value.field.key));
    out.push_back(number);
  }
}

OrderedJson valueJson(ElementType value) { return dtypeName(value).str(); }

OrderedJson valueJson(const std::vector<ManifestExtent>& value) {
  OrderedJson list = OrderedJson::array();
  for (const ManifestExtent& extent : value)
    std::visit([&](const auto& each) { list.push_back(each); }, extent);
  return list;
}

} // namespace kvopt::ir
