// Keys, values and presents that are written anew from what was evaluated: rows of a cache joined
// with new ones, and moved.
#pragma once

#include "passes/analysis/evaluation/cached_rows.h"
#include "passes/analysis/evaluation/step_evaluations.h"
#include "passes/pattern/rewriter.h"

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

/// How a value is made of a cache and new rows, at all sizes that were tried.
struct RespelledRows {
  const ir::Value* past = nullptr;
  const ir::Value* fresh = nullptr;
  ir::TensorType type;               ///< of the value
  std::vector<RowFactor> factors;    ///< of its axes in order, outermost first
  std::vector<unsigned> orderOfPast; ///< factors that are not repeats, as the cache has them
  std::vector<unsigned> orderOfFresh;
  unsigned sequenceAxis = 0; ///< of the cache
  ir::Dim pastRows, freshRows;
  ir::Dim skippedRows = ir::Dim::fixed(0); ///< of the joined rows, the first ones
  std::optional<WritePlace> place;         ///< without: new rows are appended
};

/// The extents of `value` as functions of the step's; nullopt where one is none.
std::optional<ir::Shape> extentsBehind(const ir::Value& value,
                                       analysis::StepEvaluations& evaluations);

/// How `value` is made. nullopt where it is not just moved rows, where sizes disagree, and where an
/// extent is no simple function of the step's. Of several values that hold the new rows, one that
/// `preferred` lists is taken, if there is one.
std::optional<RespelledRows> respelledRows(const ir::Value& value,
                                           analysis::StepEvaluations& evaluations,
                                           llvm::ArrayRef<const ir::Value*> preferred = {});

/// Writes values anew. One object serves one edit: what it joins once is read by all that need it.
class RowWriter {
public:
  explicit RowWriter(pattern::Rewriter& edits) : rewriter(edits) {}

  /// Concat<axis>(past, new) or ScatterElements<axis>(past, places, new), where `new` has the
  /// cache's layout, and then Slice, Transpose, Expand and Reshape. Null where an extent cannot be
  /// computed from those of inputs.
  ir::Value* write(const RespelledRows& rows);

  /// A cache that new rows were put to.
  struct Joined {
    const ir::Value* past = nullptr;
    const ir::Value* fresh = nullptr;
    const ir::Value* place = nullptr; ///< the input that says where; null: they are appended
    ir::Value* value = nullptr;
  };
  llvm::ArrayRef<Joined> joined() const { return made; }

private:
  ir::Value* join(const RespelledRows& rows);

  pattern::Rewriter& rewriter;
  std::vector<Joined> made;
};

} // namespace kvopt::rows
