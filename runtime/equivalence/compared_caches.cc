// Pairs of caches, and of caches with their parts.
#include "runtime/equivalence/compared_caches.h"

#include "runtime/session/cache_part.h"
#include "runtime/session/ring_rows.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

#include <utility>

namespace kvopt::runtime {
using namespace ir;

std::vector<CachePair> pairCaches(const Session& a, const Session& b) {
  std::vector<CachePair> pairs;
  const auto add = [&](size_t i, auto isWanted) {
    const size_t before = pairs.size();
    for (size_t j = 0; j < b.cacheCount(); ++j)
      if (isWanted(b.cacheInfo(j)) &&
          b.cacheInfo(j).holdsAttendedRows == a.cacheInfo(i).holdsAttendedRows)
        pairs.push_back({i, j});
    return pairs.size() > before;
  };
  for (size_t i = 0; i < a.cacheCount(); ++i) {
    const ManifestCache& wanted = a.cacheInfo(i);
    if (add(i, [&](const ManifestCache& cache) { return cache.past == wanted.past; }) ||
        add(i, [&](const ManifestCache& cache) {
          return isPartOf(cache, wanted) || isPartOf(wanted, cache);
        }))
      continue;
    bool isFound = false;
    add(i, [&](const ManifestCache& cache) {
      const bool isAlike = cache.layer == wanted.layer && cache.role == wanted.role;
      return isAlike && !std::exchange(isFound, true);
    });
  }
  return pairs;
}

llvm::Expected<TensorView> comparedRows(const Session& session, size_t index,
                                        std::optional<int64_t> count, const ManifestCache& other,
                                        Tensor& storage) {
  auto taken =
      count ? lastRowsInOrder(session.caches(), index, *count) : session.exportedCacheRows(index);
  if (!taken)
    return taken.takeError();
  storage = std::move(*taken);
  const TensorView& view = storage.view;
  if (!isPartOf(other, session.cacheInfo(index)))
    return view;
  auto part = viewOfPart(view, other);
  if (!part)
    return invalid("cache '{}' has no part {}", session.cacheInfo(index).past,
                   other.part->text(other.part->past));
  return *part;
}

namespace {

/// Whether every cache with rows has a counterpart. Rows that only one model has cannot be made
/// equal.
bool haveAllCounterparts(const Session& a, const Session& b, llvm::ArrayRef<CachePair> pairs) {
  const auto isAlone = [&](const Session& session, size_t index, auto side) {
    return session.cacheInfo(index).update() != CacheUpdate::State &&
           llvm::none_of(pairs, [&](const CachePair& pair) { return pair.*side == index; });
  };
  for (size_t i = 0; i < a.cacheCount(); ++i)
    if (isAlone(a, i, &CachePair::first))
      return false;
  for (size_t i = 0; i < b.cacheCount(); ++i)
    if (isAlone(b, i, &CachePair::second))
      return false;
  return true;
}

} // namespace

llvm::Error presetAlike(Session& a, Session& b, int64_t tokens) {
  const std::vector<CachePair> pairs = pairCaches(a, b);
  if (!haveAllCounterparts(a, b, pairs))
    return unsupported("rows cannot be made up: the two models keep different rows");
  bool isSplitInA = false, isSplitInB = false, areNamedAlike = true;
  for (const auto& [first, second] : pairs) {
    const ManifestCache& ofA = a.cacheInfo(first);
    const ManifestCache& ofB = b.cacheInfo(second);
    isSplitInA |= isPartOf(ofA, ofB);
    isSplitInB |= isPartOf(ofB, ofA);
    areNamedAlike &= ofA.past == ofB.past;
  }
  if (isSplitInA && isSplitInB)
    return unsupported("each of the two models has a part of a cache of the other");
  Session& wholes = isSplitInA ? b : a;
  Session& parts = isSplitInA ? a : b;
  if (llvm::Error error = wholes.preset(tokens))
    return error;
  if (areNamedAlike)
    return parts.preset(tokens);
  std::vector<NamedView> rows;
  std::vector<Tensor> kept; // owners of the views
  llvm::StringSet<> known;
  for (const CachePair& pair : pairs) {
    const size_t whole = isSplitInA ? pair.second : pair.first;
    const ManifestCache& part = parts.cacheInfo(isSplitInA ? pair.first : pair.second);
    const bool isPart = isPartOf(part, wholes.cacheInfo(whole));
    const std::string& name = isPart ? part.part->past : part.past;
    if (!known.insert(name).second)
      continue;
    auto exported = wholes.exportedCacheRows(whole);
    if (!exported)
      return exported.takeError();
    rows.push_back({name, exported->view});
    kept.push_back(std::move(*exported));
  }
  return parts.seed(rows, tokens);
}

} // namespace kvopt::runtime
