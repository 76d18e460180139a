// CacheLayout: what lies along each axis of a cache.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <optional>
#include <string>

namespace kvopt::ir {

/// The axes of a cache, or of rows for one, most significant first: 'B' batch rows, 'H' heads, 'S'
/// the sequence, 'D' width, '*' several tensors in one, '1' an axis of extent 1, '?' an axis that
/// nothing is known of. What shares an axis is in parentheses: "(BH)SD". Keys and values as
/// attention reads them are "BHSD". Without axes: a layout that cannot be told.
class CacheLayout {
public:
  CacheLayout() = default;
  /// Of the letters of each axis; no letters are an axis of extent 1.
  explicit CacheLayout(llvm::ArrayRef<std::string> axes);

  /// "BHSD": keys and values as attention reads them.
  static CacheLayout ofAttention();
  /// As kvopt's operators, and manifests, tell a layout: by the axis of the sequence. Rank 4: SBHD,
  /// BSHD, BHSD and BHDS for the axes 0 to 3. Rank 3, heads folded into the batch: (BH)SD and
  /// (BH)DS for 1 and 2. nullopt for others.
  static std::optional<CacheLayout> bySequenceAxis(size_t rank, int64_t sequenceAxis);
  /// The inverse of `text`; nullopt for text that is not a layout.
  static std::optional<CacheLayout> parse(llvm::StringRef text);

  bool isKnown() const { return !letters.empty(); }
  size_t rank() const { return axes().size(); }
  /// The letters of each axis.
  llvm::SmallVector<llvm::StringRef, 5> axes() const;
  /// The first axis that the letter lies along, alone or with others.
  std::optional<unsigned> axisOf(char letter) const;

  /// The axes of a layout that has them.
  unsigned batchAxis() const { return existing('B'); }
  unsigned headAxis() const { return existing('H'); }
  unsigned sequenceAxis() const { return existing('S'); }
  unsigned columnAxis() const { return existing('D'); }

  /// Columns, not slots, are far apart.
  bool isTransposed() const { return sequenceAxis() > columnAxis(); }
  /// Heads and batch rows share an axis.
  bool hasFoldedHeads() const { return batchAxis() == headAxis(); }
  /// Several tensors lie in one.
  bool isStacked() const { return axisOf('*').has_value(); }

  /// The order of axes that makes the cache [B,H,S,D], folded axes by their first letter, and what
  /// is none of these in front.
  llvm::SmallVector<int64_t, 4> rowOrder() const;
  /// The inverse: the order of those axes that makes the cache.
  llvm::SmallVector<int64_t, 4> cacheOrder() const;
  /// The order of axes that makes a tensor laid out as `other` lie like this one; nullopt where
  /// none does.
  std::optional<llvm::SmallVector<int64_t, 4>> orderFrom(const CacheLayout& other) const;

  /// `BSHD`, `(BH)SD`.
  const std::string& text() const { return letters; }

  bool operator==(const CacheLayout&) const = default;

private:
  static CacheLayout ofText(llvm::StringRef text);
  unsigned existing(char letter) const;

  std::string letters; ///< as `text` gives them; nearly always short enough to need no memory
};

} // namespace kvopt::ir
