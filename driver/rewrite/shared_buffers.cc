// Declaration of shared buffers.
#include "driver/rewrite/shared_buffers.h"

#include "ir/op_name.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::driver {
using namespace ir;

namespace {

constexpr const char* sharingOperator = "com.microsoft::GroupQueryAttention";
constexpr const char* capacitySymbol = "capacity";

struct SharedCache {
  Value* past = nullptr;
  Value* present = nullptr;
};

/// The values of a cache; nullopt unless past and present are operands and results of a single
/// GroupQueryAttention and have no other uses.
std::optional<SharedCache> sharedCacheOf(const Graph& graph, const ManifestCache& cache) {
  constexpr unsigned firstPast = 3;
  Value* past = graph.findValue(cache.past);
  Value* present = graph.findValue(cache.present);
  if (!past || !present || !past->isGraphInput() || !present->isGraphOutput() ||
      !past->hasOneUse() || cache.update() != CacheUpdate::Grows || !past->type().hasRank() ||
      !present->type().hasRank())
    return std::nullopt;
  Node& node = past->uses().begin()->user();
  if (node.op() != OpName(sharingOperator) || present->producer() != &node)
    return std::nullopt;
  for (unsigned i = 0; i < 2; ++i)
    if (node.operand(firstPast + i) == past && node.results().size() > i + 1 &&
        &node.result(i + 1) == present)
      return SharedCache{past, present};
  return std::nullopt;
}

void declare(Value& value, unsigned axis, const Dim& rows) {
  TensorType type = value.type();
  Shape shape(type.shape().begin(), type.shape().end());
  shape[axis] = rows;
  type.setShape(std::move(shape));
  value.setType(std::move(type));
}

bool hasCapacity(const Value& value) {
  return value.type().hasRank() && llvm::any_of(value.type().shape(), [](const Dim& extent) {
           return llvm::is_contained(extent.symbols(), capacitySymbol);
         });
}

} // namespace

bool wantsSharedBuffers(const RewriteRequest& request,
                        const std::map<std::string, int64_t>& attention) {
  return request.form == Form{Engine::Ort, CacheKind::Buffer} && !request.addCaches &&
         !request.freeExtents && !request.oneBranch && request.padding == PaddedRows::Any &&
         request.layers.empty() && request.disabled.empty() && attention.size() == 1 &&
         attention.begin()->first == sharingOperator;
}

bool shareBuffers(Graph& graph, Manifest& manifest, std::optional<int64_t> capacity) {
  llvm::SmallVector<SharedCache, 32> caches;
  for (const ManifestCache& cache : manifest.caches) {
    const auto shared = sharedCacheOf(graph, cache);
    if (!shared)
      return false;
    caches.push_back(*shared);
  }
  if (caches.empty() ||
      llvm::any_of(graph.inputs(), [](const auto& input) { return hasCapacity(*input); }))
    return false;
  const Dim rows = capacity ? Dim::fixed(*capacity) : Dim::symbol(capacitySymbol);
  for (size_t i = 0; i < caches.size(); ++i) {
    ManifestCache& cache = manifest.caches[i];
    const auto axis = static_cast<size_t>(cache.sequenceAxis);
    declare(*caches[i].past, static_cast<unsigned>(axis), rows);
    declare(*caches[i].present, static_cast<unsigned>(axis), rows);
    cache.storage = inOneBuffer(cache.storage);
    if (capacity)
      cache.shape[axis] = *capacity;
    else
      cache.shape[axis] = std::string(capacitySymbol);
  }
  manifest.contract = CacheUpdate::InPlace;
  manifest.capacitySymbol = capacitySymbol;
  manifest.capacityValue = capacity;
  return true;
}

} // namespace kvopt::driver
