// What keys, values and presents are made of, from what was evaluated: rows of a cache joined with
// new ones, and moved.
#pragma once

#include "passes/analysis/evaluation/arranged_products.h"
#include "passes/analysis/evaluation/cached_rows.h"
#include "passes/analysis/evaluation/step_evaluations.h"

#include <vector>

namespace kvopt::rows {

/// One part of an axis of a value.
struct RowFactor {
  unsigned axis = 0;
  bool isRepeat = false;   ///< read from the same elements
  bool isPosition = false; ///< of the axis that rows are counted along
  ir::Dim extent;          ///< of a position: in the whole value
};

/// Where new rows take the place of others, by an integer input.
struct WritePlace {
  enum class Kind {
    First,     ///< its first element plus `offset` is the first row's place
    EachRow,   ///< an element is the place of one row
    EachBatch, ///< [batch, rows]: an element is the place of one row of one batch row
  };
  const ir::Value* input = nullptr;
  Kind kind = Kind::First;
  ir::Dim offset;
};

/// The part of an axis of a source that is read.
struct SourcePart {
  ir::Dim whole; ///< the extent of the axis
  ir::Dim start;
  /// Where one index of an axis before this one is read, the extent of that axis: `start` is the
  /// index, and all of the axis behind is read. 0 otherwise.
  int64_t blocks = 0;
  /// The axis of the source that is read in part, `unit` of whose indices are one of the part's; -1
  /// where no axis ends where the part's does.
  int axis = -1;
  int64_t unit = 1;

  /// Whether anything is left out, where `read` indices are read.
  bool isPartOf(const ir::Dim& read) const { return blocks != 0 || !whole.isKnownEqual(read); }
};

/// How a value is made of a cache and new rows, at all sizes that were tried.
struct RespelledRows {
  const ir::Value* past = nullptr;
  const ir::Value* fresh = nullptr;
  ir::TensorType type;               ///< of the value
  double factor = 1;                 ///< what all elements are multiplied by
  std::vector<RowFactor> factors;    ///< of its axes in order, outermost first
  std::vector<unsigned> orderOfPast; ///< factors that are not repeats, as the cache has them
  std::vector<unsigned> orderOfFresh;
  /// Of each factor of `orderOfFresh`, where only a part of `fresh` is read and nothing of a cache;
  /// empty where all of it is.
  std::vector<SourcePart> partsOfFresh;
  unsigned sequenceAxis = 0; ///< of the cache
  ir::Dim pastRows, freshRows;
  ir::Dim skippedRows = ir::Dim::fixed(0); ///< of the joined rows, the first ones
  std::optional<WritePlace> place;         ///< without: new rows are appended
};

/// The extents of `value` as functions of the step's, found at a few sizes and the same at all
/// points that are tried; nullopt where one is none.
std::optional<ir::Shape> extentsBehind(const ir::Value& value,
                                       analysis::StepEvaluations& evaluations);

/// How `value` is made. nullopt where it is not just moved rows, where sizes disagree, and where an
/// extent is no simple function of the step's. Of several values that hold the new rows, one that
/// `preferred` lists is taken, if there is one.
std::optional<RespelledRows> respelledRows(const ir::Value& value,
                                           analysis::StepEvaluations& evaluations,
                                           llvm::ArrayRef<const ir::Value*> preferred = {});

/// How `value` is made of elements of `source`, which may have more.
std::optional<RespelledRows> rowsMovedFrom(const ir::Value& value, const ir::Value& source,
                                           analysis::StepEvaluations& evaluations);

/// What a tensor of `element` type is made of that does not exist yet: `arranged` says at each
/// point which elements of the one source it has. The source may be none that exists yet.
std::optional<RespelledRows> rowsOf(llvm::ArrayRef<analysis::ArrangedElements> arranged,
                                    ir::ElementType element,
                                    analysis::StepEvaluations& evaluations);

} // namespace kvopt::rows
