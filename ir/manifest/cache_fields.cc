// The keys of caches, and how they spell the storage of a cache.
#include "ir/manifest/field_table.h"
#include "support/four_bit_row.h"

#include <cmath>

namespace kvopt::ir {

namespace {

template <auto member> constexpr Field<CacheEntry> cacheField(ManifestField info) {
  return fieldOf<CacheEntry, member>(info);
}
template <auto member, const auto& words>
constexpr Field<CacheEntry> cacheWord(ManifestField info) {
  return wordFieldOf<CacheEntry, member, words>(info);
}

constexpr Field<CacheEntry> cacheFields[] = {
    cacheField<&CacheEntry::layer>(
        {.key = "layer", .sentence = "Number of the attention layer, counted from 0."}),
    cacheWord<&CacheEntry::isOnlyRead, kindWords>(
        {.key = "kind", .sentence = "Whether the model changes the cache."}),
    cacheWord<&CacheEntry::role, roleWords>({.key = "role", .sentence = "Contents of the rows."}),
    cacheField<&CacheEntry::past>(
        {.key = "past",
         .sentence = "Input that takes the cache; for a cache in blocks, its name before it was "
                     "divided; empty in a stateful model."}),
    cacheField<&CacheEntry::present>(
        {.key = "present",
         .sentence = "Output that gives the cache; empty where the model does not give it."}),
    cacheField<&CacheEntry::oneBuffer>(
        {.key = "one_buffer",
         .sentence = "Whether the caller must pass one buffer as both `past` and `present`."}),
    cacheWord<&CacheEntry::newRowsOnly, newRowWords>(
        {.key = "present_rows",
         .when = "the output of a growing cache does not have the earlier rows",
         .sentence = "Rows that `present` has."}),
    cacheWord<&CacheEntry::holdsAttendedRows, attendedWords>(
        {.key = "rows",
         .when = "the exported model caches something else than the rows that attention reads",
         .sentence = "Rows that the cache has instead of the exported model's."}),
    cacheField<&CacheEntry::replaces>(
        {.key = "replaces",
         .when = "the exported model has other caches in its place",
         .byDefault = "[]",
         .sentence = "Caches of the exported model that attention now computes from this one."}),
    cacheWord<&CacheEntry::inPool, poolWords>(
        {.key = "form",
         .when = "the cache is in a pool of blocks",
         .sentence = "Form of `past` and `present`, where it is not `shape`."}),
    cacheField<&CacheEntry::shape>(
        {.key = "shape",
         .sentence = "Extents of the cache: numbers, and names of extents that may change. For a "
                     "cache in blocks, those of one block."}),
    cacheField<&CacheEntry::sequenceAxis>(
        {.key = "sequence_axis",
         .sentence = "Axis of `shape` along which the rows of tokens are."}),
    cacheField<&CacheEntry::dtype>({.key = "dtype", .sentence = "Element type of the cache."}),
    cacheField<&CacheEntry::exportedDtype>(
        {.key = "exported_dtype",
         .when = "rows are rounded to `dtype`",
         .sentence = "Element type of the cache in the exported model."}),
    cacheField<&CacheEntry::codeColumns>({.key = "code_columns",
                                          .when = "rows are quantized to four bits per value",
                                          .sentence = "Number of values in a row.",
                                          .least = 1}),
    cacheWord<&CacheEntry::policy, policyWords>(
        {.key = "policy", .sentence = "How a step changes the cache."}),
    cacheField<&CacheEntry::window>(
        {.key = "window",
         .sentence = "Number of keys that a query sees, its own included; 0 where it sees all "
                     "earlier ones."}),
    cacheField<&CacheEntry::initial>(
        {.key = "initial",
         .when = "a state has other contents than zeros before the first step",
         .byDefault = "[]",
         .sentence = "These contents, repeated over all elements."}),
    cacheField<&CacheEntry::rotation>(
        {.key = "rotation",
         .when = "rows depend on their positions and may be moved to others",
         .sentence = "Index in `rotations` of the rotation that the rows have."}),
    cacheField<&CacheEntry::readers>({.key = "readers",
                                      .when = "other layers read the cache, too",
                                      .byDefault = "[]",
                                      .sentence = "Numbers of the other layers that read it."}),
    cacheField<&CacheEntry::part>(
        {.key = "part",
         .when = "the exported model keeps several caches in one",
         .sentence = "Part of the exported model's cache that this cache is."}),
    cacheField<&CacheEntry::permutation>(
        {.key = "permutation",
         .when = "the exported model has the axes in another order",
         .byDefault = "[]",
         .sentence = "Axis i of the cache is axis permutation[i] of the exported model's cache, or "
                     "of the part of it."}),
    cacheField<&CacheEntry::blockInputs>({.key = "blocks",
                                          .when = "the policy is `block`",
                                          .sentence = "Inputs that are the blocks of the cache, in "
                                                      "the order of their tokens."}),
};

/// In the order of the alternatives of CacheStorage. Two that are spelled alike differ in a key
/// that one of them needs.
struct StorageRow {
  const char* name;
  CacheStorage (*make)(CacheEntry& entry);
  bool mayBeTwoTensors;
  bool mayBeOneBuffer;
  const char* (*key)();
  bool needsKey;
  const char* sentence;
};

constexpr StorageRow storageRows[] = {
    {"grows", [](CacheEntry& entry) -> CacheStorage { return GrowingCache{entry.newRowsOnly}; },
     true, false, &keyOf<CacheEntry, &CacheEntry::newRowsOnly>, false,
     "`present` is the next step's `past`. A step makes a new tensor, which is longer by its "
     "tokens."},
    {"one buffer", [](CacheEntry&) -> CacheStorage { return BufferCache(); }, false, true, nullptr,
     false,
     "The buffer has `capacity` rows. The model writes the new rows after the valid ones, and "
     "never reads the rows after those."},
    {"pool", [](CacheEntry&) -> CacheStorage { return PoolCache(); }, false, true,
     &keyOf<CacheEntry, &CacheEntry::inPool>, true,
     "The rows are in blocks of one buffer, which a length input with the feed `block_table` "
     "lists."},
    {"ring", [](CacheEntry& entry) -> CacheStorage { return RingCache{entry.oneBuffer}; }, true,
     true, nullptr, false,
     "The extents are fixed, and all rows are zeros before the first step. Position p is in row p "
     "modulo the number of rows."},
    {"static", [](CacheEntry& entry) -> CacheStorage { return StaticCache{entry.oneBuffer}; }, true,
     true, nullptr, false,
     "The extents are fixed, and all rows are zeros before the first step. The model writes where "
     "its other inputs say."},
    {"blocks",
     [](CacheEntry& entry) -> CacheStorage { return BlockCache{std::move(entry.blockInputs)}; },
     true, false, &keyOf<CacheEntry, &CacheEntry::blockInputs>, false,
     "Each block is an input, and `present` has the new rows only. The caller writes them into the "
     "first block that has room."},
    {"state", [](CacheEntry&) -> CacheStorage { return StateCache(); }, true, false, nullptr, false,
     "The extents are fixed. Before the first step, all values are zeros, or `initial`. `present` "
     "is "
     "the next step's `past`."},
    {"read-only", [](CacheEntry&) -> CacheStorage { return ReadOnlyCache(); }, true, false, nullptr,
     false, "It is computed once, by `first_step` where there is one, and passed to every step."},
};
static_assert(std::size(storageRows) == std::variant_size_v<CacheStorage>);

/// The storage that the keys of a cache spell. Keys that only other storage has are dropped.
CacheStorage spelledStorage(CacheEntry& entry) {
  size_t row = 0;
  // A cache that is only read does not change, whatever the policy is.
  if (entry.isOnlyRead)
    row = CacheStorage(ReadOnlyCache()).index();
  else if (entry.inPool)
    row = CacheStorage(PoolCache()).index();
  else if (entry.policy == CacheUpdate::Grows && entry.oneBuffer)
    row = CacheStorage(BufferCache()).index();
  else
    row = storageOf(entry.policy).index();
  return storageRows[row].make(entry);
}

CacheEntry entryOf(const ManifestCache& cache) {
  CacheEntry entry{cache};
  entry.policy = cache.update();
  entry.isOnlyRead = entry.policy == CacheUpdate::ReadOnly;
  entry.oneBuffer = cache.isOneBuffer();
  entry.newRowsOnly = cache.givesNewRows();
  entry.inPool = cache.isPool();
  entry.blockInputs = cache.blocks().vec();
  return entry;
}

/// Reason that the keys do not describe one storage; empty if they do.
std::string storageProblem(const CacheEntry& entry) {
  ManifestCache cache;
  CacheEntry copy = entry;
  cache.storage = spelledStorage(copy);
  if (entry.inPool && (!entry.oneBuffer || entry.policy != CacheUpdate::Grows || !cache.isPool() ||
                       entry.shape.size() != 4 || entry.sequenceAxis != 1))
    return formatted("'{}' is 'pool', but the cache is not one buffer [batch, capacity, heads, "
                     "width] that grows",
                     keyOf<CacheEntry, &CacheEntry::inPool>());
  if (entry.newRowsOnly && !cache.givesNewRows())
    return formatted("'{}' is 'new', but the cache does not grow, or is one buffer",
                     keyOf<CacheEntry, &CacheEntry::newRowsOnly>());
  if (!entry.blockInputs.empty() && cache.blocks().empty())
    return formatted("has '{}', but another policy than 'block'",
                     keyOf<CacheEntry, &CacheEntry::blockInputs>());
  if (entry.oneBuffer != cache.isOneBuffer())
    return formatted("'{}' is true, but rows of a cache with this kind and policy do not stay in "
                     "place",
                     keyOf<CacheEntry, &CacheEntry::oneBuffer>());
  return "";
}

/// Reason that rows cannot be four-bit codes of `code_columns` values; empty if they can.
std::string codeProblem(const CacheEntry& entry) {
  constexpr int64_t mostColumns = int64_t{1} << 40;
  const char* key = keyOf<CacheEntry, &CacheEntry::codeColumns>();
  if (entry.codeColumns == 0)
    return "";
  if (entry.codeColumns > mostColumns)
    return formatted("'{}' is not a possible number of columns", key);
  if (entry.dtype != ElementType::UInt8 || isScale(entry.role))
    return formatted("has '{}', but its rows are not four-bit codes", key);
  const std::optional<CacheLayout> layout = entry.layout();
  const int64_t* width =
      layout ? std::get_if<int64_t>(&entry.shape[layout->columnAxis()]) : nullptr;
  if (!width || layout->isTransposed() || *width != FourBitRow{entry.codeColumns}.bytes())
    return formatted("has rows of another width than that of its '{}' four-bit codes", key);
  return "";
}

/// Reason that `initial` cannot be the contents of the cache; empty if it can, or is absent.
std::string initialProblem(const CacheEntry& entry) {
  const char* key = keyOf<CacheEntry, &CacheEntry::initial>();
  if (!entry.initial.empty() && entry.policy != CacheUpdate::State)
    return formatted("has '{}', but is not a state", key);
  const bool areFinite =
      llvm::all_of(entry.initial, [](double number) { return std::isfinite(number); });
  return areFinite ? "" : formatted("has a '{}' that is not finite", key);
}

/// Reason that `permutation` is not an order of the axes; empty if it is, or is absent.
std::string permutationProblem(const CacheEntry& entry) {
  const size_t rank = entry.shape.size();
  std::vector<bool> seen(rank, false);
  bool isOrder = entry.permutation.size() == rank || entry.permutation.empty();
  for (const int64_t axis : entry.permutation) {
    const auto index = static_cast<size_t>(axis);
    isOrder &= index < rank && !seen[index];
    if (index < rank)
      seen[index] = true;
  }
  return isOrder ? ""
                 : formatted("'{}' is not a permutation of the {} axes",
                             keyOf<CacheEntry, &CacheEntry::permutation>(), rank);
}

/// Reason that the part is not one of a cache of the exported model; empty if it is.
std::string partProblem(const CacheEntry& entry) {
  const ManifestPart& part = *entry.part;
  if (part.first.size() != entry.shape.size() + part.dropped.size())
    return formatted("'{}' has {} axes for the {} of the cache and {} dropped ones",
                     keyOf<ManifestPart, &ManifestPart::first>(), part.first.size(),
                     entry.shape.size(), part.dropped.size());
  for (size_t i = 0; i < part.dropped.size(); ++i)
    if (part.dropped[i] >= static_cast<int64_t>(part.first.size()) ||
        (i > 0 && part.dropped[i] <= part.dropped[i - 1]))
      return formatted("'{}' is not an ascending list of axes",
                       keyOf<ManifestPart, &ManifestPart::dropped>());
  return "";
}

void checkCache(const CacheEntry& entry, const std::string& path, ManifestProblem& problem) {
  const auto report = [&](const std::string& object, const std::string& text) {
    if (!text.empty())
      problem.set(object, text);
  };
  if (entry.sequenceAxis >= static_cast<int64_t>(entry.shape.size()))
    report(path, formatted("'{}' is {}, but '{}' has {} axes",
                           keyOf<CacheEntry, &CacheEntry::sequenceAxis>(), entry.sequenceAxis,
                           keyOf<CacheEntry, &CacheEntry::shape>(), entry.shape.size()));
  report(path, storageProblem(entry));
  report(path, codeProblem(entry));
  report(path, initialProblem(entry));
  report(path, permutationProblem(entry));
  if (entry.part)
    report(formatted("{}.{}", path, keyOf<CacheEntry, &CacheEntry::part>()), partProblem(entry));
}

constexpr FieldTable<CacheEntry> cacheTable{
    {"cache", "A cache of one attention layer, or a state.", &fieldsOf<CacheEntry>},
    cacheFields,
    &checkCache};

constexpr Field<ManifestReplacement> replacementFields[] = {
    fieldOf<ManifestReplacement, &ManifestReplacement::past>(
        {.key = "past",
         .type = FieldType::Name,
         .sentence = "Input of the exported model that takes the cache."}),
    fieldOf<ManifestReplacement, &ManifestReplacement::present>(
        {.key = "present",
         .type = FieldType::Name,
         .sentence = "Output of the exported model that gives the cache."}),
};

constexpr FieldTable<ManifestReplacement> replacementTable{
    {"replaced cache", "A cache of the exported model that the written model does not have.",
     &fieldsOf<ManifestReplacement>},
    replacementFields};

constexpr Field<ManifestPart> partFields[] = {
    fieldOf<ManifestPart, &ManifestPart::past>(
        {.key = "past",
         .type = FieldType::Name,
         .sentence = "Input of the exported model that takes the whole cache."}),
    fieldOf<ManifestPart, &ManifestPart::present>(
        {.key = "present",
         .type = FieldType::Name,
         .sentence = "Output of the exported model that gives the whole cache."}),
    fieldOf<ManifestPart, &ManifestPart::first>(
        {.key = "first",
         .sentence = "For each axis of the whole cache, the index at which the part starts."}),
    fieldOf<ManifestPart, &ManifestPart::dropped>(
        {.key = "dropped",
         .sentence = "Axes of the whole cache along which the part is one entry and that it does "
                     "not have, ascending."}),
};

constexpr FieldTable<ManifestPart> partTable{
    {"part", "A part of a cache of the exported model.", &fieldsOf<ManifestPart>}, partFields};

} // namespace

template <> const FieldTable<CacheEntry>& tableOf() { return cacheTable; }
template <> const FieldTable<ManifestReplacement>& tableOf() { return replacementTable; }
template <> const FieldTable<ManifestPart>& tableOf() { return partTable; }

void readValue(const FieldValue& value, std::vector<ManifestCache>& out) {
  std::vector<CacheEntry> entries;
  readValue(value, entries);
  for (CacheEntry& entry : entries) {
    entry.storage = spelledStorage(entry);
    out.push_back(std::move(static_cast<ManifestCache&>(entry)));
  }
}

OrderedJson valueJson(const std::vector<ManifestCache>& caches) {
  OrderedJson list = OrderedJson::array();
  for (const ManifestCache& cache : caches)
    list.push_back(valueJson(entryOf(cache)));
  return list;
}

std::vector<StorageSpelling> storageSpellings() {
  std::vector<StorageSpelling> spellings;
  for (const StorageRow& row : storageRows) {
    CacheEntry empty;
    ManifestCache cache;
    cache.storage = row.make(empty);
    const CacheEntry entry = entryOf(cache);
    const char* policy = "";
    for (const ManifestWord<CacheUpdate>& word : policyWords)
      if (word.value == entry.policy)
        policy = word.text;
    spellings.push_back({row.name, entry.isOnlyRead, policy, row.mayBeTwoTensors,
                         row.mayBeOneBuffer, row.key ? row.key() : nullptr, row.needsKey,
                         row.sentence});
  }
  return spellings;
}

} // namespace kvopt::ir
