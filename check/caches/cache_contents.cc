// Histories of caches.
#include "check/caches/cache_contents.h"

#include "check/arithmetic/call.h"
#include "check/caches/coded_rows.h"

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
    else if (!input) // a latent cache of the second model
      extent = sizes.of(ir::Dim::symbol(std::get<std::string>(written)), step)
                   .value_or(otherExtent(step));
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

/// The earlier rows of a cache of the first model: each element is its number.
Ref CacheContents::history(const ir::ManifestCache& cache, const Step& step) {
  const auto shape = historyShape(cache, step);
  if (!shape)
    return nullptr;
  std::vector<int64_t> elements(static_cast<size_t>(elementCount(*shape)));
  std::iota(elements.begin(), elements.end(), 0);
  return integerTensor(*shape, std::move(elements));
}

Ref CacheContents::places(const CacheInput& input, const Step& step) {
  if (!input.history) {
    reason = "the cache '" + input.cache->past + "': " + input.obstacle;
    return nullptr;
  }
  Ref rows = history(*input.history, step);
  if (rows && input.isAfter) {
    const bool areScales = input.pair->content == RowContent::Scales;
    rows = asSecond(*input.history, areScales ? *input.pair->codes : *input.cache, rows);
    if (areScales)
      rows = firstOfRows(rows, input.pair->scaleAxis);
  }
  if (!rows)
    return nullptr;
  return placesOf(input.isAfter, *input.cache).ofInput(rows, input.block, step, reason);
}

Ref CacheContents::numbersOf(const ir::ManifestCache& cache, const Step& step, const Field& field) {
  const Ref elements = history(cache, step);
  if (!elements)
    return nullptr;
  const uint64_t rows = mixBits(nameHash(cache.past) + static_cast<uint64_t>(step.past));
  auto result = std::make_shared<Tensor>();
  result->shape = elements->shape;
  for (int64_t place : elements->integers)
    result->reals.push_back(field.arbitrary(rows + static_cast<uint64_t>(place)));
  return result;
}

Ref CacheContents::of(const CacheInput& input, const Step& step, Arithmetic& math) {
  const Ref held = places(input, step);
  if (!held)
    return nullptr;
  const uint64_t rows = mixBits(nameHash(input.history->past) + static_cast<uint64_t>(step.past));
  const uint64_t unwritten = mixBits(nameHash(input.name + " poison") + otherUnwritten);
  auto result = std::make_shared<Tensor>();
  result->shape = held->shape;
  for (int64_t place : held->integers)
    result->reals.push_back(math.field.arbitrary(place >= 0 ? rows + static_cast<uint64_t>(place)
                                                            : unwritten + uint64_t(-1 - place)));
  if (!input.pair || !input.pair->codes)
    return result;
  const bool areScales = input.pair->content == RowContent::Scales;
  const Ref first = areScales ? held : firstOfRows(held, input.pair->scaleAxis);
  if (!first)
    return result;
  auto numbers = std::make_shared<Tensor>(*first);
  for (int64_t& place : numbers->integers)
    place = place >= 0 ? place : place - 1; // -1 would be a new row
  return codedRows(*input.pair, result, numbers, step, math);
}

/// For each of the rows that the second model's cache must have, the number of its first element
/// in the history, or -1 for a new row.
Ref CacheContents::numbersOfRows(const CachePair& pair, const CachedRows& rows, const Step& step) {
  const Ref all = history(*pair.before, step);
  const Ref earlier =
      all ? firstOfRows(asSecond(*pair.before, *pair.codes, all), pair.scaleAxis) : nullptr;
  if (!earlier || rows.first < 0)
    return nullptr;
  const auto sequence = static_cast<unsigned>(pair.codes->sequenceAxis);
  const Extents strides = stridesOf(earlier->shape);
  Extents shape = rows.rows->shape;
  shape[pair.scaleAxis] = 1;
  std::vector<int64_t> numbers;
  forEachPlace(shape, [&](llvm::ArrayRef<int64_t> place) {
    const int64_t row = rows.first + place[sequence];
    int64_t at = 0;
    for (size_t i = 0; i < place.size(); ++i)
      at += (i == sequence ? row : place[i]) * strides[i];
    numbers.push_back(row < step.past ? earlier->integers[static_cast<size_t>(at)] : -1);
  });
  return integerTensor(shape, std::move(numbers));
}

std::optional<CachedRows> CacheContents::beforeRows(const CachePair& pair, const Ref& present,
                                                    const Step& step, Arithmetic& math) {
  auto rows = placesOf(false, *pair.before).ofResult(present, step);
  if (!rows)
    return rows;
  if (pair.content == RowContent::Latent)
    return rows;
  rows->rows = asSecond(*pair.before, pair.codes ? *pair.codes : *pair.after, rows->rows);
  if (!pair.codes)
    return rows;
  const Ref numbers = numbersOfRows(pair, *rows, step);
  if (!numbers)
    return std::nullopt;
  rows->rows = codedRows(pair, math.constants.real(rows->rows), numbers, step, math);
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
