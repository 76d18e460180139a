// Proofs of the form that a manifest claims.
#include "driver/rewrite/proof.h"

#include "driver/claims/claims.h"
#include "driver/recover.h"
#include "ir/onnx/model_copy.h"
#include "ir/shapes/shape_inference.h"
#include "ir/verify/verifier.h"
#include "ir/views.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::driver {
using namespace ir;
using namespace targets;

namespace {

llvm::Error unproved(const Manifest& manifest, llvm::StringRef cache, llvm::StringRef problem) {
  return invalid("the manifest says that the model was rewritten for '{}', but {}", manifest.target,
                 problem)
      .value(cache)
      .hint("remove the metadata entry kvopt.manifest, or rewrite the model as it was exported");
}

/// Whether `value` is `output`, or becomes it as the result of a subgraph.
bool isHandedOutAs(const Value* value, const Value& output) {
  while (value && value != &output) {
    const Node* holder = value->graph().parentNode();
    const auto slots = value->graph().outputs();
    const auto slot = llvm::find(slots, value);
    if (!holder || !holder->is("If") || slot == slots.end())
      return false;
    const auto index = static_cast<size_t>(slot - slots.begin());
    value = index < holder->results().size() ? &holder->results()[index] : nullptr;
  }
  return value != nullptr;
}

/// Whether an operator that reads `past`, or a view of it, is defined to return its buffer as
/// `present`. Both may be null: a manifest may leave them out.
bool isUpdatedInPlace(const Value* past, const Value* present) {
  if (!past || !present)
    return false;
  const auto isPresent = [&](const Value* view) { return isHandedOutAs(view, *present); };
  const auto returnsBuffer = [&](const Use& use) {
    const OpDef* definition = use.user().definition();
    return definition && llvm::any_of(definition->aliases, [&](const Alias& alias) {
             return alias.kind != Alias::Kind::View && alias.operand == use.operandIndex() &&
                    alias.result < use.user().results().size() &&
                    llvm::any_of(viewsOf(use.user().results()[alias.result]), isPresent);
           });
  };
  return llvm::any_of(viewsOf(*past),
                      [&](const Value* view) { return llvm::any_of(view->uses(), returnsBuffer); });
}

llvm::Error proveOwned(const Graph& graph, const Manifest& manifest) {
  for (const ManifestCache& cache : manifest.caches) {
    for (const std::string& block : cache.blocks())
      if (const Value* input = graph.findValue(block); !input || input->isUnused())
        return unproved(manifest, block, "this block is not read");
    if (cache.isOneBuffer() &&
        !isUpdatedInPlace(graph.findValue(cache.past), graph.findValue(cache.present)))
      return unproved(manifest, cache.past, "this cache is not updated in place");
  }
  return llvm::Error::success();
}

/// Checks that the graph alone shows the same growing caches.
llvm::Error proveGrowing(const Model& model, const Manifest& manifest, const Toolkit& toolkit) {
  auto recovered = recoverCopy(model, toolkit);
  if (!recovered)
    return recovered.takeError();
  const Manifest found = exportedManifest(recovered->model->graph(), recovered->context->sites,
                                          recovered->context->interface);
  for (const ManifestCache& cache : manifest.caches)
    if (llvm::none_of(found.caches, [&](const ManifestCache& other) {
          return other.past == cache.past && other.present == cache.present &&
                 other.sequenceAxis == cache.sequenceAxis;
        }))
      return unproved(manifest, cache.past, "this cache is not found in it");
  return llvm::Error::success();
}

/// A copy with inferred types. The model itself is written without them.
llvm::Expected<std::unique_ptr<Model>> inferredCopy(const Model& model) {
  auto copy = copySharingConstants(model);
  if (!copy)
    return copy.takeError();
  if (llvm::Error error = verify(**copy))
    return withFile(std::move(error), model.path);
  if (llvm::Error error = inferShapes((*copy)->graph()))
    return withFile(std::move(error), model.path);
  return copy;
}

} // namespace

llvm::Error proveRewritten(const Model& model, const Manifest& manifest, const Toolkit& toolkit) {
  auto copy = inferredCopy(model);
  if (!copy)
    return copy.takeError();
  if (llvm::Error error = proveClaims({**copy, manifest}, ClaimScope::All, toolkit))
    return error;
  if (!manifest.ownsCaches())
    return proveGrowing(model, manifest, toolkit);
  return withFile(proveOwned((*copy)->graph(), manifest), model.path);
}

llvm::Error proveCarried(const Model& model, const Manifest& manifest, const Toolkit& toolkit) {
  auto copy = inferredCopy(model);
  if (!copy)
    return copy.takeError();
  return proveClaims({**copy, manifest}, ClaimScope::Carried, toolkit);
}

llvm::Error takeOver(Model& model, Manifest& manifest, const Toolkit& toolkit) {
  llvm::Error error = proveCarried(model, manifest, toolkit);
  if (!error || !manifest.hiddenRowsUndefined)
    return error;
  Manifest exact = manifest;
  exact.hiddenRowsUndefined = false;
  if (llvm::Error other = proveCarried(model, exact, toolkit)) {
    llvm::consumeError(std::move(other));
    return error;
  }
  llvm::consumeError(std::move(error));
  manifest = std::move(exact);
  model.setMetadata(manifestKey, manifest.json());
  return llvm::Error::success();
}

} // namespace kvopt::driver
