// The keys of lengths and other inputs.
#include "ir/manifest/field_table.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <limits>

namespace kvopt::ir {

namespace {

constexpr Field<ManifestLength> lengthFields[] = {
    fieldOf<ManifestLength, &ManifestLength::input>(
        {.key = "input", .type = FieldType::Name, .sentence = "Name of the input."}),
    fieldOf<ManifestLength, &ManifestLength::dtype>(
        {.key = "dtype",
         .sentence = "Element type: an integer or floating-point type; for flags an integer type, "
                     "or bool."}),
    fieldOf<ManifestLength, &ManifestLength::shape>(
        {.key = "shape", .sentence = "Extents of the input."}),
    wordFieldOf<ManifestLength, &ManifestLength::feed, feedWords>(
        {.key = "feed", .sentence = "Value at a step that adds S tokens after P earlier ones."}),
};

void checkLength(const ManifestLength& length, const std::string& path, ManifestProblem& problem) {
  const char* key = keyOf<ManifestLength, &ManifestLength::dtype>();
  if (isInteger(length.dtype))
    return;
  const bool isNumber = isFloatingPoint(length.dtype) && length.feed != LengthFeed::BlockTable &&
                        !isFlag(length.feed);
  if (isNumber)
    return;
  if (!isFlag(length.feed))
    problem.set(
        path,
        formatted("has a '{}' that is neither an integer type nor a floating-point type", key));
  else if (length.dtype != ElementType::Bool)
    problem.set(path, formatted("has a '{}' that is neither bool nor an integer type", key));
}

constexpr FieldTable<ManifestLength> lengthTable{
    {"length", "An input that counts tokens, or lists blocks.", &fieldsOf<ManifestLength>},
    lengthFields,
    &checkLength};

constexpr Field<ManifestInput> inputFields[] = {
    fieldOf<ManifestInput, &ManifestInput::input>(
        {.key = "input", .type = FieldType::Name, .sentence = "Name of the input."}),
    fieldOf<ManifestInput, &ManifestInput::dtype>(
        {.key = "dtype", .sentence = "Element type of the input."}),
    fieldOf<ManifestInput, &ManifestInput::shape>(
        {.key = "shape",
         .sentence = "Extents: numbers, and `batch`, `new` (S), `past` (P) and `total` (P + S); "
                     "another name where the graph does not show the extent."}),
    wordFieldOf<ManifestInput, &ManifestInput::feed, inputFeedWords>(
        {.key = "feed", .sentence = "Contents at a step that adds S tokens after P earlier ones."}),
    fieldOf<ManifestInput, &ManifestInput::numbers>(
        {.key = "numbers",
         .when = "the feed is `constant`",
         .byDefault = "[]",
         .sentence = "The contents, repeated over all elements."}),
};

void checkInput(const ManifestInput& input, const std::string& path, ManifestProblem& problem) {
  const char* key = keyOf<ManifestInput, &ManifestInput::numbers>();
  const bool isConstant = input.feed == InputFeed::Constant;
  if (isConstant && input.numbers.empty())
    problem.set(path, formatted("is a constant without '{}'", key));
  else if (!isConstant && !input.numbers.empty())
    problem.set(path, formatted("has '{}', but is not a constant", key));
  constexpr double mostInteger = 0x1p62;
  const double most = isInteger(input.dtype) ? mostInteger : std::numeric_limits<double>::max();
  if (!llvm::all_of(input.numbers, [&](double number) { return std::abs(number) <= most; }))
    problem.set(path, formatted("has '{}' that its element type does not hold", key));
}

constexpr FieldTable<ManifestInput> inputTable{
    {"input", "An input whose name does not show what it takes.", &fieldsOf<ManifestInput>},
    inputFields,
    &checkInput};

} // namespace

template <> const FieldTable<ManifestLength>& tableOf() { return lengthTable; }
template <> const FieldTable<ManifestInput>& tableOf() { return inputTable; }

} // namespace kvopt::ir
