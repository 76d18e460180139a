// Follows every head of keys or values separately.
#include "passes/analysis/movement/head_map.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <numeric>

namespace kvopt::analysis {
using namespace ir;
using namespace pattern;

namespace {

constexpr unsigned maxNodes = 16;
constexpr int64_t maxHeads = 512;
constexpr unsigned headAxis = 1;

/// A tensor that holds one head.
struct Stop {
  Value* value;
  IndexMap map;
  llvm::SmallVector<Node*, 2> pointwise;
};

std::vector<Stop> stopsOf(Value& heads, int64_t head) {
  std::vector<Stop> stops;
  stops.push_back({&heads, IndexMap::ofPart(heads.type().shape(), headAxis, head), {}});
  for (unsigned passed = 0; passed < maxNodes; ++passed) {
    Stop next = stops.back();
    Node* node = next.value->producer();
    if (!node)
      break;
    if (next.map.through(*node, next.value->resultIndex())) {
      next.value = movedOperand(*node);
    } else if (std::optional<unsigned> part = next.map.throughPartOf(*node)) {
      next.value = node->operand(*part);
    } else {
      Value* changed = pointwiseOperand(*node);
      if (!changed || !changed->type().hasRank() ||
          changed->type().rank() != next.value->type().rank())
        break;
      next.pointwise.push_back(node);
      next.value = changed;
    }
    stops.push_back(std::move(next));
  }
  return stops;
}

/// The tensor of `first`, which holds one head, as the source of all heads.
std::optional<HeadMap> mapAt(const Stop& first, llvm::ArrayRef<std::vector<Stop>> others) {
  auto part = first.map.part(headAxis);
  if (!part)
    return std::nullopt;
  const Dim& groups = first.value->type().shape()[part->perm[headAxis]];
  if (!groups.value())
    return std::nullopt;
  HeadMap found{{first.value, groups, {}, first.pointwise}, {part->index}};
  for (const std::vector<Stop>& stops : others) {
    auto stop = llvm::find_if(stops, [&](const Stop& other) { return other.value == first.value; });
    if (stop == stops.end() || stop->pointwise != first.pointwise)
      return std::nullopt;
    auto otherPart = stop->map.part(headAxis);
    if (!otherPart || otherPart->perm != part->perm)
      return std::nullopt;
    found.groupOf.push_back(otherPart->index);
  }
  for (unsigned axis : part->perm)
    found.source.shape.shape.push_back(first.value->type().shape()[axis]);
  found.source.shape.perm = std::move(part->perm);
  return found;
}

/// The furthest map with the table of `map` that is [B,groups,T,D] already, so that no movement is
/// added; `map` itself if there is none.
const HeadMap& easiest(llvm::ArrayRef<HeadMap> maps, const HeadMap& map) {
  for (const HeadMap& other : llvm::reverse(maps))
    if (other.source.isDirect() && other.groupOf == map.groupOf &&
        other.source.groups.isKnownEqual(map.source.groups))
      return other;
  return map;
}

bool isAscending(llvm::ArrayRef<int64_t> numbers) {
  for (size_t i = 0; i < numbers.size(); ++i)
    if (numbers[i] != static_cast<int64_t>(i))
      return false;
  return true;
}

/// The table of `queryHeads` heads that read those of `map` in groups.
std::optional<llvm::SmallVector<int64_t, 16>> readBy(const HeadMap& map, int64_t queryHeads) {
  auto heads = static_cast<int64_t>(map.groupOf.size());
  if (heads == 0 || queryHeads % heads != 0 || queryHeads > maxHeads)
    return std::nullopt;
  llvm::SmallVector<int64_t, 16> table;
  for (int64_t head = 0; head < queryHeads; ++head)
    table.push_back(map.groupOf[static_cast<size_t>(head / (queryHeads / heads))]);
  return table;
}

/// Whether every group is read, and all equally often.
bool isBalanced(llvm::ArrayRef<int64_t> table, int64_t groups) {
  auto heads = static_cast<int64_t>(table.size());
  if (groups <= 0 || heads % groups != 0)
    return false;
  std::vector<int64_t> readers(static_cast<size_t>(groups), 0);
  for (int64_t group : table) {
    if (group < 0 || group >= groups)
      return false;
    ++readers[static_cast<size_t>(group)];
  }
  return llvm::all_of(readers, [&](int64_t count) { return count == heads / groups; });
}

std::string printed(llvm::ArrayRef<int64_t> table) {
  constexpr size_t mostPrinted = 16;
  std::string text;
  for (int64_t group : table.take_front(mostPrinted))
    text += (text.empty() ? "" : ",") + std::to_string(group);
  return table.size() > mostPrinted ? text + ",…" : text;
}

/// The furthest source in which heads are repeated or reordered; null if there is none.
const HeadMap* furthestReordered(llvm::ArrayRef<HeadMap> maps) {
  for (const HeadMap& map : llvm::reverse(maps)) {
    bool isWhole = true;
    for (int64_t group = 0; group < *map.source.groups.value(); ++group)
      isWhole &= llvm::is_contained(map.groupOf, group);
    if (isWhole && !map.isIdentity())
      return &map;
  }
  return nullptr;
}

std::optional<MatchFailure> unbalanced(llvm::ArrayRef<HeadMap> keys, llvm::ArrayRef<HeadMap> values,
                                       int64_t queryHeads, const Value& at) {
  const HeadMap* ofKeys = furthestReordered(keys);
  const HeadMap* ofValues = furthestReordered(values);
  if (!ofKeys && !ofValues)
    return std::nullopt;
  const HeadMap& keyMap = ofKeys ? *ofKeys : keys.front();
  const HeadMap& valueMap = ofValues ? *ofValues : values.front();
  auto ofQueries = readBy(keyMap, queryHeads);
  auto alsoRead = readBy(valueMap, queryHeads);
  // If the tables belong to unequal caches, one of the two was not followed to the end.
  if (!ofQueries || !alsoRead || !keyMap.source.groups.isKnownEqual(valueMap.source.groups))
    return std::nullopt;
  return MatchFailure{ReasonCode::HeadsNotGrouped, at.name().str(),
                      "every key head, with its value head, read by the same number of query heads",
                      "query heads that read key heads " + printed(*ofQueries) +
                          " and value heads " + printed(*alsoRead),
                      ""};
}

} // namespace

bool HeadMap::isIdentity() const {
  return source.groups.value() == static_cast<int64_t>(groupOf.size()) && isAscending(groupOf);
}

bool HeadGrouping::keepsOrder() const { return isAscending(order); }

std::vector<HeadMap> headMaps(Value& heads) {
  std::vector<HeadMap> maps;
  const TensorType& type = heads.type();
  std::optional<int64_t> count =
      type.hasRank() && type.rank() == 4 ? type.dim(headAxis).value() : std::nullopt;
  if (!count || *count <= 0 || *count > maxHeads)
    return maps;
  std::vector<Stop> first = stopsOf(heads, 0);
  std::vector<std::vector<Stop>> others;
  if (first.size() > 1)
    for (int64_t head = 1; head < *count; ++head)
      others.push_back(stopsOf(heads, head));
  if (first.size() == 1) {
    HeadMap itself{{&heads, type.dim(headAxis), {}, {}}, {}};
    itself.groupOf.resize(static_cast<size_t>(*count));
    std::iota(itself.groupOf.begin(), itself.groupOf.end(), 0);
    itself.source.shape.shape.assign(type.shape().begin(), type.shape().end());
    itself.source.shape.perm = {0, 1, 2, 3};
    maps.push_back(std::move(itself));
    return maps;
  }
  for (const Stop& stop : first)
    if (std::optional<HeadMap> map = mapAt(stop, others))
      maps.push_back(std::move(*map));
  return maps;
}

std::optional<HeadGrouping> groupHeads(const Value& query, Value& keys, Value& values,
                                       std::optional<MatchFailure>& failure) {
  std::optional<int64_t> heads = query.type().dim(headAxis).value();
  if (!heads)
    return std::nullopt;
  std::vector<HeadMap> keyMaps = headMaps(keys), valueMaps = headMaps(values);
  if (keyMaps.empty() || valueMaps.empty())
    return std::nullopt;
  for (const HeadMap& ofKeys : llvm::reverse(keyMaps))
    for (const HeadMap& ofValues : llvm::reverse(valueMaps)) {
      std::optional<int64_t> groups = ofKeys.source.groups.value();
      if (groups != ofValues.source.groups.value() ||
          (ofKeys.isIdentity() && ofValues.isIdentity()))
        continue;
      auto table = readBy(ofKeys, *heads);
      if (!table || !isBalanced(*table, *groups) || table != readBy(ofValues, *heads))
        continue;
      HeadGrouping grouping{
          easiest(keyMaps, ofKeys).source, easiest(valueMaps, ofValues).source, {}};
      grouping.order.resize(table->size());
      std::iota(grouping.order.begin(), grouping.order.end(), 0);
      std::stable_sort(grouping.order.begin(), grouping.order.end(), [&](int64_t a, int64_t b) {
        return (*table)[static_cast<size_t>(a)] < (*table)[static_cast<size_t>(b)];
      });
      return grouping;
    }
  failure = unbalanced(keyMaps, valueMaps, *heads, keys);
  return std::nullopt;
}

} // namespace kvopt::analysis
