// The keys of lengths and other inputs.
#include "ir/manifest/field_table.h"

namespace kvopt::ir {

namespace {

constexpr Field<ManifestLength> lengthFields[] = {
    fieldOf<ManifestLength, &ManifestLength::input>(
        {.key = "input", .type = FieldType::Name, .sentence = "Name of the input."}),
    fieldOf<ManifestLength, &ManifestLength::dtype>(
        {.key = "dtype", .sentence = "Element type: an integer type; for flags also bool."}),
    fieldOf<ManifestLength, &ManifestLength::shape>(
        {.key = "shape", .sentence = "Extents of the input."}),
    wordFieldOf<ManifestLength, &ManifestLength::feed, feedWords>(
        {.key = "feed", .sentence = "Value at a step that adds S tokens after P earlier ones."}),
};

void checkLength(const ManifestLength& length, const std::string& path, ManifestProblem& problem) {
  const char* key = keyOf<ManifestLength, &ManifestLength::dtype>();
  if (isInteger(length.dtype))
    return;
  if (!isFlag(length.feed))
    problem.set(path, fmt::format("has a '{}' that is not an integer type", key));
  else if (length.dtype != ElementType::Bool)
    problem.set(path, fmt::format("has a '{}' that is neither bool nor an integer type", key));
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
};

constexpr FieldTable<ManifestInput> inputTable{
    {"input", "An input whose name does not show what it takes.", &fieldsOf<ManifestInput>},
    inputFields};

} // namespace

template <> const FieldTable<ManifestLength>& tableOf() { return lengthTable; }
template <> const FieldTable<ManifestInput>& tableOf() { return inputTable; }

} // namespace kvopt::ir
