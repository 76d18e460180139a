// Feeding: the inputs of two models for one step, as their manifests describe them.
#pragma once

#include "check/cache_pairs.h"
#include "check/constants.h"
#include "ir/manifest/manifest.h"
#include "ir/model.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"

#include <map>
#include <optional>
#include <string>

namespace kvopt::check {

/// Sizes of one step: `tokens` new tokens in each of `batch` rows, after `past` earlier ones.
struct Step {
  int64_t batch = 1;
  int64_t past = 0;
  int64_t tokens = 1;
  /// Number of hidden tokens in the last batch row; each row before it has one less, down to none.
  int64_t padding = 0;
  /// Whether the hidden tokens follow the row's own ones, rather than precede them. After a past,
  /// they follow the first token.
  bool padsRight = false;
  /// Rows of buffers that the step leaves free.
  int64_t spare = 0;
  /// Limit of the second model's manifest that excludes the step; empty if none does.
  std::string excludedBy;

  int64_t total() const { return past + tokens; }
  bool isHidden(int64_t row, int64_t token) const;
  /// Text such as `batch 2, past 3, 1 new, 1 hidden on the left`.
  std::string text() const;
  bool operator==(const Step&) const = default;
};

/// Extent of axes about which nothing is known, such as an encoded sequence or an image: 2 to 4.
int64_t otherExtent(const Step& step);

/// Rows of a cache after a step.
struct CachedRows {
  Ref rows;
  int64_t first = 0; ///< number of the first one
};

/// Inputs of the original model and of a second one, whose caches hold the same earlier rows.
class Feeding {
public:
  Feeding(DrivenModel before, DrivenModel after);

  /// Contents of an input; null, with `failure`, for inputs that cannot be described.
  Ref beforeInput(const ir::Value& input, const Step& step, Arithmetic& math) {
    return contents(false, input, step, math);
  }
  Ref afterInput(const ir::Value& input, const Step& step, Arithmetic& math) {
    return contents(true, input, step, math);
  }
  /// The cache that an input is; null for other inputs.
  const CacheInput* cacheInput(bool isAfter, const ir::Value& input) const {
    return caches.input(isAfter, input.name());
  }
  /// Where the elements of a cache's input come from: n is element n of the earlier rows, and -1 -
  /// n is the arbitrary number n of a place that no token wrote. null, with `failure`, if the rows
  /// cannot be placed.
  Ref cachePlaces(const CacheInput& input, const Step& step);
  const std::string& failure() const { return reason; }
  /// Why only some of an input's possible contents are fed; empty if its role is known.
  std::string gapOfInput(bool isAfter, const ir::Value& input) const;
  /// Value of a symbolic extent of the original model; nullopt if it is unknown.
  std::optional<int64_t> extentOf(const ir::Dim& dim, const Step& step) const;

  using Pair = CachePair;
  const std::vector<Pair>& pairs() const { return caches.pairs(); }
  /// Rows that a present of the original holds, in the order of axes of the second model's cache.
  std::optional<CachedRows> beforeRows(const Pair& pair, const Ref& present,
                                       const Step& step) const;
  std::optional<CachedRows> afterRows(const Pair& pair, const Ref& present, const Step& step) const;

  const DrivenModel& before() const { return original; }
  const DrivenModel& after() const { return second; }

private:
  Ref lengthInput(const ir::ManifestLength& length, ir::ElementType type, const Step& step);
  Ref contents(bool isAfter, const ir::Value& input, const Step& step, Arithmetic& math);
  Ref plainInput(const DrivenModel& side, const ir::Value& input, const Step& step,
                 Arithmetic& math);
  std::optional<Extents> historyShape(const ir::ManifestCache& cache, const Step& step);
  Ref placed(const CacheInput& input, const Ref& rows, const Step& step);
  std::optional<CachedRows> rowsIn(const ir::ManifestCache& cache, const Ref& present,
                                   const Step& step) const;
  Ref asSecond(const ir::ManifestCache& cache, const Ref& tensor) const;
  void bindSymbols();
  DrivenModel original;
  DrivenModel second;
  CachePairs caches;
  enum class Size { Batch, Tokens, Past, Total };
  llvm::StringMap<Size> symbols;
  std::string reason;
};

/// Starts a step in notes of thresholds.
void enter(Thresholds& thresholds, const Step& step);

/// An arbitrary tensor of numbers that `name` determines.
Ref arbitraryTensor(const Field& field, uint64_t name, const Extents& shape);

} // namespace kvopt::check
