// Bytes written to caches, from the manifest and from the operators that read blocks.
#include "driver/rewrite/cache_bytes.h"

#include "driver/row_bytes.h"
#include "ir/movement.h"
#include "ir/op.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::driver {
using namespace ir;

namespace {

/// Whether blocks are joined or converted before attention reads them.
bool copiesBlocks(const ManifestCache& cache, const Graph& graph) {
  return llvm::any_of(cache.blocks(), [&](const std::string& name) {
    const Value* block = graph.findValue(name);
    return block && llvm::any_of(block->uses(), [](const Use& use) {
             return !use.user().is("Shape") && movementKind(use.user()).has_value();
           });
  });
}

/// Number of the `earlier` rows that a step copies.
int64_t copiedRows(const ManifestCache& cache, const Manifest& manifest, const Graph& graph,
                   int64_t earlier) {
  if (cache.isOneBuffer())
    return 0;
  // Each tile reads one block.
  if (cache.update() == CacheUpdate::Blocks)
    return !manifest.tiles && copiesBlocks(cache, graph) ? earlier : 0;
  // A static cache has at least room for all rows.
  return cache.fixedRows().value_or(cache.update() == CacheUpdate::Static ? earlier + 1 : earlier);
}

/// Whether an input and an output have the same extents.
bool areAlike(const TensorType& past, const TensorType& present) {
  if (!past.hasRank() || !present.hasRank() || past.rank() != present.rank())
    return false;
  for (unsigned axis = 0; axis < past.rank(); ++axis)
    if (!past.dim(axis).isKnownEqual(present.dim(axis)))
      return false;
  return true;
}

} // namespace

std::optional<int64_t> cacheBytesPerToken(const Manifest& manifest, const Graph& graph,
                                          int64_t context) {
  int64_t total = 0;
  for (const ManifestCache& cache : manifest.caches) {
    if (cache.update() == CacheUpdate::ReadOnly || cache.update() == CacheUpdate::State)
      continue;
    const std::optional<int64_t> row = rowBytes(cache);
    int64_t bytes = 0;
    if (!row ||
        __builtin_mul_overflow(*row, copiedRows(cache, manifest, graph, context - 1) + 1, &bytes) ||
        __builtin_add_overflow(total, bytes, &total))
      return std::nullopt;
  }
  return total;
}

std::optional<int64_t> allocatedCacheBytes(const Manifest& manifest, int64_t context) {
  int64_t total = 0;
  for (const ManifestCache& cache : manifest.caches) {
    if (cache.update() == CacheUpdate::ReadOnly || cache.update() == CacheUpdate::State)
      continue;
    const std::optional<int64_t> row = rowBytes(cache);
    const int64_t room = manifest.capacityValue.value_or(context);
    // The extent of a block does not determine the number of blocks.
    const int64_t rows =
        cache.update() == CacheUpdate::Blocks ? room : cache.fixedRows().value_or(room);
    int64_t bytes = 0;
    if (!row || __builtin_mul_overflow(*row, rows, &bytes) ||
        __builtin_add_overflow(total, bytes, &total))
      return std::nullopt;
  }
  return total;
}

InPlaceUpdates inPlaceUpdates(const Graph& graph) {
  InPlaceUpdates updates;
  for (const Node& node : graph.nodes()) {
    const OpDef* definition = node.definition();
    if (!definition)
      continue;
    for (const Alias& alias : definition->aliases) {
      if (alias.kind == Alias::Kind::View || alias.operand >= node.operands().size() ||
          alias.result >= node.results().size())
        continue;
      const Value* past = node.operand(alias.operand);
      const Value& present = node.result(alias.result);
      if (!past || !past->isGraphInput() || past->constant() || !present.isGraphOutput() ||
          !areAlike(past->type(), present.type()))
        continue;
      ++updates.operators[node.op().str()];
      updates.byPast[past->name().str()] = node.op().str();
    }
  }
  return updates;
}

} // namespace kvopt::driver
