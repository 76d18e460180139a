// Recovery of copies of models.
#include "driver/claims/read_model.h"

#include "ir/onnx/model_copy.h"
#include "ir/shapes/shape_inference.h"
#include "passes/transforms/configured_passes.h"
#include "passes/unrounding/quantized_model.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::driver {
using namespace ir;
using namespace passes;
using namespace unrounding;

namespace {

/// A copy whose caches hold numbers instead of codes, with a manifest in its metadata that says so.
llvm::Expected<std::unique_ptr<Model>> copyWithNumbers(const Model& model,
                                                       const Manifest& manifest) {
  auto copy = copySharingConstants(model);
  if (!copy || !hasQuantizedCaches(manifest))
    return copy;
  if (llvm::Error error = inferShapes((*copy)->graph()))
    return error;
  Manifest numbers = manifest;
  if (llvm::Error error = unquantize(**copy, numbers, {/*rowScales=*/true, /*groupCodes=*/false}))
    return error;
  (*copy)->setMetadata(manifestKey, numbers.json());
  return copy;
}

/// Adds the passes that keep only the branch with a past of a model with branches.
void addPastBranch(PassManager& manager, const Manifest& manifest) {
  for (const ManifestLength& length : manifest.lengths)
    if (isFlag(length.feed))
      manager.add("specialise-branch",
                  transforms::makeBranch(length.input, length.feed == LengthFeed::HasPast));
}

/// Removes the inputs that chose a branch from the manifest of a copy, which no longer has them.
llvm::Error dropFlags(Model& copy) {
  auto stored = manifestOf(copy);
  if (!stored)
    return stored.takeError();
  const auto choosesBranch = [](const ManifestLength& length) { return isFlag(length.feed); };
  if (!*stored || llvm::none_of((*stored)->lengths, choosesBranch))
    return llvm::Error::success();
  llvm::erase_if((*stored)->lengths, choosesBranch);
  copy.setMetadata(manifestKey, (*stored)->json());
  return llvm::Error::success();
}

/// Removes all operands of an ai.kvopt::Sdpa but its rows and sinks.
void dropMask(Node& attention) {
  llvm::SmallVector<Value*, 6> operands;
  for (const Use& use : attention.operands())
    operands.push_back(use.operandIndex() == 3 ? nullptr : use.value());
  while (!operands.back())
    operands.pop_back();
  attention.setOperands(operands);
}

} // namespace

llvm::Expected<RecoveredModel> readModel(const Model& model, const Manifest& manifest,
                                         const Toolkit& toolkit) {
  auto copy = copyWithNumbers(model, manifest);
  if (!copy)
    return copy.takeError();
  RecoveryOptions options;
  options.restoresCaches = manifest.ownsCaches();
  auto recovered = recoverCopy(**copy, toolkit, options);
  if (recovered || !options.restoresCaches || !recovered.errorIsA<RefusedError>())
    return recovered;
  llvm::consumeError(recovered.takeError());
  options.restoresCaches = false;
  return recoverCopy(**copy, toolkit, options);
}

llvm::Expected<RecoveredModel> readRows(const Model& model, const Manifest& manifest,
                                        const Toolkit& toolkit) {
  auto copy = copyWithNumbers(model, manifest);
  if (!copy)
    return copy.takeError();
  if (llvm::Error error = dropFlags(**copy))
    return error;
  RecoveryOptions options;
  options.addBefore = [&](PassManager& manager) {
    addPastBranch(manager, manifest);
    manager.addNamed({"read-cached-rows"});
  };
  auto recovered = recoverCopy(**copy, toolkit, options);
  if (recovered)
    for (auto& site : recovered->context->sites) {
      site.mask.reset();
      if (site.node->is("ai.kvopt::Sdpa"))
        dropMask(*site.node);
    }
  return recovered;
}

} // namespace kvopt::driver
