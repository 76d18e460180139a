// Manifests written as JSON.
#include "ir/manifest/manifest.h"

#include "ir/manifest/manifest_words.h"

#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

#include <nlohmann/json.hpp>

namespace kvopt::ir {
namespace {

using Json = nlohmann::ordered_json;

template <typename Enum, size_t count>
const char* textOf(const ManifestWord<Enum> (&words)[count], Enum value) {
  for (const ManifestWord<Enum>& word : words)
    if (word.value == value)
      return word.text;
  assert(false && "every value has a word");
  return "";
}

Json shapeJson(const std::vector<ManifestExtent>& shape) {
  Json list = Json::array();
  for (const ManifestExtent& extent : shape) {
    if (const auto* fixed = std::get_if<int64_t>(&extent))
      list.push_back(*fixed);
    else
      list.push_back(std::get<std::string>(extent));
  }
  return list;
}

Json partJson(const ManifestPart& part) {
  Json object = Json::object();
  object["past"] = part.past;
  object["present"] = part.present;
  object["first"] = part.first;
  object["dropped"] = part.dropped;
  return object;
}

Json cacheJson(const ManifestCache& cache) {
  Json object = Json::object();
  object["layer"] = cache.layer;
  object["kind"] = textOf(kindWords, cache.update() == CacheUpdate::ReadOnly);
  object["role"] = textOf(roleWords, cache.role);
  object["past"] = cache.past;
  object["present"] = cache.present;
  object["one_buffer"] = cache.isOneBuffer();
  if (cache.givesNewRows())
    object["present_rows"] = "new";
  if (cache.holdsAttendedRows)
    object["rows"] = "attended";
  for (const ManifestReplacement& replaced : cache.replaces)
    object["replaces"].push_back({{"past", replaced.past}, {"present", replaced.present}});
  if (cache.isPool())
    object["form"] = "pool";
  object["shape"] = shapeJson(cache.shape);
  object["sequence_axis"] = cache.sequenceAxis;
  object["dtype"] = dtypeName(cache.dtype).str();
  if (cache.exportedDtype != ElementType::Undefined)
    object["exported_dtype"] = dtypeName(cache.exportedDtype).str();
  if (cache.codeColumns != 0)
    object["code_columns"] = cache.codeColumns;
  object["policy"] = textOf(policyWords, cache.update());
  object["window"] = cache.window;
  if (cache.rotation)
    object["rotation"] = *cache.rotation;
  if (!cache.readers.empty())
    object["readers"] = cache.readers;
  if (cache.part)
    object["part"] = partJson(*cache.part);
  if (!cache.permutation.empty())
    object["permutation"] = cache.permutation;
  if (!cache.blocks().empty())
    object["blocks"] = cache.blocks().vec();
  return object;
}

Json lengthJson(const ManifestLength& length) {
  Json object = Json::object();
  object["input"] = length.input;
  object["dtype"] = dtypeName(length.dtype).str();
  object["shape"] = shapeJson(length.shape);
  object["feed"] = textOf(feedWords, length.feed);
  return object;
}

Json inputJson(const ManifestInput& input) {
  Json object = Json::object();
  object["input"] = input.input;
  object["dtype"] = dtypeName(input.dtype).str();
  object["shape"] = shapeJson(input.shape);
  object["feed"] = textOf(inputFeedWords, input.feed);
  return object;
}

Json rotationJson(const ManifestRotation& rotation) {
  Json object = Json::object();
  object["width"] = rotation.width;
  object["first"] = rotation.first;
  object["pairs"] = rotation.interleaved ? "neighbors" : "halves";
  object["theta"] = rotation.theta;
  return object;
}

Json variantJson(const ManifestVariant& variant) {
  Json object = Json::object();
  object["file"] = variant.file;
  object["past_blocks"] = variant.pastBlocks;
  object["past_rows"] = variant.pastRows;
  return object;
}

Json tiledAttentionJson(const ManifestTiledAttention& attention) {
  Json object = Json::object();
  object["after_part"] = attention.afterPart;
  object["query"] = attention.query;
  object["key"] = attention.key;
  object["value"] = attention.value;
  object["mask"] = attention.mask;
  object["output"] = attention.output;
  object["maximum"] = attention.maximum;
  object["sum"] = attention.sum;
  object["key_cache"] = attention.keyCache;
  object["value_cache"] = attention.valueCache;
  object["block_tile"] = attention.blockTile;
  if (attention.tailTile)
    object["tail_tile"] = *attention.tailTile;
  object["last_tile"] = attention.lastTile;
  object["result"] = attention.result;
  return object;
}

Json tilesJson(const ManifestTiles& tiles) {
  Json object = Json::object();
  object["state"] = dtypeName(tiles.state).str();
  object["parts"] = tiles.parts;
  object["tiles"] = tiles.tiles;
  object["outputs"] = tiles.outputs;
  object["attentions"] = Json::array();
  for (const ManifestTiledAttention& attention : tiles.attentions)
    object["attentions"].push_back(tiledAttentionJson(attention));
  return object;
}

} // namespace

std::string ManifestPart::text(llvm::StringRef cache) const {
  std::string places;
  for (size_t axis = 0; axis < first.size(); ++axis) {
    const bool isDropped = llvm::is_contained(dropped, static_cast<int64_t>(axis));
    if (!isDropped && first[axis] == 0)
      continue;
    if (!places.empty())
      places += ", ";
    places +=
        isDropped ? std::to_string(first[axis]) : fmt::format("axis {} from {}", axis, first[axis]);
  }
  return fmt::format("{}[{}]", cache, places.empty() ? "0" : places);
}

bool ManifestCache::givesNewRows() const {
  const auto* growing = std::get_if<GrowingCache>(&storage);
  return growing && growing->givesNewRows;
}

llvm::ArrayRef<std::string> ManifestCache::blocks() const {
  const auto* inBlocks = std::get_if<BlockCache>(&storage);
  return inBlocks ? llvm::makeArrayRef(inBlocks->inputs) : llvm::ArrayRef<std::string>();
}

std::optional<int64_t> ManifestCache::fixedRows() const {
  const auto* rows = std::get_if<int64_t>(&shape[static_cast<size_t>(sequenceAxis)]);
  return rows ? std::optional<int64_t>(*rows) : std::nullopt;
}

bool Manifest::sharesBuffers() const {
  return llvm::any_of(caches, [](const ManifestCache& cache) { return cache.isOneBuffer(); });
}

bool Manifest::hasPools() const {
  return llvm::any_of(caches, [](const ManifestCache& cache) { return cache.isPool(); });
}

bool Manifest::ownsCaches() const {
  return sharesBuffers() ||
         llvm::any_of(caches, [](const ManifestCache& cache) { return !cache.blocks().empty(); });
}

std::string Manifest::json() const {
  Json root = Json::object();
  root["schema"] = manifestSchema;
  root["target"] = target;
  root["contract"] = textOf(contractWords, contract);
  Json capacity = Json::object();
  capacity["symbol"] = capacitySymbol;
  capacity["value"] = capacityValue ? Json(*capacityValue) : Json(nullptr);
  root["capacity"] = std::move(capacity);
  if (blockSize != 0)
    root["block_size"] = blockSize;
  root["caches"] = Json::array();
  for (const ManifestCache& cache : caches)
    root["caches"].push_back(cacheJson(cache));
  root["lengths"] = Json::array();
  for (const ManifestLength& length : lengths)
    root["lengths"].push_back(lengthJson(length));
  if (!inputs.empty()) {
    root["inputs"] = Json::array();
    for (const ManifestInput& input : inputs)
      root["inputs"].push_back(inputJson(input));
  }
  if (!variants.empty()) {
    root["variants"] = Json::array();
    for (const ManifestVariant& variant : variants)
      root["variants"].push_back(variantJson(variant));
  }
  if (tiles)
    root["tiles"] = tilesJson(*tiles);
  if (rotations) {
    root["rotations"] = Json::array();
    for (const ManifestRotation& rotation : *rotations)
      root["rotations"].push_back(rotationJson(rotation));
  }
  if (!reorder.empty())
    root["reorder"] = reorder;
  if (!firstStep.empty())
    root["first_step"] = firstStep;
  if (chunkBatch)
    root["chunk_batch"] = *chunkBatch;
  if (stepLimit)
    root["step_limit"] = *stepLimit;
  if (hiddenRowsUndefined)
    root["hidden_rows"] = "undefined";
  if (!unpadded.empty())
    root["unpadded"] = unpadded;
  if (padsRight)
    root["padding"] = "right";
  // Names that are no UTF-8 cannot stand in JSON; the default would be to throw.
  return root.dump(2, ' ', false, Json::error_handler_t::replace);
}

} // namespace kvopt::ir
