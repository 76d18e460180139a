// CacheGrowth: extends caches by the rows of a step.
#pragma once

#include "ir/graph.h"
#include "ir/manifest/manifest.h"
#include "runtime/session/cache_state.h"
#include "runtime/session/step_result.h"

namespace kvopt::runtime {

/// Makes room for the rows of a step before it runs, and takes them from the outputs afterwards.
class CacheGrowth {
public:
  /// All arguments must outlive this object.
  CacheGrowth(const ir::Manifest& described, CacheState& grown, SessionStatistics& statistics)
      : manifest(described), state(grown), counters(statistics) {}

  /// Finds the output of each cache; an error if the graph has no output of that name.
  llvm::Error findOutputs(const ir::Graph& graph);
  /// Outputs that are not caches, in order.
  llvm::ArrayRef<unsigned> resultOutputs() const { return results; }

  /// Grows shared buffers, if they may grow, to hold `newTokens` more tokens; otherwise a
  /// CapacityError.
  llvm::Error makeRoom(int64_t newTokens);
  /// Takes the caches from a step's outputs. After an error, no cache holds additional tokens, and
  /// all outputs exist except for rows that a block took over.
  llvm::Error take(llvm::MutableArrayRef<Tensor> outputs, int64_t newTokens);

private:
  llvm::Error checkPresent(size_t index, const TensorView& present, int64_t newTokens) const;
  llvm::Error writeBlocks(size_t index, Tensor& rows);
  /// Appends new rows that a model returns to those of the past.
  llvm::Error joinNewRows(size_t index, Tensor& rows);
  void replace(size_t index, Tensor present);

  const ir::Manifest& manifest;
  CacheState& state;
  SessionStatistics& counters;
  std::vector<unsigned> presents; ///< index of the graph output, for each cache
  std::vector<unsigned> results;  ///< indices of the other outputs
};

} // namespace kvopt::runtime
