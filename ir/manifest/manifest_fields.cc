// The keys of a manifest itself, of its capacity, its variants and its rotations.
#include "ir/manifest/field_table.h"

namespace kvopt::ir {

namespace {

constexpr Field<CapacityEntry> capacityFields[] = {
    fieldOf<CapacityEntry, &CapacityEntry::symbol>(
        {.key = "symbol",
         .sentence = "Name of the extent in shapes of caches; empty where no cache has one."}),
    fieldOf<CapacityEntry, &CapacityEntry::value>(
        {.key = "value",
         .type = FieldType::CountOrNull,
         .sentence = "Number of tokens; null where the caller chooses it."}),
};

constexpr FieldTable<CapacityEntry> capacityTable{
    {"capacity", "The number of tokens that buffers, or all blocks together, have room for.",
     &fieldsOf<CapacityEntry>},
    capacityFields};

constexpr Field<ManifestVariant> variantFields[] = {
    fieldOf<ManifestVariant, &ManifestVariant::file>(
        {.key = "file",
         .type = FieldType::FileName,
         .sentence = "File of the model, in the folder of the manifest."}),
    fieldOf<ManifestVariant, &ManifestVariant::pastBlocks>(
        {.key = "past_blocks", .sentence = "Number of blocks of each cache that it takes."}),
    fieldOf<ManifestVariant, &ManifestVariant::pastRows>(
        {.key = "past_rows", .sentence = "Number of rows of these blocks together."}),
};

constexpr FieldTable<ManifestVariant> variantTable{
    {"variant", "A model that computes the same for caches with fewer blocks.",
     &fieldsOf<ManifestVariant>},
    variantFields};

constexpr Field<ManifestRotation> rotationFields[] = {
    fieldOf<ManifestRotation, &ManifestRotation::width>(
        {.key = "width", .sentence = "Number of columns in the row of one head."}),
    fieldOf<ManifestRotation, &ManifestRotation::first>(
        {.key = "first", .sentence = "First column that is rotated."}),
    wordFieldOf<ManifestRotation, &ManifestRotation::interleaved, pairWords>(
        {.key = "pairs", .sentence = "Columns that are rotated together."}),
    fieldOf<ManifestRotation, &ManifestRotation::theta>(
        {.key = "theta", .sentence = "Angle of each pair, in radians per position."}),
};

void checkRotation(const ManifestRotation& rotation, const std::string& path,
                   ManifestProblem& problem) {
  const auto pairs = static_cast<int64_t>(rotation.theta.size());
  if (pairs == 0 || pairs > rotation.width / 2 || rotation.first > rotation.width - 2 * pairs)
    problem.set(path, formatted("rotates {} pairs from column {} of rows of {}", pairs,
                                rotation.first, rotation.width));
}

constexpr FieldTable<ManifestRotation> rotationTable{
    {"rotation",
     "The rotation of cached rows by their positions. A row moves n positions when each pair (x, "
     "y) becomes (x cos a - y sin a, x sin a + y cos a), a = n theta.",
     &fieldsOf<ManifestRotation>},
    rotationFields,
    &checkRotation};

constexpr Field<ManifestOperators> operatorsFields[] = {
    fieldOf<ManifestOperators, &ManifestOperators::domain>(
        {.key = "domain", .type = FieldType::Name, .sentence = "Domain of the operators."}),
    fieldOf<ManifestOperators, &ManifestOperators::version>(
        {.key = "version",
         .sentence = "Version of the domain that the model imports.",
         .least = 1}),
    fieldOf<ManifestOperators, &ManifestOperators::names>(
        {.key = "names", .sentence = "Names of the operators."}),
};

constexpr FieldTable<ManifestOperators> operatorsTable{
    {"operators",
     "Operators of kvopt. Engines without kernels for them run the model's function bodies.",
     &fieldsOf<ManifestOperators>},
    operatorsFields};

constexpr Field<ManifestComparison> comparisonFields[] = {
    wordFieldOf<ManifestComparison, &ManifestComparison::verdict, verdictWords>(
        {.key = "verdict", .sentence = "What was shown."}),
    wordFieldOf<ManifestComparison, &ManifestComparison::by, meansWords>(
        {.key = "by", .sentence = "What showed it."}),
    fieldOf<ManifestComparison, &ManifestComparison::before>(
        {.key = "before_sha256",
         .sentence = "SHA-256 of the file that was rewritten, without its external data."}),
    fieldOf<ManifestComparison, &ManifestComparison::certificate>(
        {.key = "certificate_sha256",
         .when = "a check showed it for the whole model",
         .byDefault = "\"\"",
         .sentence = "Digest of the certificate, which `kvopt check` finds again."}),
    fieldOf<ManifestComparison, &ManifestComparison::assumptions>(
        {.key = "assumptions",
         .type = FieldType::Texts,
         .when = "it depends on some",
         .byDefault = "[]",
         .sentence = "What a check assumed."}),
    fieldOf<ManifestComparison, &ManifestComparison::notChecked>(
        {.key = "not_checked",
         .type = FieldType::Texts,
         .when = "there are some",
         .byDefault = "[]",
         .sentence = "Parts that were not looked at, other than rounding."}),
};

constexpr FieldTable<ManifestComparison> comparisonTable{
    {"comparison",
     "The comparison with the model before the rewrite. It is a claim: `kvopt check` shows whether "
     "it holds.",
     &fieldsOf<ManifestComparison>},
    comparisonFields};

void readSchema(const FieldValue& value, Manifest&) {
  std::string schema;
  readValue(value, schema);
  if (!value.problem && schema != manifestSchema)
    value.problem.setUnsupported(
        formatted("the {} is '{}', not '{}'", value.field.key, schema, manifestSchema));
}

bool writeSchema(const Manifest&, const ManifestField&, OrderedJson& json) {
  json = manifestSchema;
  return true;
}

void readCapacity(const FieldValue& value, Manifest& manifest) {
  CapacityEntry entry;
  readValue(value, entry);
  manifest.capacitySymbol = std::move(entry.symbol);
  manifest.capacityValue = entry.value;
}

bool writeCapacity(const Manifest& manifest, const ManifestField&, OrderedJson& json) {
  json = valueJson(CapacityEntry{manifest.capacitySymbol, manifest.capacityValue});
  return true;
}

std::vector<FieldWord> schemaWords() { return {{manifestSchema, ""}}; }

template <auto member> constexpr Field<Manifest> manifestField(ManifestField info) {
  return fieldOf<Manifest, member>(info);
}

constexpr Field<Manifest> manifestFields[] = {
    {{.key = "schema",
      .type = FieldType::Word,
      .sentence = "Name and version of the format.",
      .words = &schemaWords},
     nullptr,
     &readSchema,
     &writeSchema},
    manifestField<&Manifest::target>(
        {.key = "target", .sentence = "Target of kvopt that wrote the model."}),
    wordFieldOf<Manifest, &Manifest::contract, contractWords>(
        {.key = "contract", .sentence = "How the caller keeps the caches that were rewritten."}),
    {{.key = "capacity",
      .type = FieldType::Object,
      .sentence = "Number of tokens that the caches have room for.",
      .object = []() -> const ManifestObject& { return capacityTable.info; }},
     nullptr,
     &readCapacity,
     &writeCapacity},
    manifestField<&Manifest::blockSize>({.key = "block_size",
                                         .when = "caches are in blocks or pools",
                                         .sentence = "Number of tokens that a block has room for.",
                                         .least = 1}),
    manifestField<&Manifest::caches>({.key = "caches", .sentence = "All caches of the model."}),
    manifestField<&Manifest::lengths>(
        {.key = "lengths", .sentence = "Inputs that count tokens or list blocks."}),
    manifestField<&Manifest::inputs>({.key = "inputs",
                                      .when = "the name of an input does not show what it takes",
                                      .byDefault = "[]",
                                      .sentence = "Other inputs, and what they take."}),
    manifestField<&Manifest::variants>(
        {.key = "variants",
         .when = "blocks have fixed extents",
         .byDefault = "[]",
         .sentence = "Models for different numbers of blocks, fewest first. A step uses the first "
                     "one that has room for the tokens before it."}),
    manifestField<&Manifest::tiles>({.key = "tiles",
                                     .when = "the model was also written in pieces",
                                     .sentence = "The pieces, and how they run."}),
    manifestField<&Manifest::rotations>(
        {.key = "rotations",
         .when = "cached rows may be moved to other positions",
         .sentence =
             "Rotations that cached rows have; empty where no row depends on its position."}),
    manifestField<&Manifest::reorder>(
        {.key = "reorder",
         .when = "the exported model reorders batch rows, as beam search needs",
         .byDefault = "\"\"",
         .sentence = "Input `[batch]`: before a step, the caller moves row reorder[i] of every "
                     "cache to row i. The written model does not."}),
    manifestField<&Manifest::firstStep>(
        {.key = "first_step",
         .type = FieldType::FileName,
         .when = "the decoder reads the results of an encoder",
         .byDefault = "\"\"",
         .sentence = "Model that runs once per encoded sequence. Its outputs are the read-only "
                     "caches of the same names."}),
    manifestField<&Manifest::chunkBatch>(
        {.key = "chunk_batch",
         .when = "an operator of the target limits the batch",
         .sentence = "Largest batch in which a step may add several tokens after earlier ones; 0 "
                     "where no step may."}),
    manifestField<&Manifest::stepLimit>(
        {.key = "step_limit",
         .when = "the target limits the length of a step",
         .sentence = "Largest number of tokens that a step may add. A longer prompt takes several "
                     "steps.",
         .least = 1}),
    wordFieldOf<Manifest, &Manifest::hiddenRowsUndefined, hiddenRowWords>(
        {.key = "hidden_rows",
         .when = "`--hidden-rows undefined` was given, or the target needs it",
         .sentence = "Results of rows that see no token."}),
    manifestField<&Manifest::unpadded>(
        {.key = "unpadded",
         .when = "`--padding none` was given",
         .byDefault = "[]",
         .sentence = "Masks that must be ones, or true: no batch row may be padded."}),
    wordFieldOf<Manifest, &Manifest::padsRight, paddingWords>(
        {.key = "padding",
         .when = "the model counts the tokens of each batch row by its mask",
         .sentence = "Position of padding in a batch."}),
    manifestField<&Manifest::operators>(
        {.key = "operators",
         .when = "the model uses kvopt's own operators",
         .sentence = "These operators, for programs that load kernels for them."}),
    manifestField<&Manifest::comparison>(
        {.key = "comparison",
         .when = "the rewrite compared both models (`--verify off` was not given)",
         .sentence = "Whether the model computes the same as the one before the rewrite."}),
};

constexpr FieldTable<Manifest> manifestTable{
    {"", "How a program drives the caches of a model.", &fieldsOf<Manifest>}, manifestFields};

} // namespace

template <> const FieldTable<Manifest>& tableOf() { return manifestTable; }
template <> const FieldTable<CapacityEntry>& tableOf() { return capacityTable; }
template <> const FieldTable<ManifestVariant>& tableOf() { return variantTable; }
template <> const FieldTable<ManifestRotation>& tableOf() { return rotationTable; }
template <> const FieldTable<ManifestOperators>& tableOf() { return operatorsTable; }
template <> const FieldTable<ManifestComparison>& tableOf() { return comparisonTable; }

const ManifestObject& manifestObject() { return manifestTable.info; }

} // namespace kvopt::ir
