// Manifests read from JSON, which may come from anyone.
#include "ir/manifest/manifest_check.h"
#include "ir/manifest/manifest_words.h"
#include "ir/model.h"
#include "support/diagnostic.h"
#include "support/four_bit_row.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

#include <nlohmann/json.hpp>

#include <cmath>

namespace kvopt::ir {
namespace {

using Json = nlohmann::ordered_json;

/// Takes typed members out of one JSON object; remembers the first thing that
/// is wrong.
class ObjectReader {
public:
  ObjectReader(const Json& json, std::string where) : object(json), path(std::move(where)) {
    if (!object.is_object())
      fail("is no object");
  }

  const Json* member(const char* key) {
    if (!object.is_object())
      return nullptr;
    auto found = object.find(key);
    if (found == object.end()) {
      fail(fmt::format("has no '{}'", key));
      return nullptr;
    }
    return &*found;
  }

  void read(const char* key, std::string& out) {
    const Json* value = member(key);
    if (value && value->is_string())
      out = *value->get_ptr<const Json::string_t*>();
    else if (value)
      fail(fmt::format("'{}' is not a string", key));
  }

  void read(const char* key, bool& out) {
    const Json* value = member(key);
    if (value && value->is_boolean())
      out = *value->get_ptr<const Json::boolean_t*>();
    else if (value)
      fail(fmt::format("'{}' is neither true nor false", key));
  }

  /// Numbers in a manifest are never negative.
  void read(const char* key, int64_t& out) {
    const Json* value = member(key);
    if (!value)
      return;
    if (std::optional<int64_t> number = count(*value))
      out = *number;
    else
      fail(fmt::format("'{}' is no integer in [0, 2^63)", key));
  }

  template <typename Enum, size_t size>
  void read(const char* key, const ManifestWord<Enum> (&words)[size], Enum& out) {
    std::string text;
    read(key, text);
    if (failed())
      return;
    for (const ManifestWord<Enum>& word : words)
      if (text == word.text) {
        out = word.value;
        return;
      }
    fail(fmt::format("'{}' is '{}', which is not known", key, text));
  }

  void read(const char* key, ElementType& out) {
    std::string text;
    read(key, text);
    if (failed())
      return;
    if (std::optional<ElementType> type = elementTypeFromDtypeName(text))
      out = *type;
    else
      fail(fmt::format("'{}' is '{}', which is no element type", key, text));
  }

  void read(const char* key, std::vector<ManifestExtent>& out) {
    const Json* list = array(key);
    if (!list)
      return;
    for (const Json& entry : *list) {
      const auto* symbol = entry.get_ptr<const Json::string_t*>();
      if (std::optional<int64_t> number = count(entry))
        out.emplace_back(*number);
      else if (symbol && !symbol->empty())
        out.emplace_back(*symbol);
      else
        fail(fmt::format("'{}' has an extent that is neither a size nor a name", key));
    }
  }

  bool has(const char* key) const { return object.is_object() && object.contains(key); }

  /// A list of the numbers 0 … size-1 in some order.
  void readPermutation(const char* key, size_t size, std::vector<int64_t>& out) {
    const Json* list = array(key);
    if (!list)
      return;
    std::vector<bool> seen(size, false);
    for (const Json& entry : *list) {
      std::optional<int64_t> axis = count(entry);
      if (!axis || static_cast<size_t>(*axis) >= size || seen[static_cast<size_t>(*axis)])
        return fail(fmt::format("'{}' is no permutation of the {} axes", key, size));
      seen[static_cast<size_t>(*axis)] = true;
      out.push_back(*axis);
    }
    if (out.size() != size)
      fail(fmt::format("'{}' is no permutation of the {} axes", key, size));
  }

  void readNames(const char* key, std::vector<std::string>& out) {
    const Json* list = array(key);
    if (!list)
      return;
    for (const Json& entry : *list) {
      const auto* name = entry.get_ptr<const Json::string_t*>();
      if (!name || name->empty())
        return fail(fmt::format("'{}' has an entry that is not a name", key));
      out.push_back(*name);
    }
  }

