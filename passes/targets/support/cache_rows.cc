// Layouts of caches and new rows.
#include "passes/targets/support/cache_rows.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::targets {
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

/// One extent of a tensor as int64 [1].
Value& extentOf(Value& value, int64_t axis, Rewriter& rewriter) {
  Value& shape = rewriter.create("Shape", {&value}, {}, 1, "extents").result();
  Value& index = rewriter.constant("axis", int64Tensor({axis}));
  return rewriter.create("Gather", {&shape, &index}, {}, 1, "extent").result();
}

} // namespace

Value& transposed(Value& value, llvm::ArrayRef<int64_t> order, Rewriter& rewriter) {
  if (llvm::is_sorted(order))
    return value;
  std::vector<int64_t> composed(order.begin(), order.end());
  Value* source = &value;
  // Two consecutive transpositions are one or none.
  Node* before = value.producer();
  auto inner = before && before->op() == "Transpose" ? before->intsAttr("perm") : std::nullopt;
  if (inner && inner->size() == order.size()) {
    for (size_t i = 0; i < order.size(); ++i)
      composed[i] = (*inner)[static_cast<size_t>(order[i])];
    source = before->operand(0);
    if (llvm::is_sorted(composed))
      return *source;
  }
  return rewriter.create("Transpose", {source}, attrs({{"perm", composed}}), 1, "new_rows")
      .result();
}

std::optional<CacheLayout> inPlaceLayout(const CacheLayout& layout, bool transposable) {
  const std::optional<unsigned> sequence = layout.axisOf('S');
  if (!sequence)
    return std::nullopt;
  std::optional<CacheLayout> told = CacheLayout::bySequenceAxis(layout.rank(), *sequence);
  std::string text = layout.text();
  // If there is a single head or a single batch row, the other one determines the letter of the
  // axis.
  if (layout.rank() == 3 && (text.front() == 'B' || text.front() == 'H'))
    text.replace(0, 1, "(BH)");
  if (!told || told->text() != text || (told->isTransposed() && !transposable))
    return std::nullopt;
  return told;
}

std::optional<CacheLayout> unflattened(const CacheLayout& layout) {
  llvm::StringRef text = layout.text();
  if (!text.consume_back("(HD)") || text.contains('('))
    return std::nullopt;
  return CacheLayout::parse((text + "HD").str());
}

Value& canonicalRows(Value& fresh, const CacheLayout& layout, Value& like, const Dim& groups,
                     const Dim& width, Rewriter& rewriter) {
  if (const std::optional<CacheLayout> apart = unflattened(layout)) {
    Value& shape =
        rewriter.constant("rows_shape", int64Tensor({0, 0, *groups.value(), *width.value()}));
    Value& rows = rewriter.create("Reshape", {&fresh, &shape}, {}, 1, "rows").result();
    return transposed(rows, apart->rowOrder(), rewriter);
  }
  Value& rows = transposed(fresh, layout.rowOrder(), rewriter);
  if (layout.rank() == 4)
    return rows;
  Value& heads = rewriter.constant("heads", int64Tensor({*groups.value()}));
  Value& columns = rewriter.constant("width", int64Tensor({*width.value()}));
  Value& shape =
      rewriter
          .create("Concat",
                  {&extentOf(like, 0, rewriter), &heads, &extentOf(like, 2, rewriter), &columns},
                  attrs({{"axis", 0}}), 1, "rows_shape")
          .result();
  return rewriter.create("Reshape", {&rows, &shape}, {}, 1, "new_rows").result();
}

} // namespace kvopt::targets
