// ShapeBuilder: integer vectors of symbolic extents, for rewrites that need a new shape operand.
#pragma once

#include "passes/pattern/rewriter.h"

namespace kvopt::pattern {

/// Builds shapes from constants and from extents of graph inputs, on which nothing in a graph can
/// be depended on in a circle. One object serves one rewrite; nodes are created through `rewriter`.
/// Results are null, with nothing left behind but unread nodes, where an extent is no polynomial in
/// symbols that are extents of graph inputs.
class ShapeBuilder {
public:
  explicit ShapeBuilder(Rewriter& graphRewriter) : rewriter(graphRewriter) {}

  /// int64[extents.size()], as Expand takes it.
  ir::Value* vector(llvm::ArrayRef<ir::Dim> extents);

  /// `data` under another shape with as many elements; `data` itself if it provably has that shape.
  /// An Unsqueeze or Squeeze where that will do; else a Reshape, in which an extent that stands at
  /// the same axis of `data` is copied (0) and one extent is inferred (-1) where all others are
  /// positive for sure.
  ir::Value* reshape(ir::Value& data, llvm::ArrayRef<ir::Dim> extents, llvm::StringRef hint = "");

  /// `data` broadcast to `extents`; `data` itself if it provably has that shape.
  ir::Value* expand(ir::Value& data, llvm::ArrayRef<ir::Dim> extents, llvm::StringRef hint = "");

private:
  /// Unsqueeze or Squeeze.
  ir::Value* changeUnits(const char* op, ir::Value& data, std::vector<int64_t> axes,
                         llvm::StringRef hint);
  /// int64[1].
  ir::Value* element(const ir::Dim& extent, unsigned depth = 0);
  ir::Value* readInput(const ir::Dim& extent);
  ir::Value* shapeEntry(ir::Value& input, unsigned axis);

  Rewriter& rewriter;
  llvm::SmallVector<std::pair<ir::Dim, ir::Value*>, 4> made;
};

/// Same rank, and every extent provably equal.
bool isKnownSameShape(llvm::ArrayRef<ir::Dim> a, llvm::ArrayRef<ir::Dim> b);

} // namespace kvopt::pattern
