// AttentionReading: what one attention reads and what it hides, element by element, at a small
// size.
#pragma once

#include "passes/analysis/evaluation/step_evaluations.h"

#include "llvm/ADT/StringMap.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace kvopt::analysis {

/// The element of a graph input that a key's or value's column is a multiple of; no input where it
/// is something else.
struct ReadElement {
  std::string input;
  int64_t element = 0;

  bool isKnown() const { return !input.empty(); }
  bool operator==(const ReadElement&) const = default;
};

/// One pair of a query row and a key.
struct ReadPair {
  bool isHidden = false;
  double bias = 0;                     ///< added to the score
  std::vector<ReadElement> key, value; ///< of a few columns
};

/// Pairs of a few rows with all keys. Rows are counted as the softmax has them: of [B,H,S,T], row
/// (b * H + h) * S + i.
struct AttentionReading {
  int64_t rows = 0;
  int64_t keys = 0;
  std::vector<std::string> queries;         ///< by row: what its query's first column is made of
  std::vector<std::vector<ReadPair>> pairs; ///< by sampled row, then by key

  /// The rows that are sampled of a softmax with `rows` rows: all of a few, and a spread of many.
  static std::vector<int64_t> sampledRows(int64_t rows);
};

/// The readings of one attention, one for each of readingPoints(); nullopt where it cannot be read.
using AttentionReadings = std::vector<std::optional<AttentionReading>>;

/// Readings of a graph as it was exported, by the name of the softmax, or of its result where it
/// has none.
struct ExportedAttention {
  llvm::StringMap<AttentionReadings> bySoftmax;
};

/// Evaluations of a few small steps: of two sizes, and with masks that hide.
std::vector<std::unique_ptr<Evaluation>> readingPoints(const ir::Graph& graph,
                                                       const InterfaceFacts& facts);

/// Reads each softmax between two products of a main graph; of layers that are spelled alike, the
/// first two: rules do the same with all of them.
ExportedAttention readExportedAttention(const ir::Graph& graph, const InterfaceFacts& facts);

/// Reads an ai.kvopt::Sdpa, of rows with the queries of those that were sampled of the exported
/// attention: rules may put heads into another order. nullopt where such rows are not found.
std::optional<AttentionReading> readCanonicalAttention(const ir::Node& node,
                                                       const AttentionReading& exported,
                                                       Evaluation& evaluation);

/// Where two readings of one attention cannot both be right, in words; empty where they agree as
/// far as both tell.
std::string contradiction(const AttentionReading& exported, const AttentionReading& recognized);

} // namespace kvopt::analysis
