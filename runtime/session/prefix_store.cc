// Chains of blocks.
#include "runtime/session/prefix_store.h"

#include "runtime/cache/checksum.h"
#include "runtime/memory/buffer.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"

#include <span>

namespace kvopt::runtime {
using namespace ir;

/// Rows of every cache, [.., blockTokens, ..] in the order of the exported axes.
struct PrefixStore::Block {
  uint64_t number = 0; ///< starts at 1; never reused
  Place place;
  std::vector<Tensor> rows;
  int64_t bytes = 0;
};

namespace {

llvm::Error checkCaches(const CacheState& caches) {
  if (caches.batch() != 1)
    return usageError("prefixes are of single sequences, not of a batch of {}", caches.batch());
  for (size_t i = 0; i < caches.size(); ++i) {
    const ManifestCache& cache = caches.info(i);
    if (cache.update() != CacheUpdate::Grows && cache.update() != CacheUpdate::Blocks)
      return usageError("cache '{}' does not hold a row for each token", cache.past);
  }
  if (caches.size() == 0)
    return usageError("the model has no caches");
  return llvm::Error::success();
}

llvm::Expected<std::vector<Tensor>> exportedRowsOf(const CacheState& caches) {
  std::vector<Tensor> all;
  for (size_t i = 0; i < caches.size(); ++i) {
    auto rows = caches.exportedRows(i);
    if (!rows)
      return rows.takeError();
    all.push_back(std::move(*rows));
  }
  return all;
}

template <typename T> std::span<const std::byte> bytesOf(const T& elements) {
  return std::as_bytes(std::span(elements.data(), elements.size()));
}

} // namespace

PrefixStore::~PrefixStore() = default;

size_t PrefixStore::PlaceHash::operator()(const Place& place) const {
  Checksum checksum;
  checksum.add(std::as_bytes(std::span(&place.before, 1)));
  checksum.add(bytesOf(place.model));
  checksum.add(std::as_bytes(std::span(&place.context, 1)));
  checksum.add(bytesOf(place.tokens));
  return checksum.value();
}

PrefixStore::Place PrefixStore::placeOf(const CacheState& caches, llvm::ArrayRef<int64_t> tokens,
                                        size_t index, uint64_t before, uint64_t context) const {
  const auto count = static_cast<size_t>(options.blockTokens);
  Place place;
  place.before = before;
  if (before == 0) {
    place.model = caches.fingerprint();
    place.context = context;
  }
  place.tokens = tokens.slice(index * count, count).vec();
  return place;
}

std::vector<std::shared_ptr<const PrefixStore::Block>>
PrefixStore::find(const CacheState& caches, llvm::ArrayRef<int64_t> tokens, uint64_t context) {
  std::vector<std::shared_ptr<const Block>> found;
  const size_t count = tokens.size() / static_cast<size_t>(options.blockTokens);
  while (found.size() < count) {
    const uint64_t before = found.empty() ? 0 : found.back()->number;
    const auto known = places.find(placeOf(caches, tokens, found.size(), before, context));
    if (known == places.end())
      break;
    found.push_back(*known->second);
  }
  // The first block of the chain is marked as most recently used, so that later blocks are evicted
  // before it.
  for (const std::shared_ptr<const Block>& block : llvm::reverse(found))
    recent.splice(recent.begin(), recent, places.at(block->place));
  return found;
}

bool PrefixStore::insert(const std::shared_ptr<const Block>& block, const Block* before) {
  auto at = recent.begin();
  if (before) {
    const auto known = places.find(before->place);
    if (known == places.end())
      return false;
    at = std::next(known->second);
  }
  counters.bytes += block->bytes;
  ++counters.blocks;
  places.emplace(block->place, recent.insert(at, block));
  while (counters.bytes > options.mostBytes) {
    counters.bytes -= recent.back()->bytes;
    --counters.blocks;
    ++counters.evicted;
    places.erase(recent.back()->place);
    recent.pop_back();
  }
  return true;
}

llvm::Error PrefixStore::keep(const CacheState& caches, llvm::ArrayRef<int64_t> tokens,
                              uint64_t context) {
  if (llvm::Error error = checkCaches(caches))
    return error;
  if (static_cast<int64_t>(tokens.size()) > caches.length())
    return usageError("{} tokens, but the session has seen only {}", tokens.size(),
                      caches.length());
  if (static_cast<int64_t>(tokens.size()) > caches.intactTokens())
    return usageError("{} tokens, but only the rows of the first {} are unchanged: later tokens "
                      "were dropped",
                      tokens.size(), caches.intactTokens());
  const size_t count = tokens.size() / static_cast<size_t>(options.blockTokens);
  (void)caches.fingerprint(); // computed once, before the lock
  size_t known = 0;
  {
    const std::lock_guard<std::mutex> lock(guard);
    known = find(caches, tokens, context).size();
  }
  // Rows are copied while other threads use the store.
  std::vector<std::shared_ptr<Block>> fresh;
  auto held = known < count ? exportedRowsOf(caches) : std::vector<Tensor>();
  if (!held)
    return held.takeError();
  const auto allocator = std::make_shared<Allocator>();
  for (size_t index = known; index < count; ++index) {
    auto block = std::make_shared<Block>();
    const int64_t first = static_cast<int64_t>(index) * options.blockTokens;
    for (size_t i = 0; i < caches.size(); ++i) {
      auto rows =
          Tensor::copyOf(allocator, sliceAxis((*held)[i].view, caches.exportedSequenceAxis(i),
                                              first, first + options.blockTokens));
      if (!rows)
        return rows.takeError();
      block->bytes += rows->view.byteSize();
      block->rows.push_back(std::move(*rows));
    }
    fresh.push_back(std::move(block));
  }
  const std::lock_guard<std::mutex> lock(guard);
  std::vector<std::shared_ptr<const Block>> chain = find(caches, tokens, context);
  // Some of the blocks that were found first may have been evicted.
  for (size_t index = chain.size(); index >= known && index < count; ++index) {
    std::shared_ptr<Block>& block = fresh[index - known];
    if (block->bytes > options.mostBytes)
      break;
    const Block* before = chain.empty() ? nullptr : chain.back().get();
    block->place = placeOf(caches, tokens, index, before ? before->number : 0, context);
    block->number = ++lastNumber;
    if (!insert(block, before))
      break;
    chain.push_back(block);
  }
  return llvm::Error::success();
}

llvm::Expected<int64_t> PrefixStore::restore(CacheState& caches, llvm::ArrayRef<int64_t> tokens,
                                             uint64_t context) {
  if (llvm::Error error = checkCaches(caches))
    return error;
  if (caches.length() != 0)
    return usageError("the session holds {} tokens already", caches.length());
  if (tokens.empty())
    return 0;
  (void)caches.fingerprint(); // computed once, before the lock
  std::vector<std::shared_ptr<const Block>> chain;
  {
    const std::lock_guard<std::mutex> lock(guard);
    const llvm::ArrayRef<int64_t> wanted = tokens.drop_back();
    chain = find(caches, wanted, context);
    counters.hits += static_cast<int64_t>(chain.size());
    counters.misses += static_cast<int64_t>(wanted.size()) / options.blockTokens -
                       static_cast<int64_t>(chain.size());
  }
  if (chain.empty())
    return 0;
  const int64_t count = static_cast<int64_t>(chain.size()) * options.blockTokens;
  std::vector<Tensor> joined;
  std::vector<NamedView> seeds;
  for (size_t i = 0; i < caches.size(); ++i) {
    const unsigned axis = caches.exportedSequenceAxis(i);
    const TensorView& first = chain.front()->rows[i].view;
    Extents shape = first.shape;
    shape[axis] = count;
    auto rows = Tensor::create(caches.allocator(), first.element, shape);
    if (!rows)
      return rows.takeError();
    for (size_t index = 0; index < chain.size(); ++index) {
      const int64_t at = static_cast<int64_t>(index) * options.blockTokens;
      copyElements(chain[index]->rows[i].view,
                   sliceAxis(rows->view, axis, at, at + options.blockTokens));
    }
    joined.push_back(std::move(*rows));
    seeds.push_back({caches.info(i).past, joined.back().view});
  }
  if (llvm::Error error = caches.seed(seeds, count, SeedOrigin::ThisModel))
    return error;
  return count;
}

PrefixStoreStatistics PrefixStore::statistics() const {
  const std::lock_guard<std::mutex> lock(guard);
  return counters;
}

} // namespace kvopt::runtime
