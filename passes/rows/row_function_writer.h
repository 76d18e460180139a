// RowFunctionWriter: writes a function of rows into a model, for other rows.
#pragma once

#include "passes/analysis/tokens/row_function.h"
#include "passes/builders/places_after.h"

#include <optional>

namespace kvopt::rows {

/// Writes a function into the model in which it was found. Values that do not depend on the rows
/// are not copied again.
class RowFunctionWriter {
public:
  /// `rows` must have the axes of the function's input.
  RowFunctionWriter(const analysis::RowFunction& rowFunction, ir::Value& rows,
                    pattern::Rewriter& edits);

  /// Places the rows after those of `past`, along its axis `axis`. Required for functions that
  /// count rows.
  RowFunctionWriter& after(ir::Value& past, unsigned axis);

  /// Returns the function's result for the rows.
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
  /// Values of the body that differ from the model's, because they depend on the rows.
  llvm::DenseSet<const ir::Value*> changed;
};

} // namespace kvopt::rows
