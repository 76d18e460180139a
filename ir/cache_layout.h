// CacheLayout: meaning of each axis of a cache.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <optional>
#include <string>

namespace kvopt::ir {

/// Axes of a cache, or of rows for a cache, most significant first: 'B' batch rows, 'H' heads, 'S'
/// the sequence, 'D' width, '*' several tensors in one, '1' an axis of extent 1, '?' an unknown
/// axis. Letters that share an axis are in parentheses: "(BH)SD". Attention reads keys and values
/// as "BHSD". A layout without axes is unknown.
class CacheLayout {
public:
  CacheLayout() = default;
  /// A layout from the letters of each axis; an empty string is an axis of extent 1.
  explicit CacheLayout(llvm::ArrayRef<std::string> axes);

  /// "BHSD": keys and values as attention reads them.
  static CacheLayout ofAttention();
  /// Layout with a given sequence axis, which is how kvopt's operators and manifests describe it.
  /// Rank 4: SBHD, BSHD, BHSD and BHDS for the axes 0 to 3. Rank 3, with heads folded into the
  /// batch: (BH)SD and (BH)DS for the axes 1 and 2. nullopt otherwise.
  static std::optional<CacheLayout> bySequenceAxis(size_t rank, int64_t sequenceAxis);
  /// The inverse of `text`; nullopt for text that is not a layout.
  static std::optional<CacheLayout> parse(llvm::StringRef text);

  bool isKnown() const { return !letters.empty(); }
  size_t rank() const { return axes().size(); }
  /// Letters of each axis.
  llvm::SmallVector<llvm::StringRef, 5> axes() const;
  /// The first axis that has the letter, alone or with others.
  std::optional<unsigned> axisOf(char letter) const;

  /// Indices of axes. The layout must have the axis.
  unsigned batchAxis() const { return existing('B'); }
  unsigned headAxis() const { return existing('H'); }
  unsigned sequenceAxis() const { return existing('S'); }
  unsigned columnAxis() const { return existing('D'); }

  /// Whether the columns of a row are not adjacent: the sequence axis is after the column axis.
  bool isTransposed() const { return sequenceAxis() > columnAxis(); }
  /// Whether heads and batch rows share an axis.
  bool hasFoldedHeads() const { return batchAxis() == headAxis(); }
  /// Whether one tensor holds several.
  bool isStacked() const { return axisOf('*').has_value(); }

  /// Permutation that transposes the cache to [B,H,S,D]. Folded axes are sorted by their first
  /// letter; other axes come first.
  llvm::SmallVector<int64_t, 4> rowOrder() const;
  /// The inverse permutation.
  llvm::SmallVector<int64_t, 4> cacheOrder() const;
  /// Permutation that transposes a tensor of layout `other` to this layout; nullopt if there is
  /// none.
  std::optional<llvm::SmallVector<int64_t, 4>> orderFrom(const CacheLayout& other) const;

  /// Text of the layout: `BSHD`, `(BH)SD`.
  const std::string& text() const { return letters; }

  bool operator==(const CacheLayout&) const = default;

private:
  static CacheLayout ofText(llvm::StringRef text);
  unsigned existing(char letter) const;

  std::string letters; ///< the value of `text`; almost always short enough to need no allocation
};

} // namespace kvopt::ir
