// Attention of few query rows over keys in rows. K and V are read once for all queries of a
// key/value head, while the next rows are prefetched. A long past is divided into segments that run
// simultaneously. The last one to finish merges them, always in the same order.
#include "runtime/simd/attention/attention_block.h"
#include "runtime/simd/attention/attention_kernel.h"
#include "runtime/simd/attention/decode_keys.h"
#include "runtime/simd/attention/decode_order.h"
#include "runtime/simd/attention/decode_segments.h"
#include "runtime/simd/attention/decode_targets.h"

#include <algorithm>

// Highway compiles this file once per SIMD target: foreach_target.h includes it repeatedly with
// another HWY_NAMESPACE; the part under HWY_ONCE, at the end, is compiled once.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/simd/attention/kernels/decode.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "runtime/simd/attention/decode_rows-inl.h"
#include "runtime/simd/attention/decode_straight-inl.h"
#include "runtime/simd/attention/decode_turns-inl.h"
#include "runtime/simd/attention/softmax-inl.h"
#include "runtime/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvopt::simd::HWY_NAMESPACE {
namespace {

/// Whether rows of four-bit codes are read directly: separate keys and values, whole groups in each
/// run.
[[maybe_unused]] inline bool readsFourBitRows(const AttentionView& view) {
  constexpr int64_t kRun = 64;
  const auto* keys = static_cast<const std::byte*>(view.key);
  const auto* values = static_cast<const std::byte*>(view.value);
  const bool areApart = values < keys || values >= keys + view.keyStrides.row;
  return view.codeForm == CodeForm::fourBitRows && areApart && view.keyWidth % kRun == 0 &&
         view.valueWidth % kRun == 0;
}

} // namespace

/// Packs the queries and attends to `range`, a part of the keys that the block sees. The sink is
/// only included with `withSink`. `following` is probably read next.
void attendRange(const AttentionBlock& block, KeyRange range, bool withSink,
                 const LocatedKeys& following) {
  packQueries(block, [&](int64_t query) { return packedPlace(block, query); });
  startRows(block, withSink);
  if (block.view.isQuantized()) {
    AttentionBlock quantized = block;
    const bool isStraight = decodesStraight(block.view, kHas512Bits);
    if (isStraight || !writeDigits(block))
      quantized.digits = nullptr;
    if constexpr (kReadsFourBitRows)
      if (readsFourBitRows(block.view) && (isStraight || quantized.digits))
        return attendFourBitKeys(quantized, range, following);
    return attendInt8Keys(quantized, range, following);
  }
  switch (block.view.cacheStorage) {
  case FloatStorage::f32:
    return attendF32Keys(block, range, following);
  case FloatStorage::f16:
    return attendF16Keys(block, range, following);
  case FloatStorage::bf16:
    return attendBf16Keys(block, range, following);
  }
}

void storeBlock(const AttentionBlock& block) { storeOutput(block); }

} // namespace kvopt::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvopt::simd {

HWY_EXPORT(attendRange);
HWY_EXPORT(storeBlock);

namespace {

/// Number of query rows from which on this kernel is not used, independently of the heads that
/// share a key/value head: the kernel of a step, and therefore its bits, must not depend on whether
/// a model repeats its heads.
constexpr int64_t kFewRows = 8;
/// With more rows, the number of queries must be below this.
constexpr int64_t kFewQueries = 32;

bool takes(const AttentionView& view) {
  return !view.keyTransposed && view.kvHeads > 0 &&
         (view.queryRows < kFewRows ||
          view.queryRows * (view.queryHeads / view.kvHeads) < kFewQueries);
}

int64_t units(const AttentionView& view) {
  const int64_t blocks = attentionBlocks(view);
  return blocks * decodeSegments(view, blocks);
}

size_t scratchBytes(const AttentionView& view) {
  return attentionBlockBytes(view, decodeTiles(view));
}

size_t sharedBytes(const AttentionView& view) {
  return DecodePartials::bytes(view, attentionBlocks(view));
}

/// Block of a unit, and the keys that it attends to.
struct Unit {
  AttentionBlock block;
  KeyRange range;

  Unit(const AttentionView& view, int64_t unit, int64_t segments, std::span<std::byte> scratch)
      : block(view, unit / segments, scratch, decodeTiles(view)),
        range(decodeSegment(block.visibleKeys(), unit % segments, segments)) {}
};

void run(const AttentionView& view, int64_t unit, int64_t upcoming, std::span<std::byte> scratch,
         std::span<std::byte> shared) {
  const int64_t blocks = attentionBlocks(view);
  const int64_t segments = decodeSegments(view, blocks);
  const int64_t index = unit / segments;
  const auto [block, range] = Unit(view, unit, segments, scratch);
  LocatedKeys following;
  if (upcoming < blocks * segments) {
    const auto [nextBlock, nextRange] = Unit(view, upcoming, segments, scratch);
    if (nextRange.begin < nextRange.end)
      following = nextBlock.firstKeys(nextRange);
  }
  HWY_DYNAMIC_DISPATCH(attendRange)(block, range, unit % segments == 0, following);
  if (segments > 1) {
    DecodePartials partials(view, blocks, shared);
    partials.put(block, unit);
    if (!partials.isLast(index, segments))
      return;
    partials.merge(block, index * segments, segments);
  }
  HWY_DYNAMIC_DISPATCH(storeBlock)(block);
}

} // namespace

void register_decode(AttentionKernelRegistry& registry) {
  registry.add({.name = "decode",
                .use = "few query rows, keys in rows",
                .rank = 10,
                .takes = takes,
                .units = units,
                .scratchBytes = scratchBytes,
                .sharedBytes = sharedBytes,
                .run = run});
}

} // namespace kvopt::simd
#endif // HWY_ONCE
