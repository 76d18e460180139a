// ReadAhead: prefetches the keys and values of a unit of decode attention in the order of their
// addresses, some distance ahead of their use and spread evenly over the work. Cores drop
// prefetches in bursts, and hardware prefetchers follow only sequential reads.
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

/// Lines of a range of keys: for each tile of kAttentionTileKeys keys, the keys and then the
/// values. Only granted lines are prefetched; further calls have no effect. A prefetch never faults
/// and affects only the time.
class ReadAhead {
public:
  static constexpr int64_t line = 64;

  /// The first `bytes` are granted. Values within the rows of keys are not prefetched again: work
  /// with values then also prefetches the keys of the next tile.
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

  /// Lines at another address, prefetched after the range.
  void follow(const CachePlane& keyRows, const CachePlane& valueRows, KeyRange keyRange) {
    followingPlanes[0] = keyRows;
    followingPlanes[1] = valueRows;
    following = keyRange;
  }

  /// Whether values are within the rows of keys, so that a tile's keys bring its values.
  bool bringsValuesWithKeys() const { return planeCount == 1; }

  /// Grants the lines for work with the scores, or with the values, of `count` keys.
  void grantKeys(int64_t count) { grant(count * keyGrant); }
  void grantValues(int64_t count) { grant(count * valueGrant); }

  /// Prefetches lines in a loop. The ReadAhead must not be used during its lifetime.
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
  /// Lines that were granted before but not prefetched yet would otherwise be lost.
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
  /// Starts at the first of the tile's rows in the plane; contiguous rows count as one.
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
  /// Counts the bytes of rows that were prefetched since the last call.
  void settle() {
    if (step == 0) {
      next = settled;
      return;
    }
    const std::byte* at = HWY_MAX(settled, HWY_MIN(next, rowEnd));
    granted -= at - settled;
    settled = at;
  }
  /// Advances, and stops at the end of the row or of the granted bytes.
  void proceed() {
    if (granted > 0 && rows > 0) {
      step = line;
      stop = HWY_MIN(rowEnd, next + granted);
      return;
    }
    // From now on, stays at a line that is already cached.
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
  int64_t keyGrant = planes[0].width, valueGrant = planes[1].width; ///< bytes per key
  int64_t granted; ///< bytes that have not been counted yet
  const std::byte* row = nullptr;
  const std::byte* rowEnd = nullptr;
  int64_t rows = 0; ///< remaining rows of the tile in the plane, including this one
  const std::byte* next = nullptr;
  const std::byte* stop = nullptr;
  int64_t step = line;
  const std::byte* settled = nullptr; ///< everything before it in the row was counted
};

} // namespace kvopt::simd
