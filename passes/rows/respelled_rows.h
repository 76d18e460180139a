// Composition of keys, values and presents as found by evaluation: rows of a cache joined with new
// ones, and moved.
#pragma once

#include "passes/analysis/evaluation/arranged_products.h"
#include "passes/analysis/evaluation/cached_rows.h"
#include "passes/analysis/evaluation/step_evaluations.h"

#include <vector>

namespace kvopt::rows {

/// One part of an axis of a value.
struct RowFactor {
  unsigned axis = 0;
  bool isRepeat = false;   ///< repeats the same elements
  bool isPosition = false; ///< part of the axis that rows are counted along
  ir::Dim extent;          ///< for a position: its extent in the whole value
};

/// Places, given by an integer input, where new rows overwrite others.
struct WritePlace {
  enum class Kind {
    First,     ///< the first row's place is its first element plus `offset`
    EachRow,   ///< each element is the place of one row
    EachBatch, ///< [batch, rows]: each element is the place of one row of one batch row
  };
  const ir::Value* input = nullptr;
  Kind kind = Kind::First;
  ir::Dim offset;
};

/// The part of an axis of a source that is read.
struct SourcePart {
  ir::Dim whole; ///< the extent of the axis
  ir::Dim start;
  /// If one index of an earlier axis is read: the extent of that axis. `start` is the index, and
  /// all of the later axis is read. 0 otherwise.
  int64_t blocks = 0;
  /// The partially read axis of the source; one index of the part is `unit` indices of that axis.
  /// -1 if no axis ends where the part's does.
  int axis = -1;
  int64_t unit = 1;

  /// Whether something is left out if `read` indices are read.
  bool isPartOf(const ir::Dim& read) const { return blocks != 0 || !whole.isKnownEqual(read); }
};

/// Composition of a value from a cache and new rows, the same at all tried sizes.
struct RespelledRows {
  const ir::Value* past = nullptr;
  const ir::Value* fresh = nullptr;
  ir::TensorType type;               ///< type of the value
  double factor = 1;                 ///< all elements are multiplied by it
  std::vector<RowFactor> factors;    ///< factors of its axes in order, outermost first
  std::vector<unsigned> orderOfPast; ///< factors that are not repeats, in the order of the cache
  std::vector<unsigned> orderOfFresh;
  /// The part of each factor of `orderOfFresh`, if only a part of `fresh` is read and nothing of a
  /// cache; empty if all of it is.
  std::vector<SourcePart> partsOfFresh;
  unsigned sequenceAxis = 0; ///< axis of the cache
  ir::Dim pastRows, freshRows;
  ir::Dim skippedRows = ir::Dim::fixed(0); ///< number of first joined rows that are skipped
  std::optional<WritePlace> place;         ///< without a place, new rows are appended
};

/// The extents of `value` as functions of the step's extents, found at a few sizes and valid at all
/// tried points; nullopt if one is not such a function.
std::optional<ir::Shape> extentsBehind(const ir::Value& value,
                                       analysis::StepEvaluations& evaluations);

/// Composition of `value`. nullopt if it has other elements than moved rows, if sizes disagree, or
/// if an extent is not a simple function of the step's. If several values hold the new rows, one in
/// `preferred` is used if possible.
std::optional<RespelledRows> respelledRows(const ir::Value& value,
                                           analysis::StepEvaluations& evaluations,
                                           llvm::ArrayRef<const ir::Value*> preferred = {});

/// Composition of `value` from elements of `source`, which may have further elements.
std::optional<RespelledRows> rowsMovedFrom(const ir::Value& value, const ir::Value& source,
                                           analysis::StepEvaluations& evaluations);

/// Composition of a tensor of `element` type that does not exist yet. `arranged` lists, for each
/// point, its elements of a single source, which need not exist yet either.
std::optional<RespelledRows> rowsOf(llvm::ArrayRef<analysis::ArrangedElements> arranged,
                                    ir::ElementType element,
                                    analysis::StepEvaluations& evaluations);

} // namespace kvopt::rows