  void readCounts(const char* key, std::vector<int64_t>& out, const char* what) {
    const Json* list = array(key);
    if (!list)
      return;
    for (const Json& entry : *list) {
      std::optional<int64_t> number = count(entry);
      if (!number)
        return fail(fmt::format("'{}' has an entry that is not {}", key, what));
      out.push_back(*number);
    }
  }

  /// Files are in the manifest's folder.
  void checkFileName(const char* key, const std::string& file) {
    if (file.find_first_of("/\\") != std::string::npos || file == "." || file == "..")
      fail(fmt::format("'{}' is '{}', which is not the name of a file in the "
                       "manifest's folder",
                       key, file));
  }

  /// Names may be empty: of files that are not written yet.
  void readFiles(const char* key, std::vector<std::string>& out) {
    const Json* list = array(key);
    if (!list)
      return;
    for (const Json& entry : *list) {
      const auto* name = entry.get_ptr<const Json::string_t*>();
      if (!name)
        return fail(fmt::format("'{}' has an entry that is not a name", key));
      checkFileName(key, *name);
      out.push_back(*name);
    }
  }

  const Json* array(const char* key) {
    const Json* value = member(key);
    if (value && !value->is_array()) {
      fail(fmt::format("'{}' is no list", key));
      return nullptr;
    }
    return value;
  }

  static std::optional<int64_t> count(const Json& value) {
    if (!value.is_number_integer())
      return std::nullopt;
    if (value.is_number_unsigned()) {
      uint64_t number = *value.get_ptr<const Json::number_unsigned_t*>();
      if (number > static_cast<uint64_t>(INT64_MAX))
        return std::nullopt;
      return static_cast<int64_t>(number);
    }
    int64_t number = *value.get_ptr<const Json::number_integer_t*>();
    return number < 0 ? std::nullopt : std::optional<int64_t>(number);
  }

