// Layouts of caches and new rows.
#include "passes/targets/support/cache_rows.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::targets {
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

constexpr std::pair<const char*, CacheForm> forms[] = {
    {"SBHD", {4, 0}}, {"BSHD", {4, 1}}, {"BHSD", {4, 2}},   {"BHDS", {4, 3}}, {"(BH)SD", {3, 1}},
    {"BSD", {3, 1}},  {"HSD", {3, 1}},  {"(BH)DS", {3, 2}}, {"BDS", {3, 2}},  {"HDS", {3, 2}},
};

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
  // Two transpositions in a row are one or none.
  Node* before = value.producer();
  auto inner = before && before->op() == "Transpose" ? before->intsAttr("perm") : std::nullopt;
  if (inner && inner->size() == order.size()) {
    for (size_t i = 0; i < order.size(); ++i)
      composed[i] = (*inner)[static_cast<size_t>(order[i])];
    source = before->operand(0);
    if (llvm::is_sorted(composed))
      return *source;
  }
  std::vector<NamedAttribute> attributes;
  attributes.push_back({"perm", Attribute::ofInts(composed)});
  return rewriter.create("Transpose", {source}, std::move(attributes), 1, "new_rows").result();
}

std::optional<CacheForm> inPlaceForm(const CacheLayout& layout, bool transposable) {
  std::string text = layout.text();
  for (const auto& [letters, form] : forms)
    if (text == letters && (transposable || text.back() != 'S'))
      return form;
  return std::nullopt;
}

Value& canonicalRows(Value& fresh, const CacheLayout& layout, Value& like, const Dim& groups,
                     const Dim& width, Rewriter& rewriter) {
  llvm::SmallVector<int64_t, 4> order;
  if (layout.axes.size() == 4) {
    for (const char* letter : {"B", "H", "S", "D"})
      order.push_back(llvm::find(layout.axes, letter) - layout.axes.begin());
    return transposed(fresh, order, rewriter);
  }
  bool columnsFirst = layout.axes[1] == "D";
  Value& rows = transposed(
      fresh, columnsFirst ? llvm::ArrayRef<int64_t>{0, 2, 1} : llvm::ArrayRef<int64_t>{0, 1, 2},
      rewriter);
  Value& heads = rewriter.constant("heads", int64Tensor({*groups.value()}));
  Value& columns = rewriter.constant("width", int64Tensor({*width.value()}));
  std::vector<NamedAttribute> attributes;
  attributes.push_back({"axis", Attribute::ofInt(0)});
  Value& shape =
      rewriter
          .create("Concat",
                  {&extentOf(like, 0, rewriter), &heads, &extentOf(like, 2, rewriter), &columns},
                  std::move(attributes), 1, "rows_shape")
          .result();
  return rewriter.create("Reshape", {&rows, &shape}, {}, 1, "new_rows").result();
}

} // namespace kvopt::targets
