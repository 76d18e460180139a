// Checks of a manifest that concern several of its objects.
#include "ir/manifest/manifest_consistency.h"

#include "ir/manifest/field_table.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

namespace kvopt::ir {

namespace {

/// Caches have names where they are inputs and outputs of the model. One that is static or only
/// read need not come back out, and a stateful model has neither.
llvm::Error checkCacheNames(const Manifest& manifest) {
  ManifestProblem problem;
  for (size_t i = 0; i < manifest.caches.size(); ++i) {
    const ManifestCache& cache = manifest.caches[i];
    const std::string path = formatted("{}[{}]", keyOf<Manifest, &Manifest::caches>(), i);
    const char* past = keyOf<CacheEntry, &CacheEntry::past>();
    const char* present = keyOf<CacheEntry, &CacheEntry::present>();
    if (manifest.contract == CacheUpdate::State)
      continue;
    if (cache.past.empty())
      problem.set(path, formatted("has an empty '{}'", past));
    const bool mayStay =
        cache.update() == CacheUpdate::Static || cache.update() == CacheUpdate::ReadOnly;
    if (!mayStay && cache.present.empty())
      problem.set(path, formatted("has an empty '{}'", present));
  }
  return problem.takeError();
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
      return invalid("manifest: its rows are not divided into rotated ones of {} columns", width)
          .value(cache.past);
  }
  return llvm::Error::success();
}

/// Checks that blocks have fixed extents, and that the last variant has all blocks.
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
      return invalid("manifest: a variant with {} blocks does not have {} rows, or comes too late",
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

/// Attention is between parts, and reads caches in blocks.
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
      return invalid("manifest: attention after part {} comes too late, or no part follows it",
                     attention.afterPart)
          .value(attention.result);
    after = attention.afterPart;
    for (int64_t tile : {attention.blockTile, attention.tailTile.value_or(0), attention.lastTile})
      if (!isPiece(tile, tiles.tiles))
        return invalid("manifest: tile {} does not exist", tile).value(attention.result);
    if (hasTail != attention.tailTile.has_value())
      return invalid("manifest: there is {} for the last block, which has {} rows",
                     hasTail ? "no tile" : "a tile of its own",
                     hasTail ? "fewer" : "the usual number")
          .value(attention.result);
    for (const std::string& past : {attention.keyCache, attention.valueCache})
      if (llvm::none_of(manifest.caches, [&](const ManifestCache& cache) {
            return cache.past == past && !cache.blocks().empty();
          }))
        return invalid("manifest: the named input is not the past of a cache in blocks")
            .value(past);
  }
  return llvm::Error::success();
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
    return invalid("manifest: caches are pools, but there is no '{}'",
                   keyOf<Manifest, &Manifest::blockSize>());
  if (manifest.capacityValue.value_or(0) % manifest.blockSize != 0)
    return invalid("manifest: a capacity of {} is not a multiple of the blocks' {} tokens",
                   *manifest.capacityValue, manifest.blockSize);
  const ManifestLength& table = *llvm::find_if(manifest.lengths, isTable);
  if (table.shape.size() != 2)
    return invalid("manifest: a block table has {} axes, not 2", table.shape.size())
        .value(table.input);
  return llvm::Error::success();
}

/// A name is that of one cache, and has one feed.
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
  // A mask, and the input that reorders rows, may also be one of the inputs, but not a cache or a
  // length.
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

llvm::Error checkConsistency(const Manifest& manifest) {
  for (const auto& check :
       {checkCacheNames, checkRotations, checkNames, checkVariants, checkTiles, checkPools})
    if (llvm::Error error = check(manifest))
      return error;
  return llvm::Error::success();
}

} // namespace kvopt::ir
