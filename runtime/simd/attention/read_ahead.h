// ReadAhead: asks for the keys and values of a unit of decode attention in the order of their
// addresses, some way ahead of their use and spread evenly over the work. A core drops prefetches
// that come in bursts, and its own prefetchers follow only who goes straight on.
#pragma once

#include "runtime/simd/attention/attention_block.h"
#include "runtime/simd/prefetch.h"

#include <hwy/base.h>

#include <cstddef>
#include <utility>

namespace kvopt::simd {

/// Rows of one head's keys or values, in bytes.
struct CachePlane {
  const std::byte* base;
  int64_t stride;
  int64_t width;
};

/// The lines of a range of keys: of one tile of kAttentionTileKeys keys after the other the keys,
/// then the values. What has been granted may be asked for; asking for more does nothing. A
/// prefetch never faults, and changes nothing but time.
class ReadAhead {
public:
  static constexpr int64_t line = 64;

  /// The first `bytes` are granted. Values that lie within the rows of keys are not asked for
  /// again: the keys of the next tile then come during the work with values too.
  ReadAhead(const CachePlane& keyRows, const CachePlane& valueRows, KeyRange keyRange,
            int64_t bytes)
      : planes{keyRows, valueRows}, range(keyRange), tile(keyRange.begin), granted(bytes) {
    const bool isWithin = valueRows.base >= keyRows.base &&
                          valueRows.base < keyRows.base + keyRows.stride &&
                          valueRows.stride == keyRows.stride;
    if (isWithin) {
      planeCount = 1;
      valueGrant = keyRows.width * valueRows.width / (keyRows.width + valueRows.width);
      keyGrant = keyRows.width - valueGrant;
      granted += kAttentionTileKeys * valueGrant;
    }
    startRows();
    proceed();
  }

  /// What comes behind the range, somewhere else: asked for once the range has been.
  void follow(const CachePlane& keyRows, const CachePlane& valueRows, KeyRange keyRange) {
    followingPlanes[0] = keyRows;
    followingPlanes[1] = valueRows;
    following = keyRange;
  }

  /// Whether values lie within the rows of keys: those of a tile are there with its keys.
  bool bringsValuesWithKeys() const { return planeCount == 1; }

  /// Lets through what the work with the scores, or with the values, of `count` keys is to bring.
  void grantKeys(int64_t count) { grant(count * keyGrant); }
  void grantValues(int64_t count) { grant(count * valueGrant); }

  /// Asks for lines in a loop. While it lives the ReadAhead is left alone.
  class Cursor {
  public:
    HWY_INLINE explicit Cursor(ReadAhead& readAhead)
        : ahead(readAhead), next(ahead.next), stop(ahead.stop), step(ahead.step) {}
    HWY_INLINE ~Cursor() { ahead.next = next; }
    Cursor(const Cursor&) = delete;
    Cursor& operator=(const Cursor&) = delete;

    HWY_INLINE void ask(int64_t lines) {
      for (; lines > 0; --lines) {
        prefetchLine(next);
        next += step;
        if (HWY_UNLIKELY(next >= stop))
          goOn();
      }
    }

  private:
    HWY_INLINE void goOn() {
      ahead.next = next;
      ahead.goOn();
      next = ahead.next;
      stop = ahead.stop;
      step = ahead.step;
    }
    ReadAhead& ahead;
    const std::byte* next;
    const std::byte* stop;
    int64_t step;
  };

private:
  static bool isContiguous(const CachePlane& p) { return p.stride == p.width; }
  /// What was granted before and is still to be asked for would be missing for ever.
  void grant(int64_t bytes) {
    settle();
    if (granted > 0)
      Cursor(*this).ask((granted + line - 1) / line);
    settle();
    granted += bytes;
    proceed();
  }
  int64_t tileEnd() const {
    return HWY_MIN(tile - tile % kAttentionTileKeys + kAttentionTileKeys, range.end);
  }
  /// To the first of the tile's rows of the plane; contiguous ones count as one.
  void startRows() {
    if (tile >= range.end && following.begin < following.end) {
      planes[0] = followingPlanes[0];
      planes[1] = followingPlanes[1];
      range = std::exchange(following, {});
      tile = range.begin;
    }
    row = planes[plane].base + tile * planes[plane].stride;
    rows = tile < range.end ? tileEnd() - tile : 0;
    startRow();
  }
  void startRow() {
    const CachePlane& p = planes[plane];
    rowEnd = row + (isContiguous(p) ? rows * p.width : p.width);
    next = row - reinterpret_cast<uintptr_t>(row) % line;
    settled = row;
    if (isContiguous(p))
      rows = HWY_MIN(rows, 1);
  }
  /// Counts the bytes of rows that have been asked for since the last time.
  void settle() {
    if (step == 0) {
      next = settled;
      return;
    }
    const std::byte* at = HWY_MAX(settled, HWY_MIN(next, rowEnd));
    granted -= at - settled;
    settled = at;
  }
  /// Stops at the end of the row or of what is granted.
  void proceed() {
    if (granted > 0 && rows > 0) {
      step = line;
      stop = HWY_MIN(rowEnd, next + granted);
      return;
    }
    // From now on, a line that is there.
    step = 0;
    next = reinterpret_cast<const std::byte*>(this);
    stop = next + 1;
  }
  HWY_NOINLINE void goOn() {
    settle();
    if (next >= rowEnd) {
      if (--rows > 0) {
        row += planes[plane].stride;
        startRow();
      } else {
        plane = (plane + 1) % planeCount;
        if (plane == 0)
          tile = tileEnd();
        startRows();
      }
    }
    proceed();
  }

  CachePlane planes[2];
  KeyRange range;
  CachePlane followingPlanes[2] = {};
  KeyRange following;
  int planeCount = 2, plane = 0;
  int64_t tile;
  int64_t keyGrant = planes[0].width, valueGrant = planes[1].width; ///< bytes for a key
  int64_t granted; ///< bytes that have not been counted yet
  const std::byte* row = nullptr;
  const std::byte* rowEnd = nullptr;
  int64_t rows = 0; ///< that are left of the tile in the plane, with this one
  const std::byte* next = nullptr;
  const std::byte* stop = nullptr;
  int64_t step = line;
  const std::byte* settled = nullptr; ///< what lies before it in the row has been counted
};

} // namespace kvopt::simd
