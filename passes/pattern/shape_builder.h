// ShapeBuilder: integer vectors of symbolic extents, for rewrites that need a new shape operand.
#pragma once

#include "passes/pattern/rewriter.h"

namespace kvopt::pattern {

/// Builds shapes from constants and from extents of graph inputs, which cannot create a cycle. One
/// object serves one rewrite; nodes are created through `rewriter`. A result is null if an extent
/// is not a polynomial in symbols that are extents of graph inputs; then only unread nodes remain.
class ShapeBuilder {
public:
  explicit ShapeBuilder(Rewriter& graphRewriter) : rewriter(graphRewriter) {}

  /// int64[extents.size()], the form that Expand takes.
  ir::Value* vector(llvm::ArrayRef<ir::Dim> extents);

  /// `data` with another shape of the same size; `data` itself if it provably has that shape. Uses
  /// an Unsqueeze or Squeeze if possible. Otherwise it uses a Reshape that copies an extent (0)
  /// from the same axis of `data` and infers one extent (-1) if all others are provably positive.
  ir::Value* reshape(ir::Value& data, llvm::ArrayRef<ir::Dim> extents, llvm::StringRef hint = "");

  /// `data` broadcast to `extents`; `data` itself if it provably has that shape.
  ir::Value* expand(ir::Value& data, llvm::ArrayRef<ir::Dim> extents, llvm::StringRef hint = "");

private:
  /// Adds or removes axes of extent 1 with an Unsqueeze or Squeeze.
  ir::Value* changeUnits(const char* op, ir::Value& data, std::vector<int64_t> axes,
                         llvm::StringRef hint);
  /// int64[1].
  ir::Value* element(const ir::Dim& extent, unsigned depth = 0);
  ir::Value* readInput(const ir::Dim& extent);
  ir::Value* shapeEntry(ir::Value& input, unsigned axis);

  Rewriter& rewriter;
  llvm::SmallVector<std::pair<ir::Dim, ir::Value*>, 4> made;
};

/// Whether the ranks are equal and every pair of extents is provably equal.
bool isKnownSameShape(llvm::ArrayRef<ir::Dim> a, llvm::ArrayRef<ir::Dim> b);

} // namespace kvopt::pattern
