// Copies of models, recovered.
#include "driver/verify/read_model.h"

#include "ir/onnx/model_copy.h"
#include "ir/shapes/shape_inference.h"
#include "runtime/equivalence/quantized_model.h"

namespace kvopt::driver {
using namespace ir;
using namespace passes;
using namespace runtime;

namespace {

/// A copy whose caches hold numbers, with the manifest of that model in its metadata.
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
  RecoveryOptions options;
  options.readsRows = true;
  return recoverCopy(**copy, toolkit, options);
}

} // namespace kvopt::driver
