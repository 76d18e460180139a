// ShapeBuilder: integer vectors of symbolic extents, for rewrites that need a new shape operand.
#pragma once

#include "passes/pattern/rewriter.h"

namespace kvopt {

/// Builds shapes from constants and from extents of graph inputs, on which nothing in a graph can
/// be depended on in a circle. One object serves one rewrite; nodes are created through `rewriter`.
/// Results are null, with nothing left behind but unread nodes, where an extent is no polynomial in
/// symbols that are extents of graph inputs.
class ShapeBuilder {
public:
  explicit ShapeBuilder(Rewriter& graphRewriter) : rewriter(graphRewriter) {}

  /// int64[extents.size()], as Expand takes it.
  Value* vector(llvm::ArrayRef<Dim> extents);

  /// `data` under another shape with as many elements; `data` itself if it provably has that shape.
  /// An Unsqueeze or Squeeze where that will do; else a Reshape, in which an extent that stands at
  /// the same axis of `data` is copied (0) and one extent is inferred (-1) where all others are
  /// positive for sure.
  Value* reshape(Value& data, llvm::ArrayRef<Dim> extents, llvm::StringRef hint = "");

  /// `data` broadcast to `extents`; `data` itself if it provably has that shape.
  Value* expand(Value& data, llvm::ArrayRef<Dim> extents, llvm::StringRef hint = "");

private:
  /// Unsqueeze or Squeeze.
  Value* changeUnits(const char* op, Value& data, std::vector<int64_t> axes, llvm::StringRef hint);
  /// int64[1].
  Value* element(const Dim& extent, unsigned depth = 0);
  Value* readInput(const Dim& extent);
  Value* shapeEntry(Value& input, unsigned axis);

  Rewriter& rewriter;
  llvm::SmallVector<std::pair<Dim, Value*>, 4> made;
};

/// Same rank, and every extent provably equal.
bool isKnownSameShape(llvm::ArrayRef<Dim> a, llvm::ArrayRef<Dim> b);

} // namespace kvopt
