// How a model keeps the last rows.
#include "check/caches/sliding_cache.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::check {

bool isSliding(const ir::Graph& graph, const ir::ManifestCache& cache) {
  if (cache.update() != ir::CacheUpdate::Ring || cache.isOneBuffer())
    return false;
  const ir::Value* present = graph.findValue(cache.present);
  const ir::Node* slice = present ? present->producer() : nullptr;
  const ir::Node* joined =
      slice && slice->is("Slice") && slice->operand(0) ? slice->operand(0)->producer() : nullptr;
  return joined && joined->is("Concat") &&
         llvm::any_of(joined->operands(), [&](const ir::Use& use) {
           return use.value() && use.value()->name() == cache.past;
         });
}

} // namespace kvopt::check
