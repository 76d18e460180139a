// CacheContents: what caches hold before a step, and what they must hold after it.
#pragma once

#include "check/arithmetic/constants.h"
#include "check/caches/row_places.h"
#include "check/caches/symbol_sizes.h"

#include <optional>
#include <string>

namespace kvopt::check {

/// Rows of the caches of two models, which have the same history.
class CacheContents {
public:
  CacheContents(DrivenModel before, DrivenModel after);

  const CachePairs& pairs() const { return caches; }
  /// Value of a symbolic extent of the original model; nullopt if it is unknown.
  std::optional<int64_t> extentOf(const ir::Dim& dim, const Step& step) const {
    return sizes.of(dim, step);
  }
  /// Where the elements of an input come from: n is element n of the earlier rows, and -1 - n is
  /// the arbitrary number n of a place that no token wrote. null, with `failure`, if the rows
  /// cannot be placed.
  Ref places(const CacheInput& input, const Step& step);
  /// The elements of an input; null, with `failure`, if the rows cannot be placed.
  Ref of(const CacheInput& input, const Step& step, Arithmetic& math);
  /// The earlier rows of a cache as numbers, in the order of its axes.
  Ref numbersOf(const ir::ManifestCache& cache, const Step& step, const Field& field);
  const std::string& failure() const { return reason; }
  /// Gives other numbers to the places that no token wrote; 0 for the usual ones.
  void fillUnwritten(uint64_t other) { otherUnwritten = other; }

  /// What the second model's cache must hold for the rows of a present of the original.
  std::optional<CachedRows> beforeRows(const CachePair& pair, const Ref& present, const Step& step,
                                       Arithmetic& math);
  std::optional<CachedRows> afterRows(const CachePair& pair, const Ref& present,
                                      const Step& step) const;
  /// Rows of a pool that belong to other sequences, before and after a step of the second model.
  struct ForeignRows {
    Ref before, after; ///< null without a pool
  };
  ForeignRows foreignRows(const CachePair& pair, const Ref& present, const Step& step,
                          Arithmetic& math);

private:
  std::optional<Extents> historyShape(const ir::ManifestCache& cache, const Step& step);
  Ref history(const ir::ManifestCache& cache, const Step& step);
  Ref numbersOfRows(const CachePair& pair, const CachedRows& rows, const Step& step);
  RowPlaces placesOf(bool isAfter, const ir::ManifestCache& cache) const {
    return {(isAfter ? second : original).manifest, cache, caches.isSliding(cache)};
  }

  DrivenModel original;
  DrivenModel second;
  CachePairs caches;
  SymbolSizes sizes;
  uint64_t otherUnwritten = 0;
  std::string reason;
};

} // namespace kvopt::check
