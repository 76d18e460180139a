// Recovery.
#include "cli/recover.h"

#include "ir/onnx_import.h"

namespace kvopt {

llvm::Expected<RecoveredModel> recoverModel(const std::string& path, const Registries& registries,
                                            NearMissList* nearMisses) {
  auto model = importModel(path, registries.ops);
  if (!model)
    return model.takeError();
  RecoveredModel recovered;
  recovered.model = std::move(*model);
  recovered.context = std::make_unique<PassContext>(registries.rules, registries.targets);
  recovered.context->nearMisses = nearMisses;
  PassManager manager(registries.passes, {});
  if (llvm::Error error = manager.addPipeline(recoveryPipeline))
    return error;
  if (llvm::Error error = manager.run(*recovered.model, *recovered.context))
    return withFile(std::move(error), path);
  return recovered;
}

llvm::Expected<Manifest> drivingManifest(const Model& model, const std::string& path,
                                         const Registries& registries) {
  auto stored = manifestOf(model);
  if (!stored)
    return withFile(stored.takeError(), path);
  if (*stored)
    return **stored;
  auto recovered = recoverModel(path, registries);
  if (!recovered)
    return recovered.takeError();
  return drivingManifest(recovered->model->graph(), recovered->context->sites);
}

} // namespace kvopt
