// AttentionReading: the elements that one attention reads and hides, at a small size.
#pragma once

#include "passes/analysis/evaluation/step_evaluations.h"

#include "llvm/ADT/StringMap.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace kvopt::analysis {

/// An element of a graph input; a column of a key or value is a multiple of it. Without an input
/// for other columns.
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
  std::vector<ReadElement> key, value; ///< for a few columns
};

/// Pairs of a few rows with all keys. Rows are counted as in the softmax: row (b * H + h) * S + i
/// of [B,H,S,T].
struct AttentionReading {
  int64_t rows = 0;
  int64_t keys = 0;
  std::vector<std::string> queries;         ///< by row: the elements in the query's first column
  std::vector<std::vector<ReadPair>> pairs; ///< by sampled row, then by key

  /// Rows that are sampled from a softmax with `rows` rows: all if they are few, otherwise some
  /// spread over them.
  static std::vector<int64_t> sampledRows(int64_t rows);
};

/// Readings of one attention, one for each of readingPoints(); nullopt where it cannot be read.
using AttentionReadings = std::vector<std::optional<AttentionReading>>;

/// Readings of an exported graph, by the name of the softmax or, if it has none, of its result.
struct ExportedAttention {
  llvm::StringMap<AttentionReadings> bySoftmax;
};

/// Evaluations of a few small steps: of two sizes, and with masks that hide keys.
std::vector<std::unique_ptr<Evaluation>> readingPoints(const ir::Graph& graph,
                                                       const InterfaceFacts& facts);

/// Reads each softmax between two products of a main graph. For layers of equal form it reads the
/// first two, because rules treat them all alike.
ExportedAttention readExportedAttention(const ir::Graph& graph, const InterfaceFacts& facts);

/// Reads the rows of an ai.kvopt::Sdpa that have the queries of the rows sampled from the exported
/// attention; rules may change the order of heads. nullopt if there are no such rows.
std::optional<AttentionReading> readCanonicalAttention(const ir::Node& node,
                                                       const AttentionReading& exported,
                                                       Evaluation& evaluation);

/// Description of a contradiction between two readings of one attention; empty if they agree as far
/// as both are known.
std::string contradiction(const AttentionReading& exported, const AttentionReading& recognized);

} // namespace kvopt::analysis
