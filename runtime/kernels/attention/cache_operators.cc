// ai.kvopt's attention operators over caches. ir/ops/kvopt/cache_operators.cc defines their results
// and the rounding of rows. Int8 rows without scales are plain numbers.
//
// Rows of codes are converted where they are used: scores are multiplied by the scale of the key's
// row, weights by that of the value's. Four-bit codes become rows of int8 a tile at a time. Codes
// without kernels of their own become numbers first.
// Everything is checked before the first byte is written: after an error the caches are what they
// were.
#include "runtime/attention/cache_stores.h"

#include <array>
#include <utility>

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

llvm::Error attendToCaches(KernelContext& context, CacheOperator op) {
  if (op.isInBlocks())
    return attendInBlocks(context, op);
  if (op.hasCodes())
    if (const RowCode* code = rowCodeOf(context.in(op.past(0)).element))
      op.code = code;
  return op.isRing() ? attendInRing(context, op) : attendInBuffer(context, op);
}

// A kernel is a function without parameters for the operator, so each operator has its own
// function, selected by number.

size_t indexOf(const CacheOperator& op) {
  return static_cast<size_t>(op.place) * 4 + (op.hasCodes() ? 2 : 0) + (op.isLatent() ? 1 : 0);
}

constexpr CacheOperator combination(size_t index) {
  return {static_cast<CachePlace>(index / 4), index / 2 % 2 == 0 ? nullptr : &int8Rows,
          index % 2 == 0 ? CacheSharing::KeysAndValues : CacheSharing::Latent};
}

template <size_t index> llvm::Error attendAs(KernelContext& context) {
  return attendToCaches(context, combination(index));
}

template <size_t... index>
constexpr std::array<KernelFunction, sizeof...(index)> kernelsOf(std::index_sequence<index...>) {
  return {attendAs<index>...};
}

constexpr auto cacheKernels = kernelsOf(std::make_index_sequence<12>());

} // namespace

void register_cache_operators(KernelRegistry& registry) {
  for (const CacheOperator& op : CacheOperator::all())
    registry.add(op.name(), 1, cacheKernels[indexOf(op)]).acceptsStrides = op.isInBlocks();
}

} // namespace kvopt::kernels
