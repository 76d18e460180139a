// One execution of an attention operator over caches: opens caches and new rows, and writes rows.
// The files for buffers, rings and blocks decide which.
#pragma once

#include "engines/onnxruntime/operators/attention_settings.h"
#include "engines/onnxruntime/operators/cache_rows.h"
#include "engines/onnxruntime/operators/present.h"
#include "ir/ops/kvopt/cache_operands.h"

namespace kvopt::onnxruntime {

/// What a node says about its caches.
struct CacheSettings {
  const ir::CacheOperatorForm* form = nullptr;
  AttentionSettings attention;
  int64_t axes[2] = {2, 2}; ///< key_axis, value_axis
  int64_t valueWidth = 0;   ///< of latent rows
  int64_t valueOffset = 0;
};

/// Slots and, for codes, their scales.
struct Slots {
  CacheRows rows;
  CacheRows scales;
};

/// Rows and the slots that hold them.
struct SlotSpan {
  int64_t first; ///< first row
  int64_t slot;  ///< its slot
  int64_t count;
};

/// One cache of a call.
struct CacheSide {
  CacheRows fresh;
  Tensor past, pastScale;
  Slots before, after;
  bool isInPlace = false;
};

/// A call with caches in any place.
class CacheAttentionCall {
public:
  CacheAttentionCall(Call& ofNode, const CacheSettings& of)
      : call(ofNode), settings(of), form(*of.form),
        operands(ofNode, of.attention, form.mask(), form.sinks()) {}

protected:
  int64_t batches() const { return operands.batches(); }
  int64_t rows() const { return operands.rows(); }
  /// New rows of a side, or their scales, [B,G,S,·].
  CacheRows freshRows(unsigned place) const;
  /// Slots of a cache tensor of a side with `heads` heads.
  CacheRows slotsOf(const Tensor& cache, unsigned side, int64_t heads) const;
  /// Sets heads and widths of new rows of keys and values.
  void setWidths(const CacheRows& key, const CacheRows& value);
  /// First element of the values within a row of `columns` numbers.
  int64_t offsetOfValues(int64_t columns, bool isPacked) const;

  Call& call;
  const CacheSettings& settings;
  const ir::CacheOperatorForm& form;
  AttentionOperands operands;
};

/// A call with buffers or rings, which are written.
class CacheCall : public CacheAttentionCall {
public:
  CacheCall(Call& ofNode, const CacheSettings& of, const CopyNotice& copyNotice);

protected:
  CacheSide& keys() { return sides[0]; }
  CacheSide& values() { return sides[form.sides() - 1]; }
  int64_t capacity() const { return sides[0].before.rows.slots; }

  /// Makes slots the keys and values of the attention.
  void setSlots(const Slots& key, const Slots& value);
  void openPresents();
  /// Uninitialized rows with room for `count` rows of a side, in the order of their positions.
  Slots orderedSlots(const CacheSide& side, int64_t count);
  void copySpan(const Slots& to, const Slots& from, const SlotSpan& span, int64_t batch,
                int64_t head) const;
  /// Writes new rows, as codes if the cache has codes.
  void writeSpan(const CacheSide& side, const Slots& to, const SlotSpan& span, int64_t batch,
                 int64_t head) const;
  /// Completes a present that is not in place: `valid` slots are copied, and those from `end` on
  /// are set to zero.
  void fill(const CacheSide& side, int64_t valid, int64_t end, int64_t batch, int64_t head) const;

  /// Calls body(side, batch, head) for every head of every cache.
  template <class Body> void forEachHead(int64_t elements, const Body& body) {
    const int64_t heads = operands.view.kvHeads, count = batches() * heads;
    call.forEach(count * form.sides(), elements, [&](int64_t unit) {
      body(sides[unit / count], unit % count / heads, unit % heads);
    });
  }
  int64_t freshElements() const {
    return 2 * batches() * sides[0].fresh.heads * rows() * sides[0].fresh.width;
  }
  /// Number of elements that are written to presents.
  int64_t writtenElements() const {
    return freshElements() + (sides[0].isInPlace ? 0 : 2 * sides[0].past.count());
  }

private:
  bool isPacked() const;
  void open(unsigned index);
  void checkSides();

  const CopyNotice& notice;
  CacheSide sides[2];
  int64_t valueOffset = 0;
};

/// Computes an operator over buffers, rings, or blocks.
void attendInBuffer(Call& call, const CacheSettings& settings, const CopyNotice& notice);
void attendInRing(Call& call, const CacheSettings& settings, const CopyNotice& notice);
void attendInBlocks(Call& call, const CacheSettings& settings);

} // namespace kvopt::onnxruntime
