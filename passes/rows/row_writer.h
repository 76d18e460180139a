// RowWriter: rows of a cache joined with new ones, and moved, as operators.
#pragma once

#include "passes/pattern/rewriter.h"
#include "passes/rows/respelled_rows.h"

namespace kvopt::rows {

/// Writes values from their composition. One object serves one edit: rows that it joins once are
/// shared by all readers.
class RowWriter {
public:
  explicit RowWriter(pattern::Rewriter& edits) : rewriter(edits) {}

  /// Concat<axis>(past, new) or ScatterElements<axis>(past, places, new), where `new` has the
  /// cache's layout, followed by Slice, Transpose, Expand and Reshape. Null if an extent cannot be
  /// computed from those of inputs.
  ir::Value* write(const RespelledRows& rows);

  /// A cache joined with new rows.
  struct Joined {
    const ir::Value* past = nullptr;
    const ir::Value* fresh = nullptr;
    const ir::Value* place = nullptr; ///< places of the new rows; null: they are appended
    ir::Value* value = nullptr;
  };
  llvm::ArrayRef<Joined> joined() const { return made; }

private:
  ir::Value* join(const RespelledRows& rows);

  pattern::Rewriter& rewriter;
  std::vector<Joined> made;
};

} // namespace kvopt::rows