  void fail(std::string problem) {
    if (firstProblem.empty())
      firstProblem = std::move(problem);
  }
  bool failed() const { return !firstProblem.empty(); }
  llvm::Error takeError() const {
    if (!failed())
      return llvm::Error::success();
    return invalid("manifest: {} {}", path, firstProblem);
  }
  /// What was read, if nothing is wrong.
  template <class T> llvm::Expected<T> result(T value) const {
    if (failed())
      return takeError();
    return value;
  }

private:
  const Json& object;
  std::string path;
  std::string firstProblem;
};

ManifestPart readPart(const Json& json, const std::string& path, size_t rank, llvm::Error& error) {
  ObjectReader reader(json, path);
  ManifestPart part;
  reader.read("past", part.past);
  reader.read("present", part.present);
  reader.readCounts("first", part.first, "an index");
  reader.readCounts("dropped", part.dropped, "an axis");
  if (part.past.empty() || part.present.empty())
    reader.fail("has an empty name");
  if (part.first.size() != rank + part.dropped.size())
    reader.fail(fmt::format("'first' has {} axes for the {} of the cache and {} dropped ones",
                            part.first.size(), rank, part.dropped.size()));
  for (size_t i = 0; i < part.dropped.size(); ++i)
    if (part.dropped[i] >= static_cast<int64_t>(part.first.size()) ||
        (i > 0 && part.dropped[i] <= part.dropped[i - 1]))
      reader.fail("'dropped' is not an ascending list of axes");
  error = reader.takeError();
  return part;
}

std::vector<ManifestReplacement> readReplaced(const Json& list, const std::string& path,
                                              llvm::Error& error) {
  std::vector<ManifestReplacement> replaced;
  for (size_t i = 0; i < list.size() && !error; ++i) {
    ObjectReader reader(list[i], fmt::format("{}[{}]", path, i));
    ManifestReplacement& entry = replaced.emplace_back();
    reader.read("past", entry.past);
    reader.read("present", entry.present);
    if (entry.past.empty() || entry.present.empty())
      reader.fail("has an empty name");
    error = reader.takeError();
  }
  return replaced;
}

/// Why rows cannot be four-bit codes of so many columns; null if they can.
const char* codeProblem(const ManifestCache& cache) {
  constexpr int64_t mostColumns = int64_t{1} << 40;
  if (cache.codeColumns < 1 || cache.codeColumns > mostColumns)
    return "'code_columns' is not a possible number of columns";
  if (cache.dtype != ElementType::UInt8 || isScale(cache.role))
    return "has 'code_columns', but its rows are not four-bit codes";
  const std::optional<CacheLayout> layout = cache.layout();
  const int64_t* width =
      layout ? std::get_if<int64_t>(&cache.shape[layout->columnAxis()]) : nullptr;
  if (!width || layout->isTransposed() || *width != FourBitRow{cache.codeColumns}.bytes())
    return "has rows of another width than that of its 'code_columns' four-bit "
           "codes";
  return nullptr;
}

/// What the keys of a cache say about its storage.
struct StorageKeys {
  bool isCross = false;
  CacheUpdate policy = CacheUpdate::Grows;
  bool oneBuffer = false;
  bool givesNewRows = false;
  bool isPool = false;
  std::vector<std::string> blocks;
};

/// The storage that the keys name. What only other storage has is dropped.
CacheStorage namedStorage(const StorageKeys& keys) {
  // What is only read does not change, whatever the policy says.
  if (keys.isCross)
    return ReadOnlyCache();
  if (keys.isPool)
    return PoolCache();
  if (keys.policy == CacheUpdate::Blocks)
    return BlockCache{keys.blocks};
  if (keys.oneBuffer)
    return inOneBuffer(storageOf(keys.policy));
  return keys.givesNewRows ? GrowingCache{true} : storageOf(keys.policy);
}

/// Reads the keys of `cache.storage`, which exclude each other.
void readStorage(ObjectReader& reader, ManifestCache& cache) {
  StorageKeys keys;
  reader.read("kind", kindWords, keys.isCross);
  reader.read("one_buffer", keys.oneBuffer);
  reader.read("policy", policyWords, keys.policy);
  const auto readWord = [&](const char* key, const char* word, bool& out) {
    std::string text;
    if (!reader.has(key))
      return;
    reader.read(key, text);
    if (text != word)
      reader.fail(fmt::format("'{}' is not '{}'", key, word));
    out = true;
  };
  readWord("present_rows", "new", keys.givesNewRows);
  readWord("form", "pool", keys.isPool);
  if (reader.has("blocks"))
    reader.readNames("blocks", keys.blocks);
  cache.storage = namedStorage(keys);
  if (keys.givesNewRows && !cache.givesNewRows())
    reader.fail("'present_rows' is 'new', but the cache does not grow, or is "
                "one buffer");
  if (!keys.blocks.empty() && cache.blocks().empty())
    reader.fail("has 'blocks', but another policy");
  if (keys.isPool && (keys.isCross || !keys.oneBuffer || keys.policy != CacheUpdate::Grows ||
                      cache.shape.size() != 4 || cache.sequenceAxis != 1))
    reader.fail("'form' is not 'pool', of a buffer [batch, capacity, heads, "
                "width] that grows");
  if (keys.oneBuffer && !cache.isOneBuffer())
    reader.fail("is one buffer, but no row of it stays in place");
}

llvm::Expected<ManifestCache> readCache(const Json& json, size_t index, CacheUpdate contract) {
  ObjectReader reader(json, fmt::format("caches[{}]", index));
  ManifestCache cache;
  reader.read("layer", cache.layer);
  reader.read("role", roleWords, cache.role);
  reader.read("past", cache.past);
  reader.read("present", cache.present);
  reader.read("shape", cache.shape);
  reader.read("sequence_axis", cache.sequenceAxis);
  reader.read("dtype", cache.dtype);
  reader.read("window", cache.window);
  readStorage(reader, cache);
  if (reader.has("rows")) {
    std::string word;
    reader.read("rows", word);
    if (word != "attended")
      reader.fail("'rows' is not 'attended'");
    cache.holdsAttendedRows = true;
  }
  if (reader.has("exported_dtype"))
    reader.read("exported_dtype", cache.exportedDtype);
  if (reader.has("code_columns")) {
    reader.read("code_columns", cache.codeColumns);
    if (const char* problem = codeProblem(cache))
      reader.fail(problem);
  }
  if (reader.has("replaces"))
    if (const Json* list = reader.array("replaces")) {
      llvm::Error error = llvm::Error::success();
      cache.replaces = readReplaced(*list, fmt::format("caches[{}].replaces", index), error);
      if (error)
        return error;
    }
  if (reader.has("rotation")) {
    int64_t rotation = 0;
    reader.read("rotation", rotation);
    cache.rotation = static_cast<size_t>(rotation);
  }
  if (reader.has("readers"))
    reader.readCounts("readers", cache.readers, "a layer number");
  if (reader.has("part")) {
    llvm::Error error = llvm::Error::success();
    cache.part = readPart(*reader.member("part"), fmt::format("caches[{}].part", index),
                          cache.shape.size(), error);
    if (error)
      return error;
  }
  if (reader.has("permutation"))
    reader.readPermutation("permutation", cache.shape.size(), cache.permutation);
  // A stateful model has no cache at its edge; one that is static or only read
  // need not come back out.
  bool stateful = contract == CacheUpdate::State;
  if (!stateful && cache.past.empty())
    reader.fail("has an empty 'past'");
  const bool mayStay =
      cache.update() == CacheUpdate::Static || cache.update() == CacheUpdate::ReadOnly;
  if (!stateful && !mayStay && cache.present.empty())
    reader.fail("has an empty 'present'");
  if (cache.sequenceAxis >= static_cast<int64_t>(cache.shape.size()))
    reader.fail(fmt::format("'sequence_axis' is {}, but 'shape' has {} axes", cache.sequenceAxis,
                            cache.shape.size()));
  return reader.result(std::move(cache));
}

llvm::Expected<ManifestLength> readLength(const Json& json, size_t index) {
  ObjectReader reader(json, fmt::format("lengths[{}]", index));
  ManifestLength length;
  reader.read("input", length.input);
  reader.read("dtype", length.dtype);
  reader.read("shape", length.shape);
  reader.read("feed", feedWords, length.feed);
  if (length.input.empty())
    reader.fail("has an empty 'input'");
  if (isFlag(length.feed) && length.dtype != ElementType::Bool && !isInteger(length.dtype))
    reader.fail("has a 'dtype' that is neither bool nor an integer type");
  if (!isFlag(length.feed) && !isInteger(length.dtype))
    reader.fail("has a 'dtype' that is no integer type");
  return reader.result(std::move(length));
}

llvm::Expected<ManifestInput> readInput(const Json& json, size_t index) {
  ObjectReader reader(json, fmt::format("inputs[{}]", index));
  ManifestInput input;
  reader.read("input", input.input);
  reader.read("dtype", input.dtype);
  reader.read("shape", input.shape);
  reader.read("feed", inputFeedWords, input.feed);
  if (input.input.empty())
    reader.fail("has an empty 'input'");
  return reader.result(std::move(input));
}

llvm::Expected<ManifestVariant> readVariant(const Json& json, size_t index) {
  ObjectReader reader(json, fmt::format("variants[{}]", index));
  ManifestVariant variant;
  reader.read("file", variant.file);
  reader.read("past_blocks", variant.pastBlocks);
  reader.read("past_rows", variant.pastRows);
  reader.checkFileName("file", variant.file);
  return reader.result(std::move(variant));
}

llvm::Expected<ManifestTiledAttention> readTiledAttention(const Json& json, size_t index) {
  ObjectReader reader(json, fmt::format("tiles.attentions[{}]", index));
  ManifestTiledAttention attention;
  reader.read("after_part", attention.afterPart);
  for (const auto& [key, name] :
       {std::pair("query", &attention.query), std::pair("key", &attention.key),
        std::pair("value", &attention.value), std::pair("mask", &attention.mask),
        std::pair("output", &attention.output), std::pair("maximum", &attention.maximum),
        std::pair("sum", &attention.sum), std::pair("key_cache", &attention.keyCache),
        std::pair("value_cache", &attention.valueCache), std::pair("result", &attention.result)})
    reader.read(key, *name);
  reader.read("block_tile", attention.blockTile);
  if (reader.has("tail_tile"))
    reader.read("tail_tile", attention.tailTile.emplace());
  reader.read("last_tile", attention.lastTile);
  return reader.result(std::move(attention));
}

llvm::Expected<ManifestRotation> readRotation(const Json& json, size_t index) {
  ObjectReader reader(json, fmt::format("rotations[{}]", index));
  ManifestRotation rotation;
  reader.read("width", rotation.width);
  reader.read("first", rotation.first);
  std::string pairs;
  reader.read("pairs", pairs);
  if (!reader.failed() && pairs != "halves" && pairs != "neighbors")
    reader.fail(fmt::format("'pairs' is '{}', which is not known", pairs));
  rotation.interleaved = pairs == "neighbors";
  if (const Json* list = reader.array("theta"))
    for (const Json& entry : *list) {
      const double theta = entry.is_number() ? entry.get<double>() : std::nan("");
      if (!std::isfinite(theta))
        reader.fail("'theta' has an entry that is not a finite number");
      rotation.theta.push_back(theta);
    }
  const auto pairCount = static_cast<int64_t>(rotation.theta.size());
  if (!reader.failed() && (pairCount == 0 || pairCount > rotation.width / 2 ||
                           rotation.first > rotation.width - 2 * pairCount))
    reader.fail(fmt::format("rotates {} pairs from column {} of rows of {}", pairCount,
                            rotation.first, rotation.width));
  return reader.result(std::move(rotation));
}

/// Rows of a cache are divided into heads of the rotation's width.
llvm::Error checkRotations(const Manifest& manifest) {
  for (const ManifestCache& cache : manifest.caches) {
    if (!cache.rotation)
      continue;
    if (!manifest.rotations || *cache.rotation >= manifest.rotations->size())
      return invalid("manifest: there is no rotation {}", *cache.rotation).value(cache.past);
    const int64_t width = (*manifest.rotations)[*cache.rotation].width;
    const auto layout = cache.layout();
    const auto* columns = cache.codeColumns != 0 ? &cache.codeColumns
                          : layout ? std::get_if<int64_t>(&cache.shape[layout->columnAxis()])
                                   : nullptr;
    if (!columns || *columns % width != 0)
      return invalid("manifest: its rows are not divided into rotated ones of "
                     "{} columns",
                     width)
          .value(cache.past);
  }
  return llvm::Error::success();
}

/// Blocks of fixed extents, all of which the last variant has.
llvm::Error checkVariants(const Manifest& manifest) {
  if (manifest.variants.empty())
    return llvm::Error::success();
  if (manifest.contract != CacheUpdate::Blocks || manifest.blockSize < 1 ||
      manifest.capacityValue.value_or(0) < 1)
    return invalid("manifest: there are variants, but no blocks of a size and a capacity");
  int64_t blocks = -1;
  for (const ManifestVariant& variant : manifest.variants) {
    int64_t rows = 0;
    if (__builtin_mul_overflow(variant.pastBlocks, manifest.blockSize, &rows))
      rows = *manifest.capacityValue;
    if (variant.pastBlocks <= blocks || variant.pastRows != std::min(rows, *manifest.capacityValue))
      return invalid("manifest: a variant with {} blocks does not have {} "
                     "rows, or comes too late",
                     variant.pastBlocks, variant.pastRows);
    blocks = variant.pastBlocks;
  }
  for (const ManifestCache& cache : manifest.caches)
    if (cache.update() == CacheUpdate::Blocks &&
        static_cast<int64_t>(cache.blocks().size()) != blocks)
      return invalid("manifest: the last variant has {} blocks, but cache '{}' has {}", blocks,
                     cache.past, cache.blocks().size());
  return llvm::Error::success();
}

/// Attention between parts, over caches that are in blocks.
llvm::Error checkTiles(const Manifest& manifest) {
  if (!manifest.tiles)
    return llvm::Error::success();
  const ManifestTiles& tiles = *manifest.tiles;
  if (manifest.variants.size() != 1)
    return invalid("manifest: a model in pieces has {} variants, not itself alone",
                   manifest.variants.size());
  if (tiles.state != ElementType::Float && tiles.state != ElementType::Float16)
    return invalid("manifest: a state of {} is neither of float32 nor of float16",
                   dtypeName(tiles.state));
  const bool hasTail = *manifest.capacityValue % manifest.blockSize != 0;
  int64_t after = 0;
  for (const ManifestTiledAttention& attention : tiles.attentions) {
    const auto isPiece = [](int64_t index, const std::vector<std::string>& files) {
      return index < static_cast<int64_t>(files.size());
    };
    if (attention.afterPart < after ||
        attention.afterPart >= static_cast<int64_t>(tiles.parts.size()) - 1)
      return invalid("manifest: attention after part {} comes too late, or no "
                     "part follows it",
                     attention.afterPart)
          .value(attention.result);
    after = attention.afterPart;
    for (int64_t tile : {attention.blockTile, attention.tailTile.value_or(0), attention.lastTile})
      if (!isPiece(tile, tiles.tiles))
        return invalid("manifest: tile {} does not exist", tile).value(attention.result);
    if (hasTail != attention.tailTile.has_value())
      return invalid("manifest: there is {} for the last block, which has {} rows",
                     hasTail ? "no tile" : "a tile of its own",
                     hasTail ? "fewer" : "as many as others")
          .value(attention.result);
    for (const std::string& past : {attention.keyCache, attention.valueCache})
      if (llvm::none_of(manifest.caches, [&](const ManifestCache& cache) {
            return cache.past == past && !cache.blocks().empty();
          }))
        return invalid("manifest: the named input is not the past of a cache "
                       "in blocks")
            .value(past);
  }
  return llvm::Error::success();
}

/// What a manifest says only where a target is not as free as usual.
llvm::Error readLimits(const Json& json, Manifest& manifest) {
  ObjectReader reader(json, "the manifest");
  if (reader.has("block_size")) {
    reader.read("block_size", manifest.blockSize);
    if (manifest.blockSize < 1)
      reader.fail("'block_size' is no positive integer");
  }
  for (const auto& [key, limit] : {std::pair("chunk_batch", &manifest.chunkBatch),
                                   std::pair("step_limit", &manifest.stepLimit)}) {
    if (!reader.has(key))
      continue;
    int64_t most = 0;
    reader.read(key, most);
    const bool mayBeNone = limit == &manifest.chunkBatch;
    if (most < (mayBeNone ? 0 : 1))
      reader.fail(
          fmt::format("'{}' is no {} integer", key, mayBeNone ? "nonnegative" : "positive"));
    *limit = most;
  }
  if (reader.has("reorder"))
    reader.read("reorder", manifest.reorder);
  if (reader.has("first_step")) {
    reader.read("first_step", manifest.firstStep);
    reader.checkFileName("first_step", manifest.firstStep);
  }
  if (reader.has("hidden_rows")) {
    std::string word;
    reader.read("hidden_rows", word);
    if (word != "undefined")
      reader.fail("'hidden_rows' is not 'undefined'");
    manifest.hiddenRowsUndefined = true;
  }
  if (reader.has("unpadded"))
    reader.readNames("unpadded", manifest.unpadded);
  if (reader.has("padding")) {
    std::string word;
    reader.read("padding", word);
    if (word != "right")
      reader.fail("'padding' is not 'right'");
    manifest.padsRight = true;
  }
  return reader.takeError();
}

llvm::Error readCapacity(const Json& json, Manifest& manifest) {
  ObjectReader reader(json, "capacity");
  reader.read("symbol", manifest.capacitySymbol);
  const Json* value = reader.member("value");
  if (value && !value->is_null()) {
    manifest.capacityValue = ObjectReader::count(*value);
    if (!manifest.capacityValue)
      reader.fail("'value' is neither null nor an integer in [0, 2^63)");
  }
  return reader.takeError();
}

/// Reads the entries of a list, each with its index.
template <class T, class Read>
llvm::Error readList(const Json& list, std::vector<T>& out, Read&& read) {
  for (const Json& entry : list) {
    llvm::Expected<T> value = read(entry, out.size());
    if (!value)
      return value.takeError();
    out.push_back(std::move(*value));
  }
  return llvm::Error::success();
}

llvm::Expected<ManifestTiles> readTiles(const Json& json) {
  ObjectReader reader(json, "tiles");
  ManifestTiles tiles;
  reader.read("state", tiles.state);
  reader.readFiles("parts", tiles.parts);
  reader.readFiles("tiles", tiles.tiles);
  reader.readNames("outputs", tiles.outputs);
  const Json* attentions = reader.array("attentions");
  if (llvm::Error error = reader.takeError())
    return error;
  if (llvm::Error error = readList(*attentions, tiles.attentions, readTiledAttention))
    return error;
  return tiles;
}

/// Pools need the size of their blocks and one input that lists them.
llvm::Error checkPools(const Manifest& manifest) {
  const auto isTable = [](const ManifestLength& length) {
    return length.feed == LengthFeed::BlockTable;
  };
  const auto tables = llvm::count_if(manifest.lengths, isTable);
  if (tables != (manifest.hasPools() ? 1 : 0))
    return invalid("manifest: {} inputs are fed a block table, and {} is a pool", tables,
                   manifest.hasPools() ? "some cache" : "no cache");
  if (tables == 0)
    return llvm::Error::success();
  if (manifest.blockSize < 1)
    return invalid("manifest: caches are pools, but there is no 'block_size'");
  if (manifest.capacityValue.value_or(0) % manifest.blockSize != 0)
    return invalid("manifest: a capacity of {} is not a multiple of the blocks' {} tokens",
                   *manifest.capacityValue, manifest.blockSize);
  const ManifestLength& table = *llvm::find_if(manifest.lengths, isTable);
  if (table.shape.size() != 2)
    return invalid("manifest: a block table has {} axes, not 2", table.shape.size())
        .value(table.input);
  return llvm::Error::success();
}

/// A name is that of one cache, and is fed in one way.
llvm::Error checkNames(const Manifest& manifest) {
  llvm::StringSet<> inputs;
  llvm::StringSet<> outputs;
  for (const ManifestCache& cache : manifest.caches) {
    if (!cache.past.empty() && !inputs.insert(cache.past).second)
      return invalid("manifest: the input is named twice").value(cache.past);
    for (const std::string& block : cache.blocks())
      if (!inputs.insert(block).second)
        return invalid("manifest: the input is named twice").value(block);
    if (!cache.present.empty() && !outputs.insert(cache.present).second)
      return invalid("manifest: the output is named twice").value(cache.present);
  }
  for (const ManifestLength& length : manifest.lengths)
    if (!inputs.insert(length.input).second)
      return invalid("manifest: the input is named twice").value(length.input);
  // What is said of a mask, and of the input that reorders rows, may be said
  // beside what they are fed, but of no cache and of no length.
  llvm::StringSet<> masks;
  for (const std::string& mask : manifest.unpadded)
    if (inputs.contains(mask) || !masks.insert(mask).second)
      return invalid("manifest: the input is named twice").value(mask);
  if (inputs.contains(manifest.reorder) || masks.contains(manifest.reorder))
    return invalid("manifest: the input is named twice").value(manifest.reorder);
  for (const ManifestInput& input : manifest.inputs)
    if (!inputs.insert(input.input).second)
      return invalid("manifest: the input is named twice").value(input.input);
  return llvm::Error::success();
}

} // namespace

llvm::Expected<Manifest> parseManifest(llvm::StringRef json) {
  Json root = Json::parse(json.begin(), json.end(), nullptr,
                          /*allow_exceptions=*/false);
  if (root.is_discarded())
    return invalid("manifest: not valid JSON");
  ObjectReader reader(root, "the manifest");
  std::string schema;
  reader.read("schema", schema);
  if (!reader.failed() && schema != manifestSchema)
    return unsupported("manifest: the schema is '{}', not '{}'", schema, manifestSchema);
  Manifest manifest;
  reader.read("target", manifest.target);
  reader.read("contract", contractWords, manifest.contract);
  const Json* capacity = reader.member("capacity");
  const Json* caches = reader.array("caches");
  const Json* lengths = reader.array("lengths");
  if (llvm::Error error = reader.takeError())
    return error;
  if (llvm::Error error = readCapacity(*capacity, manifest))
    return error;
  if (llvm::Error error = readLimits(root, manifest))
    return error;
  const auto cacheOfContract = [&](const Json& entry, size_t index) {
    return readCache(entry, index, manifest.contract);
  };
  if (llvm::Error error = readList(*caches, manifest.caches, cacheOfContract))
    return error;
  if (llvm::Error error = readList(*lengths, manifest.lengths, readLength))
    return error;
  if (reader.has("inputs")) {
    const Json* inputs = reader.array("inputs");
    if (llvm::Error error = reader.takeError())
      return error;
    if (llvm::Error error = readList(*inputs, manifest.inputs, readInput))
      return error;
  }
  if (reader.has("variants")) {
    const Json* variants = reader.array("variants");
    if (llvm::Error error = reader.takeError())
      return error;
    if (llvm::Error error = readList(*variants, manifest.variants, readVariant))
      return error;
  }
  if (const Json* tiles = reader.has("tiles") ? reader.member("tiles") : nullptr) {
    auto read = readTiles(*tiles);
    if (!read)
      return read.takeError();
    manifest.tiles = std::move(*read);
  }
  if (reader.has("rotations")) {
    const Json* rotations = reader.array("rotations");
    if (llvm::Error error = reader.takeError())
      return error;
    if (llvm::Error error = readList(*rotations, manifest.rotations.emplace(), readRotation))
      return error;
  }
  if (llvm::Error error = checkRotations(manifest))
    return error;
  if (llvm::Error error = checkNames(manifest))
    return error;
  if (llvm::Error error = checkVariants(manifest))
    return error;
  if (llvm::Error error = checkTiles(manifest))
    return error;
  if (llvm::Error error = checkPools(manifest))
    return error;
  return manifest;
}

llvm::Expected<std::optional<Manifest>> manifestOf(const Model& model) {
  const std::string* text = model.findMetadata(manifestKey);
  if (!text)
    return std::optional<Manifest>();
  llvm::Expected<Manifest> manifest = parseManifest(*text);
  if (!manifest)
    return withFile(manifest.takeError(), model.path);
  if (llvm::Error error = checkManifest(*manifest, model.graph()))
    return withFile(std::move(error), model.path);
  return std::optional<Manifest>(std::move(*manifest));
}

} // namespace kvopt::ir
