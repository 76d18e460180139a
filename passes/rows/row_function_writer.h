// RowFunctionWriter: writes a function of rows into a model, for other rows.
#pragma once

#include "passes/analysis/tokens/row_function.h"
#include "passes/builders/places_after.h"

#include <optional>

namespace kvopt::rows {

/// Writes a function into the model that it was found in. What does not come of the rows is not
/// copied again.
class RowFunctionWriter {
public:
  /// `rows` has the axes of the function's input.
  RowFunctionWriter(const analysis::RowFunction& rowFunction, ir::Value& rows,
                    pattern::Rewriter& edits);

  /// The rows follow those of `past`, along its axis `axis`. Required of functions that count rows.
  RowFunctionWriter& after(ir::Value& past, unsigned axis);

  /// What the function makes of the rows.
  ir::Value& write();

private:
  ir::Value& valueOf(const ir::Value& value);
  ir::Value& make(const ir::Value& value);

  const analysis::RowFunction& function;
  ir::Value& fresh;
  pattern::Rewriter& rewriter;
  builders::AttentionBuilder build;
  std::optional<builders::PlacesAfter> places;
  llvm::DenseMap<const ir::Value*, ir::Value*> made;
  /// Values of the body that are not what they are in the model: they come of the rows.
  llvm::DenseSet<const ir::Value*> changed;
};

} // namespace kvopt::rows
