// CachePairs: which cache of a second model continues which one of the original, and which inputs
// hold them.
#pragma once

#include "check/evaluation/roundings.h"
#include "ir/manifest/manifest.h"
#include "ir/model.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"

#include <string>
#include <vector>

namespace kvopt::check {

/// A model with its description.
struct DrivenModel {
  const ir::Model& model;
  const ir::Manifest& manifest;
};

/// What the elements of a cache of the second model represent, in the rows of the first model's.
enum class RowContent {
  Numbers, ///< the same numbers
  Codes,   ///< the numbers of a row, divided by its scale
  Scales,  ///< the scales of the rows
  Latent,  ///< rows that the first model's can be computed from
};

struct CachePair;

/// An input that is a cache, or a block of one.
struct CacheInput {
  std::string name;
  const ir::ManifestCache* cache = nullptr;
  /// The cache of the original model whose earlier rows it holds; null if `obstacle` says why not.
  const ir::ManifestCache* history = nullptr;
  std::string obstacle;
  const CachePair* pair = nullptr; ///< of a cache of the second model
  bool isAfter = false;
  size_t block = 0; ///< number of the block
  /// Inputs of equal forms have their rows in equal places in each step: names aside, nothing
  /// tells their descriptions apart.
  uint64_t form = 0;
};

/// A pair of caches: one of the second model, and the cache of the original that it continues.
struct CachePair {
  const ir::ManifestCache* before = nullptr;
  const ir::ManifestCache* after = nullptr;
  std::string obstacle; ///< why the rows cannot be compared; empty if they can
  RowContent content = RowContent::Numbers;
  /// For codes and scales, the second model's cache of the codes.
  const ir::ManifestCache* codes = nullptr;
  unsigned scaleAxis = 0; ///< the axis of a row, along which the codes have one scale
  bool isPacked = false;  ///< whether two codes are one element (FourBitRow)
  double largestCode = 0; ///< a scale is the largest magnitude of its row, divided by this
  /// Pairs of equal forms find their rows in equal places of a result: names aside, nothing tells
  /// their descriptions apart.
  uint64_t form = 0;
};

/// The caches of two models. Both must outlive it, and have a manifest of their own each.
class CachePairs {
public:
  CachePairs(DrivenModel before, DrivenModel after);

  /// One for each cache of the second model, and further ones of those that replace several.
  const std::vector<CachePair>& pairs() const { return cachePairs; }
  /// The pair of a latent cache that replaces a cache of the first model; null if none does.
  const CachePair* replacing(llvm::StringRef past) const;
  /// The cache that an input of the original (or of the second model) is; null for other inputs.
  const CacheInput* input(bool isAfter, llvm::StringRef name) const;
  /// Whether caches of codes represent the first model's caches of numbers.
  bool haveCodes() const {
    return llvm::any_of(cachePairs, [](const CachePair& pair) { return pair.codes != nullptr; });
  }
  /// Nodes of the second model that turn rows into the codes of caches.
  const CodeSteps& codeSteps() const { return rounding.steps(); }
  /// Whether one of the models moves the rows of this cache of its manifest (sliding_cache.h).
  bool isSliding(const ir::ManifestCache& cache) const { return sliding.contains(&cache); }

private:
  void pairCaches();
  /// Pairs a cache of codes, or of their scales, with the first model's cache of numbers.
  void pairCodes(CachePair& pair, const llvm::StringMap<const ir::ManifestCache*>& earlier) const;
  std::string obstacleOf(const CachePair& pair) const;
  void pairReplaced(const llvm::StringMap<const ir::ManifestCache*>& earlier);
  void collectRoundings();
  void indexCaches(bool isAfter);
  /// The number of a text among all texts that it was called with.
  uint64_t numberOf(const std::string& text) {
    return numbers.try_emplace(text, numbers.size()).first->second;
  }
  /// Describes a cache and the input that it is in the original model, without names.
  std::string formOf(const ir::ManifestCache& cache, bool isAfter) const;

  DrivenModel original;
  DrivenModel second;
  std::vector<CachePair> cachePairs;
  llvm::StringMap<CacheInput> inputsBefore, inputsAfter;
  llvm::DenseSet<const ir::ManifestCache*> sliding;
  llvm::StringMap<uint64_t> numbers;
  Roundings rounding;
};

} // namespace kvopt::check
