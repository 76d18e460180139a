// Contents of inputs and places of cached rows.
#include "check/feeding.h"

#include "check/call.h"
#include "ir/manifest/documented_inputs.h"
#include "ir/manifest/fed_length.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <numeric>

namespace kvopt::check {
using ir::InputFeed;

int64_t otherExtent(const Step& step) {
  constexpr int64_t smallest = 2, extents = 3;
  return smallest + step.total() % extents;
}

namespace {

std::vector<int64_t> visibleKeys(const Step& step) {
  std::vector<int64_t> mask;
  for (int64_t row = 0; row < step.batch; ++row)
    for (int64_t token = 0; token < step.total(); ++token)
      mask.push_back(!step.isHidden(row, token));
  return mask;
}

std::vector<int64_t> positions(const Step& step) {
  std::vector<int64_t> result;
  for (int64_t row = 0; row < step.batch; ++row) {
    int64_t seen = 0;
    for (int64_t token = 0; token < step.total(); ++token) {
      seen += !step.isHidden(row, token);
      if (token >= step.past)
        result.push_back(std::max<int64_t>(seen - 1, 0));
    }
  }
  return result;
}

/// Integers as the element type of an input.
Ref typed(Extents shape, std::vector<int64_t> values, ir::ElementType type, bool isToken = false) {
  auto result = std::make_shared<Tensor>();
  result->shape = std::move(shape);
  result->type = type;
  result->isToken = isToken;
  if (ir::isFloatingPoint(type)) {
    result->kind = Kind::Known;
    result->known.assign(values.begin(), values.end());
  } else {
    result->kind = Kind::Integer;
    result->integers = std::move(values);
  }
  return result;
}

} // namespace

bool Step::isHidden(int64_t row, int64_t token) const {
  const int64_t hidden = padding - (batch - 1 - row);
  if (hidden <= 0)
    return false;
  if (!padsRight)
    return token < hidden;
  return past == 0 ? token >= tokens - hidden : token >= 1 && token < 1 + hidden;
}

std::string Step::text() const {
  std::string result = "batch " + std::to_string(batch) + ", past " + std::to_string(past) + ", " +
                       std::to_string(tokens) + " new";
  if (padding)
    result += ", " + std::to_string(padding) + " hidden on the " + (padsRight ? "right" : "left");
  if (spare)
    result += ", " + std::to_string(spare) + " free";
  return result;
}

Ref arbitraryTensor(const Field& field, uint64_t name, const Extents& shape) {
  auto result = std::make_shared<Tensor>();
  result->shape = shape;
  const auto count = static_cast<uint64_t>(result->count());
  const uint64_t start = mixBits(name);
  result->reals.reserve(count);
  for (uint64_t i = 0; i < count; ++i)
    result->reals.push_back(field.arbitrary(start + i));
  return result;
}

void enter(Thresholds& thresholds, const Step& step) {
  thresholds.enter({step.batch, step.past, step.tokens, step.spare, otherExtent(step)},
                   step.padding > 0);
}

Feeding::Feeding(DrivenModel before, DrivenModel after)
    : original(before), second(after), caches(before, after) {
  bindSymbols();
}

namespace {

/// Whether a documented mask is of rows that are not the decoder's own, such as an encoder's.
bool isOfOtherRows(const ir::Value& input) {
  const ir::DocumentedInput* known = ir::documentedInput(input);
  return known && known->feed == InputFeed::VisibleKeys &&
         known->axes[known->rank - 1] == ir::DocumentedExtent::Other;
}

} // namespace

void Feeding::bindSymbols() {
  auto sizeOf = [](ir::DocumentedExtent extent) -> std::optional<Size> {
    switch (extent) {
    case ir::DocumentedExtent::Batch:
      return Size::Batch;
    case ir::DocumentedExtent::NewTokens:
      return Size::Tokens;
    case ir::DocumentedExtent::AllTokens:
      return Size::Total;
    case ir::DocumentedExtent::Other:
      break;
    }
    return std::nullopt;
  };
  auto bind = [&](const ir::Value& input, size_t axis, Size size) {
    if (!input.type().hasRank() || axis >= input.type().rank())
      return;
    const auto names = input.type().shape()[axis].symbols();
    if (names.size() == 1 && ir::Dim::symbol(names[0]) == input.type().shape()[axis])
      symbols.try_emplace(names[0], size);
  };
  for (const DrivenModel* side : {&original, &second})
    for (const auto& input : side->model.graph().inputs()) {
      if (const ir::DocumentedInput* known = ir::documentedInput(*input))
        for (unsigned axis = 0; axis < known->rank; ++axis)
          if (const auto size = sizeOf(known->axes[axis]))
            bind(*input, axis, *size);
      const CacheInput* known = cacheInput(side == &second, *input);
      const ir::ManifestCache* cache = known ? known->cache : nullptr;
      if (cache && cache->update() == ir::CacheUpdate::Grows && !cache->isOneBuffer() &&
          side == &original)
        bind(*input, static_cast<size_t>(cache->sequenceAxis), Size::Past);
      if (auto layout = cache ? cache->layout() : std::nullopt; layout && !layout->hasFoldedHeads())
        if (auto axis = layout->axisOf('B'))
          bind(*input, *axis, Size::Batch);
    }
}

std::optional<int64_t> Feeding::extentOf(const ir::Dim& dim, const Step& step) const {
  if (dim.isUnknown())
    return std::nullopt;
  return dim.evaluate([&](llvm::StringRef name) -> std::optional<int64_t> {
    auto known = symbols.find(name);
    if (known == symbols.end())
      return std::nullopt;
    switch (known->second) {
    case Size::Batch:
      return step.batch;
    case Size::Tokens:
      return step.tokens;
    case Size::Past:
      return step.past;
    case Size::Total:
      break;
    }
    return step.total();
  });
}

Ref Feeding::lengthInput(const ir::ManifestLength& length, ir::ElementType type, const Step& step) {
  auto value = ir::fedLength(length.feed, step.past, step.tokens);
  if (!value) {
    reason = "the input '" + length.input + "' is a table of blocks";
    return nullptr;
  }
  Extents shape;
  for (const ir::ManifestExtent& written : length.shape)
    shape.push_back(std::holds_alternative<int64_t>(written) ? std::get<int64_t>(written)
                                                             : step.batch);
  const auto count = static_cast<size_t>(std::max<int64_t>(elementCount(shape), 0));
  return typed(shape, std::vector<int64_t>(count, *value), type);
}

Ref Feeding::plainInput(const DrivenModel& side, const ir::Value& input, const Step& step,
                        Arithmetic& math) {
  const ir::ElementType type = input.type().elementType();
  auto extent = [&](const ir::ManifestExtent& written) -> int64_t {
    if (const auto* fixed = std::get_if<int64_t>(&written))
      return *fixed;
    const std::string& word = std::get<std::string>(written);
    if (word == "batch")
      return step.batch;
    if (word == "new")
      return step.tokens;
    if (word == "past")
      return step.past;
    if (word == "total")
      return step.total();
    return extentOf(ir::Dim::symbol(word), step).value_or(otherExtent(step));
  };
  for (const ir::ManifestLength& length : side.manifest.lengths)
    if (length.input == input.name())
      return lengthInput(length, type, step);
  Extents shape;
  InputFeed feed = InputFeed::Any;
  bool isDescribed = false;
  for (const ir::ManifestInput& described : side.manifest.inputs)
    if (described.input == input.name()) {
      feed = described.feed;
      isDescribed = true;
      for (const ir::ManifestExtent& written : described.shape)
        shape.push_back(extent(written));
    }
  if (!isDescribed) {
    const ir::DocumentedInput* known = ir::documentedInput(input);
    if (known)
      feed = known->feed;
    for (size_t i = 0; input.type().hasRank() && i < input.type().rank(); ++i)
      shape.push_back(known && known->axes[i] == ir::DocumentedExtent::AllTokens
                          ? step.total()
                          : extentOf(input.type().shape()[i], step).value_or(otherExtent(step)));
  }
  const int64_t count = elementCount(shape);
  if (count < 0) {
    reason = "the input '" + input.name().str() + "' is too large";
    return nullptr;
  }
  auto fits = [&](const std::vector<int64_t>& values) {
    return static_cast<int64_t>(values.size()) == count;
  };
  // A mask may have axes of extent 1 between batch and keys.
  auto repeated = [&](std::vector<int64_t> values) -> Ref {
    if (fits(values))
      return typed(shape, std::move(values), type);
    if (!shape.empty() && !values.empty() && count % static_cast<int64_t>(values.size()) == 0 &&
        step.batch == 1) {
      std::vector<int64_t> all;
      while (static_cast<int64_t>(all.size()) < count)
        all.insert(all.end(), values.begin(), values.end());
      return typed(shape, std::move(all), type);
    }
    reason = "the shape of the input '" + input.name().str() + "' does not fit its role";
    return nullptr;
  };
  switch (feed) {
  case InputFeed::Tokens: {
    std::vector<int64_t> ids;
    constexpr int64_t vocabulary = 31;
    for (int64_t i = 0; i < count; ++i)
      ids.push_back((i * 7 + 3 + 5 * step.past) % vocabulary);
    return typed(shape, std::move(ids), type, true);
  }
  case InputFeed::Positions:
    if (shape.size() == 1) {
      std::vector<int64_t> all(static_cast<size_t>(count));
      std::iota(all.begin(), all.end(), step.past);
      return typed(shape, std::move(all), type);
    }
    return repeated(positions(step));
  case InputFeed::VisibleKeys:
    if (isOfOtherRows(input))
      return typed(shape, std::vector<int64_t>(static_cast<size_t>(count), 1), type);
    return repeated(visibleKeys(step));
  case InputFeed::HiddenKeys: {
    std::vector<int64_t> values = visibleKeys(step);
    for (int64_t& value : values)
      value = !value;
    return repeated(std::move(values));
  }
  case InputFeed::BatchRows: {
    std::vector<int64_t> rows(static_cast<size_t>(count));
    std::iota(rows.begin(), rows.end(), 0);
    return typed(shape, std::move(rows), type);
  }
  case InputFeed::AdditiveMask:
  case InputFeed::Segments:
    reason = "the role of the input '" + input.name().str() + "' is not modelled";
    return nullptr;
  case InputFeed::Any:
    break;
  }
  if (ir::isFloatingPoint(type))
    return arbitraryTensor(math.field, nameHash(input.name()), shape);
  math.assumptions.insert("the input '" + input.name().str() + "' is " +
                          (type == ir::ElementType::Bool ? "whether there is a past" : "zero"));
  const int64_t value = type == ir::ElementType::Bool && step.past > 0;
  return typed(shape, std::vector<int64_t>(static_cast<size_t>(count), value), type);
}

std::string Feeding::gapOfInput(bool isAfter, const ir::Value& input) const {
  const DrivenModel& side = isAfter ? second : original;
  if (ir::isFloatingPoint(input.type().elementType()) || cacheInput(isAfter, input) ||
      llvm::any_of(side.manifest.lengths,
                   [&](const ir::ManifestLength& length) { return length.input == input.name(); }))
    return "";
  InputFeed feed = InputFeed::Any;
  const ir::DocumentedInput* known = ir::documentedInput(input);
  auto described = llvm::find_if(side.manifest.inputs, [&](const ir::ManifestInput& entry) {
    return entry.input == input.name();
  });
  if (described != side.manifest.inputs.end())
    feed = described->feed;
  else if (known)
    feed = known->feed;
  if (feed == InputFeed::Any)
    return "the role of the input '" + input.name().str() +
           "' is unknown, so that not all of its values are compared";
  if (feed == InputFeed::BatchRows)
    return "the input '" + input.name().str() + "' keeps the order of the rows of a batch";
  if (feed == InputFeed::VisibleKeys && isOfOtherRows(input))
    return "the input '" + input.name().str() + "' hides no position";
  return "";
}

std::optional<Extents> Feeding::historyShape(const ir::ManifestCache& cache, const Step& step) {
  Extents shape;
  const ir::Value* input = original.model.graph().findValue(cache.past);
  for (size_t i = 0; i < cache.shape.size(); ++i) {
    const ir::ManifestExtent& written = cache.shape[i];
    int64_t extent = otherExtent(step);
    if (const auto* fixed = std::get_if<int64_t>(&written))
      extent = *fixed;
    else if (input && input->type().hasRank() && i < input->type().rank())
      extent = extentOf(input->type().shape()[i], step).value_or(otherExtent(step));
    shape.push_back(extent);
  }
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

Ref Feeding::placed(const CacheInput& input, const Ref& rows, const Step& step) {
  const ir::Manifest& manifest = (input.isAfter ? second : original).manifest;
  const ir::ManifestCache& cache = *input.cache;
  const auto axis = static_cast<unsigned>(cache.sequenceAxis);
  Extents shape = rows->shape;
  if (axis >= shape.size())
    return rows;
  int64_t extent = 0, first = 0, last = step.past;
  bool isRing = false;
  switch (cache.update()) {
  case ir::CacheUpdate::Grows:
    if (!std::holds_alternative<ir::BufferCache>(cache.storage))
      return rows;
    extent = cache.fixedRows().value_or(step.total() + step.spare);
    break;
  case ir::CacheUpdate::Ring:
    if (!cache.fixedRows()) {
      reason = "the number of rows that the cache '" + cache.past + "' keeps is unknown";
      return nullptr;
    }
    extent = *cache.fixedRows();
    isRing = !caches.isSliding(cache);
    first = isRing ? std::max<int64_t>(0, step.past - extent) : step.past - extent;
    break;
  case ir::CacheUpdate::Blocks: {
    const auto block = static_cast<int64_t>(input.block);
    first = block * manifest.blockSize;
    last = std::min(step.past, first + manifest.blockSize);
    if (first > last)
      first = last;
    if (manifest.variants.empty())
      return rowsOf(rows, axis, first, last);
    extent = manifest.blockSize;
    if (manifest.capacityValue)
      extent = std::min(extent, *manifest.capacityValue - block * manifest.blockSize);
    if (step.past > block * manifest.blockSize)
      first = block * manifest.blockSize;
    break;
  }
  default:
    return rows;
  }
  if (last - first > extent) {
    reason = "the cache '" + cache.past + "' has no room for its rows";
    return nullptr;
  }
  shape[axis] = extent;
  if (elementCount(shape) < 0) {
    reason = "the cache '" + cache.past + "' is too large";
    return nullptr;
  }
  const Extents rowStrides = stridesOf(rows->shape);
  std::vector<int64_t> places;
  forEachPlace(shape, [&](llvm::ArrayRef<int64_t> place) {
    int64_t row = first + place[axis];
    if (isRing) // the last row in this place
      row = first + ((place[axis] - first) % extent + extent) % extent;
    if (row < 0 || row >= last) {
      places.push_back(-1 - static_cast<int64_t>(places.size()));
      return;
    }
    int64_t at = 0;
    for (size_t i = 0; i < place.size(); ++i)
      at += (i == axis ? row : place[i]) * rowStrides[i];
    places.push_back(rows->integers[static_cast<size_t>(at)]);
  });
  return integerTensor(shape, std::move(places));
}

Ref Feeding::asSecond(const ir::ManifestCache& cache, const Ref& tensor) const {
  Ref result = tensor;
  if (cache.part) {
    const ir::ManifestPart& part = *cache.part;
    Extents shape, offsets;
    size_t own = 0;
    for (size_t i = 0; i < result->shape.size(); ++i) {
      const bool isDropped = llvm::is_contained(part.dropped, static_cast<int64_t>(i));
      const int64_t first = i < part.first.size() ? part.first[i] : 0;
      int64_t extent = result->shape[i] - first;
      if (!isDropped) {
        const size_t mine =
            cache.permutation.empty()
                ? own
                : static_cast<size_t>(llvm::find(cache.permutation, static_cast<int64_t>(own)) -
                                      cache.permutation.begin());
        if (mine < cache.shape.size() && std::holds_alternative<int64_t>(cache.shape[mine]) &&
            static_cast<int64_t>(mine) != cache.sequenceAxis)
          extent = std::get<int64_t>(cache.shape[mine]);
        ++own;
        shape.push_back(extent);
      }
      result = rowsOf(result, unsigned(i), first, isDropped ? first + 1 : first + extent);
    }
    result = reshaped(result, shape);
  }
  return cache.permutation.empty() ? result : transposed(result, cache.permutation);
}

Ref Feeding::cachePlaces(const CacheInput& input, const Step& step) {
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
  return placed(input, input.isAfter ? asSecond(*input.cache, rows) : rows, step);
}

Ref Feeding::contents(bool isAfter, const ir::Value& input, const Step& step, Arithmetic& math) {
  const CacheInput* known = cacheInput(isAfter, input);
  if (!known)
    return plainInput(isAfter ? second : original, input, step, math);
  const Ref places = cachePlaces(*known, step);
  if (!places)
    return nullptr;
  const uint64_t rows = mixBits(nameHash(known->history->past) + static_cast<uint64_t>(step.past));
  const uint64_t unwritten = mixBits(nameHash(known->name + " poison"));
  auto result = std::make_shared<Tensor>();
  result->shape = places->shape;
  for (int64_t place : places->integers)
    result->reals.push_back(math.field.arbitrary(place >= 0 ? rows + static_cast<uint64_t>(place)
                                                            : unwritten + uint64_t(-1 - place)));
  return result;
}

std::optional<CachedRows> Feeding::rowsIn(const ir::ManifestCache& cache, const Ref& present,
                                          const Step& step) const {
  const auto axis = static_cast<unsigned>(cache.sequenceAxis);
  if (axis >= present->shape.size())
    return std::nullopt;
  const int64_t extent = present->shape[axis];
  switch (cache.update()) {
  case ir::CacheUpdate::Grows:
    if (cache.givesNewRows())
      return CachedRows{present, step.past};
    if (extent < step.total())
      return std::nullopt;
    return CachedRows{rowsOf(present, axis, 0, step.total()), 0};
  case ir::CacheUpdate::Blocks:
    return CachedRows{present, step.past};
  case ir::CacheUpdate::Ring: {
    if (extent == 0)
      return std::nullopt;
    const int64_t first = std::max<int64_t>(0, step.total() - extent);
    if (caches.isSliding(cache))
      return CachedRows{rowsOf(present, axis, extent - (step.total() - first), extent), first};
    Extents shape = present->shape;
    shape[axis] = step.total() - first;
    const Extents strides = stridesOf(present->shape);
    return CachedRows{rearranged(present, shape,
                                 [&](llvm::ArrayRef<int64_t> place) {
                                   int64_t at = 0;
                                   for (size_t i = 0; i < place.size(); ++i)
                                     at += (i == axis ? (first + place[i]) % extent : place[i]) *
                                           strides[i];
                                   return at;
                                 }),
                      first};
  }
  default:
    return CachedRows{present, -1};
  }
}

std::optional<CachedRows> Feeding::beforeRows(const Pair& pair, const Ref& present,
                                              const Step& step) const {
  auto rows = rowsIn(*pair.before, present, step);
  if (rows)
    rows->rows = asSecond(*pair.after, rows->rows);
  return rows;
}

std::optional<CachedRows> Feeding::afterRows(const Pair& pair, const Ref& present,
                                             const Step& step) const {
  return rowsIn(*pair.after, present, step);
}

} // namespace kvopt::check
