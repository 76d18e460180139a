// Selected tables: constants with rows that no compared step reads, and those that differ.
#pragma once

#include "ir/model.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kvopt::check {

/// A constant from which a node selects rows by something that varies, such as tokens, positions
/// and lengths.
struct SelectedTable {
  std::string name; ///< of the value
  const ir::Node* reader = nullptr;
  unsigned operand = 0;
  unsigned axis = 0; ///< of the rows
  bool isByTokens = false;
  ir::TensorRef data;

  int64_t rows() const { return data->shape()[axis]; }
};

/// Tables of the main graph, its subgraphs and the model's functions, each once.
std::vector<SelectedTable> selectedTables(const ir::Model& model);

/// Whether two constants have the same type, shape and bytes. Constants of one place in a file are
/// not read.
bool haveSameContents(const ir::TensorData& a, const ir::TensorData& b);

/// Tables of two models that play the same part and have other contents.
struct OtherContents {
  SelectedTable before, after;
};

/// Pairs tables of the same shape and type that the same operator reads: those of one name, then
/// the others in order, if both models have as many. Tables with the same contents in the other
/// model are left out.
std::vector<OtherContents> tablesOfOtherContents(const ir::Model& before, const ir::Model& after);

/// How the rows of two tables differ.
struct RowDifferences {
  std::vector<int64_t> rows; ///< that differ by more than the tolerance
  bool isAnyEqual = false;   ///< whether a row with a number other than zero does not
};

/// nullopt if the contents are not read. `tolerance` is relative to the larger one of an element
/// and 1.
std::optional<RowDifferences> rowDifferences(const OtherContents& tables, double tolerance);

} // namespace kvopt::check
