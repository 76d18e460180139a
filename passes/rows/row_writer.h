// RowWriter: rows of a cache joined with new ones, and moved, as operators.
#pragma once

#include "passes/pattern/rewriter.h"
#include "passes/rows/respelled_rows.h"

namespace kvopt::rows {

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
