// Feeding: the inputs of two models for one step, as their manifests describe them.
#pragma once

#include "check/cache_pairs.h"
#include "check/constants.h"
#include "check/row_places.h"
#include "ir/manifest/manifest.h"
#include "ir/model.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"

#include <optional>
#include <string>

namespace kvopt::check {

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
  RowPlaces placesOf(bool isAfter, const ir::ManifestCache& cache) const {
    return {(isAfter ? second : original).manifest, cache, caches.isSliding(cache)};
  }
  void bindSymbols();
  DrivenModel original;
  DrivenModel second;
  CachePairs caches;
  enum class Size { Batch, Tokens, Past, Total };
  llvm::StringMap<Size> symbols;
  std::string reason;
};

/// An arbitrary tensor of numbers that `name` determines.
Ref arbitraryTensor(const Field& field, uint64_t name, const Extents& shape);

} // namespace kvopt::check
