// RowPlaces: where the rows of a cache are in the input of a step and in its result.
#pragma once

#include "check/arithmetic/tensor.h"
#include "check/caches/step.h"
#include "ir/manifest/manifest.h"

#include <optional>
#include <string>

namespace kvopt::check {

/// Rows of a cache after a step.
struct CachedRows {
  Ref rows;
  int64_t first = 0; ///< number of the first one
};

/// Places of the rows of one cache, as the manifest of its model says.
class RowPlaces {
public:
  /// `isSliding` is whether the model moves the rows (sliding_cache.h).
  RowPlaces(const ir::Manifest& ofModel, const ir::ManifestCache& ofCache, bool isSliding)
      : manifest(ofModel), cache(ofCache), movesRows(isSliding) {}

  /// The input that holds the earlier rows. `rows` has the number of each of their elements; a
  /// place that no token wrote has -1 - n, with another n for each place. `block` is the number of
  /// the input, of a cache in blocks. null, with `failure`, if the rows do not fit.
  Ref ofInput(const Ref& rows, size_t block, const Step& step, std::string& failure) const;
  /// The rows that the result has; nullopt if there are too few.
  std::optional<CachedRows> ofResult(const Ref& present, const Step& step) const;
  /// The rows of an input or a result that no step of these sequences may change; null if there are
  /// none.
  Ref foreignRows(const Ref& held, const Step& step) const;

private:
  Ref inPool(const Ref& rows, const Step& step, std::string& failure) const;
  std::optional<CachedRows> ofPool(const Ref& present, const Step& step) const;

  const ir::Manifest& manifest;
  const ir::ManifestCache& cache;
  bool movesRows;
};

/// Rows of a cache of the first model, as the part and in the order of axes that the second model's
/// cache has.
Ref asSecond(const ir::ManifestCache& first, const ir::ManifestCache& second, const Ref& rows);

} // namespace kvopt::check
