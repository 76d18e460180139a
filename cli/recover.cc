// Recovery.
#include "cli/recover.h"

#include "cli/site_facts.h"
#include "ir/diagnostic.h"
#include "ir/external_check.h"
#include "ir/onnx_import.h"

namespace kvopt {

llvm::Expected<std::unique_ptr<Model>> openModel(const std::string& path,
                                                 const Registries& registries) {
  auto model = importModel(path, registries.ops, registries.limits);
  if (!model)
    return model.takeError();
  if (llvm::Error error = checkExternalData(**model))
    return withFile(std::move(error), path);
  // Refused by every command, whether it uses the manifest or not.
  if (auto manifest = manifestOf(**model); !manifest)
    return withFile(manifest.takeError(), path);
  return model;
}

llvm::Expected<RecoveredModel> recoverModel(const std::string& path, const Registries& registries,
                                            const RecoveryOptions& options) {
  auto model = openModel(path, registries);
  if (!model)
    return model.takeError();
  RecoveredModel recovered;
  recovered.model = std::move(*model);
  for (const auto& [domain, version] : recovered.model->opsets)
    recovered.opsets[domain] = version;
  recovered.opset = recovered.model->graph().opsetVersion();
  recovered.context = std::make_unique<PassContext>(registries.rules, registries.targets);
  recovered.context->nearMisses = options.nearMisses;
  recovered.context->matcher = options.matcher;
  PassManagerOptions settings;
  if (llvm::Error error = disable(options.disabled, registries, *recovered.context, settings))
    return error;
  PassManager manager(registries.passes, settings);
  if (llvm::Error error = manager.addPipeline(recoveryPipeline))
    return error;
  if (llvm::Error error = manager.run(*recovered.model, *recovered.context))
    return withFile(std::move(error), path);
  recovered.timings = manager.timings();
  return recovered;
}

NearMissList listenToRaising(const Registries& registries, std::vector<std::string> more) {
  for (const RuleRegistry::Entry& entry : registries.rules.all())
    if (entry.rule->group() == RuleGroup::Raise)
      more.push_back(entry.rule->name().str());
  return NearMissList(more);
}

llvm::Error disable(llvm::ArrayRef<std::string> names, const Registries& registries,
                    PassContext& context, PassManagerOptions& settings) {
  for (const std::string& name : names) {
    bool isPass = registries.passes.find(name) != nullptr;
    bool isRule = registries.rules.find(name) != nullptr;
    if (!isPass && !isRule)
      return usageError("--disable: there is no rule and no pass '{}'", name)
          .hint("see: kvopt list rules, kvopt list passes");
    if (isPass)
      settings.disabledPasses.push_back(name);
    if (isRule)
      context.disabledRules.push_back(name);
  }
  return llvm::Error::success();
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
  const SiteList& sites = recovered->context->sites;
  Manifest manifest = drivingManifest(recovered->model->graph(), sites);
  for (ManifestCache& cache : manifest.caches)
    for (const AttentionSite& site : sites)
      if (site.hasCache() &&
          (site.key->past->name() == cache.past || site.value->past->name() == cache.past))
        cache.window = windowOf(site);
  return manifest;
}

} // namespace kvopt
