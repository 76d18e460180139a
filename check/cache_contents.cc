// Histories of caches.
#include "check/cache_contents.h"

#include "check/call.h"

#include <numeric>

namespace kvopt::check {

CacheContents::CacheContents(DrivenModel before, DrivenModel after)
    : original(before), second(after), caches(before, after), sizes(before, after, caches) {}

std::optional<Extents> CacheContents::historyShape(const ir::ManifestCache& cache,
                                                   const Step& step) {
  Extents shape;
  const ir::Value* input = original.model.graph().findValue(cache.past);
  for (size_t i = 0; i < cache.shape.size(); ++i) {
    const ir::ManifestExtent& written = cache.shape[i];
    int64_t extent = otherExtent(step);
    if (const auto* fixed = std::get_if<int64_t>(&written))
      extent = *fixed;
    else if (input && input->type().hasRank() && i < input->type().rank())
      extent = sizes.of(input->type().shape()[i], step).value_or(otherExtent(step));
    shape.push_back(extent);
  }
  if (cache.isPool() && !shape.empty())
    shape[0] = step.batch; // the input has blocks there
  const ir::CacheUpdate update = cache.update();
  const bool hasRows = update != ir::CacheUpdate::State && update != ir::CacheUpdate::Static &&
                       update != ir::CacheUpdate::ReadOnly;
  if (hasRows && cache.sequenceAxis >= 0 && cache.sequenceAxis < static_cast<int64_t>(shape.size()))
    shape[static_cast<size_t>(cache.sequenceAxis)] = step.past;
  if (elementCount(shape) < 0) {
    reason = "the cache '" + cache.past + "' is too large";
    return std::nullopt;
  }
  return shape;
}

Ref CacheContents::places(const CacheInput& input, const Step& step) {
  if (!input.history) {
    reason = "the cache '" + input.cache->past + "': " + input.obstacle;
    return nullptr;
  }
  const auto shape = historyShape(*input.history, step);
  if (!shape)
    return nullptr;
  std::vector<int64_t> elements(static_cast<size_t>(elementCount(*shape)));
  std::iota(elements.begin(), elements.end(), 0);
  const Ref rows = integerTensor(*shape, std::move(elements));
  return placesOf(input.isAfter, *input.cache)
      .ofInput(input.isAfter ? asSecond(*input.history, *input.cache, rows) : rows, input.block,
               step, reason);
}

Ref CacheContents::of(const CacheInput& input, const Step& step, Arithmetic& math) {
  const Ref held = places(input, step);
  if (!held)
    return nullptr;
  const uint64_t rows = mixBits(nameHash(input.history->past) + static_cast<uint64_t>(step.past));
  const uint64_t unwritten = mixBits(nameHash(input.name + " poison"));
  auto result = std::make_shared<Tensor>();
  result->shape = held->shape;
  for (int64_t place : held->integers)
    result->reals.push_back(math.field.arbitrary(place >= 0 ? rows + static_cast<uint64_t>(place)
                                                            : unwritten + uint64_t(-1 - place)));
  return result;
}

std::optional<CachedRows> CacheContents::beforeRows(const CachePair& pair, const Ref& present,
                                                    const Step& step) const {
  auto rows = placesOf(false, *pair.before).ofResult(present, step);
  if (rows)
    rows->rows = asSecond(*pair.before, *pair.after, rows->rows);
  return rows;
}

std::optional<CachedRows> CacheContents::afterRows(const CachePair& pair, const Ref& present,
                                                   const Step& step) const {
  return placesOf(true, *pair.after).ofResult(present, step);
}

CacheContents::ForeignRows CacheContents::foreignRows(const CachePair& pair, const Ref& present,
                                                      const Step& step, Arithmetic& math) {
  const RowPlaces own = placesOf(true, *pair.after);
  const CacheInput* input = caches.input(true, pair.after->past);
  const Ref after = own.foreignRows(present, step);
  const Ref past = after && input ? of(*input, step, math) : nullptr;
  return {past ? own.foreignRows(past, step) : nullptr, after};
}

} // namespace kvopt::check
