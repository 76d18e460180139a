// Caches of other orders of axes in the one that GroupQueryAttention takes.
#include "passes/targets/ort_gqa/gqa_lowering.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace kvopt::targets {
using namespace analysis;
using namespace builders;
using namespace ir;
using namespace pattern;

/// A cache of another order of axes becomes [B,G,C,D].
llvm::Error GqaLowering::normaliseLayout(const SiteCache& update, Value& present) {
  const llvm::SmallVector<int64_t, 4> order = update.layout.rowOrder();
  assert(order.size() == 4);
  auto cache = llvm::find_if(manifest.caches, [&](const ManifestCache& entry) {
    return entry.past == update.past->name();
  });
  if (llvm::is_sorted(order) || cache == manifest.caches.end())
    return llvm::Error::success();
  auto permuted = [&](const TensorType& type) {
    Shape shape;
    for (int64_t axis : order)
      shape.push_back(type.dim(axis));
    return TensorType(type.elementType(), std::move(shape));
  };
  present.setType(permuted(present.type()));
  if (!cache->permutation.empty())
    return llvm::Error::success(); // done for another branch
  Rewriter rewriter(graph, "lower-ort-gqa", journal, update.past->name());
  AttentionBuilder build(rewriter);
  llvm::SmallVector<Node*, 4> readers;
  for (const Use& use : update.past->uses())
    if (use.user().is("Shape"))
      readers.push_back(&use.user());
    else if (!use.user().is("com.microsoft::GroupQueryAttention") &&
             !use.user().is("ai.kvopt::InPlaceKvSdpa"))
      return unsupported("the cache '{}' is also read by {}", update.past->name(),
                         use.user().describe());
  update.past->setType(permuted(update.past->type()));
  auto position = [](int64_t axis) {
    return std::clamp<int64_t>(axis < 0 ? axis + 4 : axis, 0, 4);
  };
  for (Node* reader : readers) {
    // The extents in the former order, for readers in branches, too.
    llvm::SmallVector<int64_t, 4> former;
    const int64_t end = position(reader->intAttr("end", 4));
    for (int64_t axis = position(reader->intAttr("start", 0)); axis < end; ++axis)
      former.push_back(llvm::find(order, axis) - order.begin());
    Node& extents = rewriter.create("Shape", {update.past}, {}, 1, "shape");
    Value& selected = build.node("Gather", {extents.result(), ints(former)}, {}, "extents");
    reader->result().replaceAllUsesWith(selected);
  }
  if (update.output && update.output != &present)
    update.output->setType(permuted(update.output->type()));
  std::vector<ManifestExtent> shape;
  for (int64_t axis : order)
    shape.push_back(cache->shape[static_cast<size_t>(axis)]);
  cache->shape = std::move(shape);
  cache->sequenceAxis = 2;
  cache->permutation.assign(order.begin(), order.end());
  return llvm::Error::success();
}

} // namespace kvopt::targets
