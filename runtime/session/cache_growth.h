// CacheGrowth: where caches get longer, with the rows of a step.
#pragma once

#include "ir/graph.h"
#include "ir/manifest/manifest.h"
#include "runtime/session/cache_state.h"
#include "runtime/session/step_result.h"

namespace kvopt::runtime {

/// Makes room for the rows of a step before it runs, and takes them from the outputs after that.
class CacheGrowth {
public:
  /// All must outlive it.
  CacheGrowth(const ir::Manifest& described, CacheState& grown, SessionStatistics& statistics)
      : manifest(described), state(grown), counters(statistics) {}

  /// Finds the output of each cache; an error where the graph has none of that name.
  llvm::Error findOutputs(const ir::Graph& graph);
  /// Outputs that are not caches, in order.
  llvm::ArrayRef<unsigned> resultOutputs() const { return results; }

  /// Makes shared buffers long enough for `newTokens` tokens more, where they may grow; else a
  /// CapacityError.
  llvm::Error makeRoom(int64_t newTokens);
  /// Takes the caches out of a step's outputs. After an error no cache holds more tokens, and all
  /// outputs are there but for rows that a block took over.
  llvm::Error take(llvm::MutableArrayRef<Tensor> outputs, int64_t newTokens);

private:
  llvm::Error checkPresent(size_t index, const TensorView& present, int64_t newTokens) const;
  llvm::Error writeBlocks(size_t index, Tensor& rows);
  /// Puts new rows that a model hands out after those of the past.
  llvm::Error joinNewRows(size_t index, Tensor& rows);
  void replace(size_t index, Tensor present);

  const ir::Manifest& manifest;
  CacheState& state;
  SessionStatistics& counters;
  std::vector<unsigned> presents; ///< index of the graph output, per cache
  std::vector<unsigned> results;  ///< indices of the others
};

} // namespace kvopt::runtime
