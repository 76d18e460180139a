// Opening and recovery of models.
#include "driver/recover.h"

#include "ir/onnx/external_check.h"
#include "ir/onnx/import.h"
#include "ir/onnx/model_copy.h"
#include "ir/onnx/model_files.h"
#include "passes/extents/unequal_extents.h"
#include "passes/known_names.h"
#include "support/diagnostic.h"
#include "support/nearest_word.h"
#include "support/progress.h"

namespace kvopt::driver {
using namespace analysis;
using namespace ir;
using namespace passes;
using namespace pattern;
using namespace targets;

namespace {

/// Imports the model. The files of a model that cannot be imported are registered, too.
llvm::Expected<std::unique_ptr<Model>> importSource(const ModelSource& source,
                                                    const Toolkit& toolkit) {
  if (source.bytes)
    return importModelBytes(std::as_bytes(std::span(*source.bytes)),
                            source.folder.value_or(ConfinedFolder()), toolkit.ops, toolkit.limits);
  auto model = importModel(source.path, toolkit.ops, toolkit.limits);
  if (model || !toolkit.files)
    return model;
  const std::string& path = source.path;
  if (llvm::Error error = toolkit.files->readsLater([path] { return filesOfModelAt(path); })) {
    llvm::consumeError(model.takeError());
    return error;
  }
  return model;
}

llvm::Error checkFiles(const Model& model, const ModelSource& source, const Toolkit& toolkit) {
  if (source.bytes && !source.folder)
    if (const std::vector<std::string> external = externalLocationsOf(model); !external.empty())
      return invalid("has external data in '{}', and no folder is given", external.front());
  if (toolkit.files)
    if (llvm::Error error = registerFiles(model, *toolkit.files))
      return error;
  return withFile(checkExternalData(model), source.path);
}

} // namespace

llvm::Expected<std::unique_ptr<Model>> openModel(const ModelSource& source,
                                                 const Toolkit& toolkit) {
  auto model = importSource(source, toolkit);
  if (!model)
    return model;
  if (llvm::Error error = checkFiles(**model, source, toolkit))
    return error;
  // Every command refuses an invalid manifest, even if it does not use it.
  if (auto manifest = manifestOf(**model); !manifest)
    return withFile(manifest.takeError(), source.path);
  (*model)->unequalExtents = extents::separateUnequalExtents(**model);
  return model;
}

namespace {

llvm::Expected<RecoveredModel> recover(std::unique_ptr<Model> model, const Toolkit& toolkit,
                                       const RecoveryOptions& options) {
  RecoveredModel recovered;
  recovered.model = std::move(model);
  for (const auto& [domain, version] : recovered.model->opsets)
    recovered.opsets[domain] = version;
  recovered.opset = recovered.model->graph().opsetVersion();
  recovered.context = std::make_unique<PassContext>(toolkit.rules, toolkit.targets);
  recovered.context->nearMisses = options.nearMisses;
  recovered.context->matcher = options.matcher;
  PassManagerOptions settings;
  settings.progress = toolkit.progress;
  if (llvm::Error error = disable(options.disabled, toolkit, *recovered.context, settings))
    return error;
  PassManager manager(toolkit.passes, settings);
  if (options.addBefore)
    options.addBefore(manager);
  if (options.restoresCaches)
    manager.addNamed({"restore-caches"});
  manager.addNamed(recoveryPasses);
  if (llvm::Error error = manager.run(*recovered.model, *recovered.context))
    return withFile(std::move(error), recovered.model->path);
  recovered.timings = manager.timings();
  return recovered;
}

} // namespace

llvm::Expected<RecoveredModel> recoverModel(const ModelSource& source, const Toolkit& toolkit,
                                            const RecoveryOptions& options) {
  const Progress progress(toolkit.progress, "reading " + source.path);
  auto model = openModel(source, toolkit);
  if (!model)
    return model.takeError();
  auto manifest = manifestOf(**model);
  if (!manifest)
    return withFile(manifest.takeError(), source.path);
  const std::string target = *manifest && (*manifest)->ownsCaches() ? (*manifest)->target : "";
  RecoveryOptions asAsked = options;
  asAsked.restoresCaches &= !target.empty();
  auto recovered = recover(std::move(*model), toolkit, asAsked);
  if (!recovered && asAsked.restoresCaches) {
    // A model that cannot be converted back is shown as it is.
    if (!recovered.errorIsA<RefusedError>())
      return recovered;
    llvm::consumeError(recovered.takeError());
    asAsked.restoresCaches = false;
    auto again = openModel(source, toolkit);
    if (!again)
      return again.takeError();
    recovered = recover(std::move(*again), toolkit, asAsked);
  }
  if (recovered)
    recovered->writtenFor = target;
  if (recovered && *manifest)
    recovered->comparison = std::move((*manifest)->comparison);
  return recovered;
}

llvm::Expected<RecoveredModel> recoverCopy(const Model& model, const Toolkit& toolkit,
                                           const RecoveryOptions& options) {
  auto copy = copySharingConstants(model);
  if (!copy)
    return copy.takeError();
  return recover(std::move(*copy), toolkit, options);
}

NearMissList listenToRaising(const Toolkit& toolkit, std::vector<std::string> more) {
  for (const RuleRegistry::Entry& entry : toolkit.rules.all())
    if (entry.rule->group() == RuleGroup::Raise)
      more.push_back(entry.rule->name().str());
  return NearMissList(more);
}

namespace {

/// The names of all rules and passes.
std::vector<std::string> rulesAndPasses(const Toolkit& toolkit) {
  std::vector<std::string> names = ruleNames(toolkit.rules);
  for (const std::string& pass : passNames(toolkit.passes))
    names.push_back(pass);
  return names;
}

} // namespace

llvm::Error disable(llvm::ArrayRef<std::string> names, const Toolkit& toolkit, PassContext& context,
                    PassManagerOptions& settings) {
  for (const std::string& name : names) {
    bool isPass = toolkit.passes.find(name) != nullptr;
    bool isRule = toolkit.rules.find(name) != nullptr;
    if (!isPass && !isRule)
      return usageError("--disable: there is no rule or pass '{}'{}", name,
                        didYouMean(name, rulesAndPasses(toolkit)))
          .hint("kvopt list rules, kvopt list passes");
    if (isPass) {
      settings.disabledPasses.push_back(name);
      context.disabledPasses.push_back(name);
    }
    if (isRule)
      context.disabledRules.push_back(name);
  }
  return llvm::Error::success();
}

std::optional<ContextRotations> contextRotationsOf(const RecoveredModel& recovered) {
  auto found = findContextRotations(recovered.model->graph(), recovered.context->sites);
  if (auto* rotations = std::get_if<ContextRotations>(&found))
    return std::move(*rotations);
  recovered.context->shiftFailure = std::move(std::get<MatchFailure>(found));
  return std::nullopt;
}

Manifest derivedManifest(RecoveredModel& recovered, Rotations rotations) {
  PassContext& context = *recovered.context;
  Manifest manifest = exportedManifest(recovered.model->graph(), context.sites, context.interface);
  addWindows(context.sites, manifest);
  addReaders(context.sites, manifest);
  context.history.undo(manifest);
  addReorder(recovered.model->graph(), context.reorder, manifest);
  if (rotations == Rotations::Included)
    noteRotations(contextRotationsOf(recovered), context.history.attendedPasts(), manifest);
  return manifest;
}

llvm::Expected<Manifest> drivingManifest(const Model& model, const Toolkit& toolkit,
                                         Rotations rotations) {
  auto stored = manifestOf(model);
  if (!stored)
    return withFile(stored.takeError(), model.path);
  if (*stored)
    return std::move(**stored);
  auto recovered = recoverCopy(model, toolkit);
  if (!recovered)
    return recovered.takeError();
  return derivedManifest(*recovered, rotations);
}

} // namespace kvopt::driver
