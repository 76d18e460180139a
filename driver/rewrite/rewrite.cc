// Recovery and lowering in one pipeline, repeated without the attention layers that stay as they
// are.
#include "driver/rewrite/rewrite.h"

#include "driver/check/check_files.h"
#include "driver/first_step.h"
#include "driver/forms/form_table.h"
#include "driver/recover.h"
#include "driver/rewrite/cache_bytes.h"
#include "driver/rewrite/proof.h"
#include "driver/rewrite/rewrite_forms.h"
#include "driver/rewrite/rewrite_passes.h"
#include "driver/rewrite/shared_buffers.h"
#include "driver/roles/driving.h"
#include "ir/onnx/model_copy.h"
#include "ir/shapes/shape_inference.h"
#include "passes/analysis/cache/cache_origins.h"
#include "passes/analysis/scores/attention_like.h"
#include "passes/targets/ort_gqa/code_caches.h"
#include "support/diagnostic.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <chrono>

namespace kvopt::driver {
using namespace analysis;
using namespace ir;
using namespace passes;
using namespace pattern;
using namespace targets;

ModelSize sizeOf(Model& model) {
  return {countOps(model.graph()), model.graph().opsetVersion(), model.irVersion};
}

namespace {

/// Whether the site was recovered and not lowered.
bool isKept(const AttentionSite& site, const PassContext& passes) {
  return site.node->op() == OpName("ai.kvopt::Sdpa") &&
         !llvm::is_contained(passes.lowered, site.layer);
}

bool keepsRecovered(const PassContext& passes) {
  return llvm::any_of(passes.sites,
                      [&](const AttentionSite& site) { return isKept(site, passes); });
}

/// The roots of raised attention that was not lowered.
llvm::StringSet<> sitesToLeaveAlone(const PassContext& passes) {
  llvm::StringMap<std::string> roots = raisedRoots(passes.journal, [&](llvm::StringRef name) {
    const RuleRegistry::Entry* entry = passes.rules.find(name);
    return entry && entry->rule->group() == RuleGroup::Raise;
  });
  llvm::StringSet<> names;
  for (const AttentionSite& site : passes.sites)
    if (isKept(site, passes))
      if (std::string root = roots.lookup(site.node->name()); !root.empty())
        names.insert(root);
  return names;
}

/// Whether, according to the manifest, kvopt wrote the whole model for the same target with the
/// same capacity.
bool isWritten(const Model& model, const Manifest& manifest, const TargetChoice& target,
               const RewriteRequest& request) {
  if (manifest.target != target.target->name() || !request.layers.empty() ||
      model.findMetadata(partialKey) ||
      (manifest.blockSize != 0 && manifest.blockSize != target.size) ||
      (manifest.stepLimit && manifest.stepLimit != target.size) ||
      (manifest.tiles && (manifest.tiles->state == ElementType::Float16) !=
                             (request.tileState == ElementType::Float16)))
    return false;
  return !manifest.ownsCaches() || request.capacity == manifest.capacityValue;
}

RefusedModel refusal(std::string message, const SiteList& sites = {}) {
  RefusedModel refused{std::move(message), {}, sites.size(), {}, std::nullopt};
  for (const AttentionSite& site : sites)
    if (!site.isMatched())
      refused.sites.push_back({site.layer, *site.failure});
  return refused;
}

std::string namesOf(const transforms::FreedAxes& axes) {
  llvm::SmallVector<llvm::StringRef, 3> names;
  if (axes.batch)
    names.push_back("batch");
  if (axes.sequence)
    names.push_back("sequence");
  if (axes.past)
    names.push_back("past");
  return llvm::join(names, " and ");
}

/// Number of attention operators in a main graph, by name; nullopt if some attention consists of
/// several operators.
std::optional<std::map<std::string, int64_t>> fusedAttention(const ir::Graph& graph) {
  std::map<std::string, int64_t> operators;
  for (const Node& node : graph.nodes()) {
    if (isSoftmax(node) && isAttentionLike(node))
      return std::nullopt;
    if (isAttentionOperator(node))
      ++operators[node.op().str()];
  }
  return operators;
}

/// Whether the target refuses every layer because its own operator updates the caches already, and
/// the request asks for nothing else.
bool isInPlaceAlready(const RewriteRequest& request, const SiteList& sites) {
  return !request.addCaches && !request.freeExtents && !request.oneBranch &&
         request.padding == PaddedRows::Any && !request.capacity && !sites.empty() &&
         llvm::all_of(sites, [](const AttentionSite& site) {
           return site.failure && site.failure->code == ReasonCode::AlreadyInPlace;
         });
}

/// Fails for options that exclude each other.
llvm::Error checkRequest(const RewriteRequest& request, const Target& target) {
  if (request.oneBranch && request.verification == VerificationExtent::Off)
    return usageError("--one-branch takes for granted what --verify compares: that must not be "
                      "off");
  if (request.addCaches && target.quantizesCaches())
    return usageError("caches are not added and quantized at once: the results would be compared "
                      "with those of a model that has no rows to quantize")
        .hint(formatted("add caches first, and rewrite what was written with --to {}",
                        targetText(request.form)));
  return llvm::Error::success();
}

/// Fails for a cache with a fixed number of rows that has no room for more, because of the reason.
llvm::Error checkFreedRoom(const PassContext& passes, const Form& form, const std::string& reason) {
  const Dim& past = passes.freed->symbols.past;
  if (past.value().value_or(0) == 0 || !passes.manifest || !passes.manifest->ownsCaches())
    return llvm::Error::success();
  return unsupported("caches stay at {} rows, and '{}' needs room for more: {}", *past.value(),
                     targetText(form), reason)
      .as<RefusedError>();
}

/// Adds a comparison to the result, and its claim to the manifest and to the metadata of `written`.
template <class Result>
void addComparison(RewriteComparison comparison, Model& written, Result& result) {
  static_cast<RewriteComparison&>(result) = std::move(comparison);
  result.manifest.comparison = result.claim;
  written.setMetadata(manifestKey, result.manifest.json());
}

/// Fails for a calibration without codes that need it, and for codes that lack a calibration.
llvm::Error checkCodes(const RewriteRequest& request, const Toolkit& toolkit) {
  if (request.form.calibratedBits() == 0)
    return request.calibration.empty()
               ? llvm::Error::success()
               : llvm::Error(usageError("--calibration-text and --calibration-tokens require "
                                        "--to ort with --rows int8 or int4"));
  if (request.addCaches)
    return usageError("caches cannot be added and quantized in one run").hint("add caches first");
  if (request.calibration.empty())
    return usageError("--rows {} with --to ort needs a calibration text to determine the scales",
                      wordOf(request.form.rows))
        .hint("--calibration-text FILE or --calibration-tokens FILE; --to kvopt needs no text");
  if (!toolkit.runner)
    return needsRuntime("a calibration");
  return llvm::Error::success();
}

class Rewrite {
public:
  Rewrite(std::unique_ptr<Model> readModel, const RewriteRequest& given, const Toolkit& known)
      : model(std::move(readModel)), source(given.source.value_or(ModelSource(model->path))),
        path(source.bytes ? "the model" : source.path),
        digest(given.verification == VerificationExtent::Off ? "" : digestOf(*model)),
        request(given), toolkit(known) {}

  llvm::Expected<RewriteResult> run() {
    const auto start = std::chrono::steady_clock::now();
    auto chosen = targetFor(request.form, toolkit.targets);
    if (!chosen)
      return chosen.takeError();
    target = *chosen;
    const ModelSize before = sizeOf(*model);
    auto written = manifestOf(*model);
    if (!written)
      return withFile(written.takeError(), path);
    if (llvm::Error error = checkRequest(request, *target.target))
      return error;
    if (llvm::Error error = checkCodes(request, toolkit))
      return error;
    if (*written && !request.addCaches && !request.freeExtents && !changesRows() &&
        !request.oneBranch && isWritten(*model, **written, target, request)) {
      if (llvm::Error error = proveRewritten(*model, **written, toolkit))
        return error;
      if (auto first = openFirstStep(source, **written, toolkit); !first)
        return first.takeError();
      return UnchangedModel{RewriteComparison(), std::move(model), std::move(**written), before,
                            ""};
    }
    if (*written)
      if (llvm::Error error = takeOver(*model, **written, toolkit))
        return error;
    const bool isRestored = *written && (*written)->ownsCaches();
    if (isRestored && (request.freeExtents || !request.layers.empty()))
      return refusal(formatted("{} was rewritten before, for '{}': {} is for models as they were "
                               "exported",
                               path, (*written)->target,
                               request.freeExtents ? "make-dynamic" : "--layers"));
    const InPlaceUpdates updates = inPlaceUpdates(model->graph());
    const auto fused = fusedAttention(model->graph());
    if (request.verification != VerificationExtent::Off) {
      auto copy = copySharingConstants(*model);
      if (!copy)
        return copy.takeError();
      original = std::move(*copy);
    }
    if (llvm::Error error = request.freeExtents ? makeDynamic() : lower(std::nullopt))
      return notLowered(std::move(error), updates, before);
    // Restored attention has no spelling of its own that could stay.
    if (!passes->manifest || (isRestored && keepsRecovered(*passes)))
      return refusal(formatted("{}: {}nothing to rewrite", path,
                               passes->sites.empty() ? "no attention found, " : ""),
                     passes->sites);
    if (request.oneBranch && passes->statistics["specialise-branch"]["branches"] == 0)
      return refusal(formatted("{}: no If selects between the first step and later ones", path));
    if (compressesForTarget() && !passes->history.hasReplacements())
      return refusal(formatted("{}: no keys and values are expanded from rows of fewer columns; "
                               "see: kvopt explain {} --to latent",
                               path, path));
    const int codeBits = request.form.calibratedBits();
    if (codeBits != 0) {
      auto scales =
          toolkit.runner->calibrate(*model, *passes->manifest, passes->exported, request, toolkit);
      if (!scales)
        return refusalOr(scales.takeError());
      if (llvm::Error error = targets::keepCodes(*model, *passes->manifest, *scales))
        return refusal(formatted("{}: {}", path, takeDiagnostic(std::move(error)).str()));
    } else if (request.form.roundsRows() && passes->statistics["narrow-caches"]["caches"] == 0) {
      return refusal(formatted("{}: no cache grows and holds float32 rows", path));
    }
    if (!*written && fused) {
      auto same = alreadyInPlace(updates, *fused, before);
      if (!same)
        return same.takeError();
      if (*same)
        return std::move(**same);
    }
    RewrittenModel result;
    result.before = before;
    result.after = sizeOf(*model);
    result.manifest = *passes->manifest;
    result.exported = isRestored          ? **written
                      : request.addCaches ? Manifest() // every step computes whole sequences
                                          : *passes->exported;
    if (codeBits != 0)
      result.calibrationTokens = static_cast<int64_t>(request.calibration.size());
    if (passes->freed) {
      result.freed = passes->freed->str();
      result.fixedBecause = fixedBecause;
    }
    result.otherForms = std::move(otherForms);
    result.timings = std::move(timings);
    const std::chrono::duration<double, std::milli> elapsed =
        std::chrono::steady_clock::now() - start;
    result.milliseconds = elapsed.count();
    if (passes->hasFirstStep) {
      if (llvm::Error error = makeFirstStep(result))
        return error;
    } else if (*written) {
      auto first = openFirstStep(source, **written, toolkit);
      if (!first)
        return first.takeError();
      result.firstStep = std::move(*first);
    }
    auto comparison = compared(*model, *passes->manifest, result.firstStep.get());
    if (!comparison)
      return comparison.takeError();
    addComparison(std::move(*comparison), *model, result);
    if (request.oneBranch && !result.verification && !result.checked)
      return refusal(
          formatted("{}: the branches cannot be compared: {}", path, result.notVerified));
    result.model = std::move(model);
    result.passes = std::move(passes);
    return result;
  }

private:
  /// Whether keys and values are compressed before lowering, because the target does not do it.
  bool compressesForTarget() const {
    return request.form.isLatent && !target.target->compressesCaches();
  }

  /// Whether passes change the rows of caches before lowering.
  bool changesRows() const {
    return compressesForTarget() || request.form.roundsRows() || request.form.calibratedBits() != 0;
  }

  /// The result for a model that is refused, or another error.
  llvm::Expected<RewriteResult> refusalOr(llvm::Error error) const {
    if (!error.isA<RefusedError>())
      return withFile(std::move(error), path);
    return refusal(formatted("{}: {}", path, takeDiagnostic(std::move(error)).str()));
  }

  /// Whether the model's own operators update all of its caches in place, and the rewritten model
  /// has the same ones. Some targets replace operators of attention: `fused` counts those of the
  /// model as it was read.
  bool makesNothingBetter(const InPlaceUpdates& updates,
                          const std::map<std::string, int64_t>& fused) const {
    if (updates.operators.empty() || request.addCaches || request.freeExtents || changesRows() ||
        request.oneBranch || request.padding != PaddedRows::Any)
      return false;
    const bool areAllUpdated =
        llvm::all_of(passes->exported->caches, [&](const ManifestCache& cache) {
          return cache.update() == CacheUpdate::ReadOnly || updates.byPast.count(cache.past) != 0;
        });
    return areAllUpdated && inPlaceUpdates(model->graph()).operators == updates.operators &&
           (target.target->isForCaches() || fusedAttention(model->graph()) == fused);
  }

  /// The result for a model that was not lowered, or another error.
  llvm::Expected<RewriteResult> notLowered(llvm::Error error, const InPlaceUpdates& updates,
                                           const ModelSize& size) {
    if (!error.isA<RefusedError>())
      return withFile(std::move(error), path);
    const Diagnostic refusedFor = takeDiagnostic(std::move(error));
    if (isInPlaceAlready(request, passes->sites))
      return unchanged(updates, size);
    std::string message = refusedFor.message;
    if (!refusedFor.hint.empty())
      message += "; hint: " + refusedFor.hint;
    RefusedModel refused = refusal(std::move(message), passes->sites);
    refused.withoutCaches = recommendWithoutCaches(path, passes->sites);
    return refused;
  }

  /// The model as it was read, and how to drive it in place.
  llvm::Expected<UnchangedModel> unchanged(const InPlaceUpdates& updates, const ModelSize& size) {
    auto again = openModel(source, toolkit);
    if (!again)
      return again.takeError();
    llvm::Expected<Manifest> manifest =
        passes->exported ? llvm::Expected<Manifest>(*passes->exported)
                         : drivingManifest(**again, toolkit, Rotations::Included);
    if (!manifest)
      return manifest.takeError();
    UnchangedModel result{RewriteComparison(), std::move(*again), std::move(*manifest), size, ""};
    result.manifest.contract = CacheUpdate::InPlace;
    for (ManifestCache& cache : result.manifest.caches)
      if (updates.byPast.count(cache.past) != 0)
        cache.storage = inOneBuffer(cache.storage);
    for (const auto& [op, count] : updates.operators)
      result.updatedBy += (result.updatedBy.empty() ? "" : ", ") + op;
    return result;
  }

  /// The model as it was read, if the target would not improve it; otherwise nullopt.
  llvm::Expected<std::optional<UnchangedModel>>
  alreadyInPlace(const InPlaceUpdates& updates, const std::map<std::string, int64_t>& fused,
                 const ModelSize& size) {
    if (makesNothingBetter(updates, fused)) {
      auto same = unchanged(updates, size);
      if (!same)
        return same.takeError();
      return std::optional(std::move(*same));
    }
    if (wantsSharedBuffers(request, fused))
      return withSharedBuffers(fused, size);
    return std::nullopt;
  }

  /// The model as it was read, with one buffer for past and present of each cache; nullopt if its
  /// operators do not update all caches in place, or if it then computes something else.
  llvm::Expected<std::optional<UnchangedModel>>
  withSharedBuffers(const std::map<std::string, int64_t>& fused, const ModelSize& size) {
    auto again = openModel(source, toolkit);
    if (!again)
      return again.takeError();
    UnchangedModel result{RewriteComparison(), std::move(*again), *passes->exported, size,
                          fused.begin()->first};
    if (!shareBuffers(result.model->graph(), result.manifest, request.capacity))
      return std::nullopt;
    result.manifest.target = passes->manifest->target;
    result.manifest.chunkBatch = passes->manifest->chunkBatch;
    result.model->setMetadata(manifestKey, result.manifest.json());
    if (request.verification == VerificationExtent::Off)
      return result;
    auto copy = copySharingConstants(*result.model);
    if (!copy)
      return copy.takeError();
    if (llvm::Error error = inferShapes((*copy)->graph()))
      return withFile(std::move(error), path);
    auto comparison = compared(**copy, result.manifest, nullptr);
    if (!comparison)
      return comparison.takeError();
    if (!comparison->mayBeWritten())
      return std::nullopt;
    addComparison(std::move(*comparison), *result.model, result);
    return result;
  }

  /// Turns extents into symbols as far as possible, and notes the reason that others stay.
  llvm::Error makeDynamic() {
    using transforms::FreedAxes;
    constexpr std::array attempts{FreedAxes{true, true, true}, FreedAxes{false, true, true},
                                  FreedAxes{true, true, false}, FreedAxes{false, true, false},
                                  FreedAxes{true, false, false}};
    for (const FreedAxes& axes : attempts) {
      llvm::Error error = lower(axes);
      if (!error)
        return checkFreedRoom(*passes, request.form, fixedBecause);
      if (!error.isA<RefusedError>())
        return error;
      const std::string why = takeDiagnostic(std::move(error)).message;
      if (fixedBecause.empty())
        fixedBecause = why; // with all reasons
      else if (!llvm::StringRef(fixedBecause).contains(why))
        fixedBecause += formatted("; with {} only: {}", namesOf(axes), why);
      if (&axes == &attempts.back())
        return unsupported("{}", fixedBecause).as<RefusedError>();
      auto again = openModel(source, toolkit);
      if (!again)
        return again.takeError();
      model = std::move(*again);
    }
    llvm_unreachable("the last axes return");
  }

  llvm::Error lower(std::optional<transforms::FreedAxes> freed) {
    passes = std::make_unique<PassContext>(toolkit.rules, toolkit.targets);
    misses = listenToRaising(toolkit);
    passes->nearMisses = &misses;
    passes->matcher = request.matcher;
    if (llvm::Error error = testOnce(*model, toolkit, request.recipes, tested))
      return error;
    passes->interface.given = tested->roles;
    PassManagerOptions settings;
    settings.printAfter = request.printAfter;
    settings.print = request.print;
    settings.progress = toolkit.progress;
    if (llvm::Error error = disable(request.disabled, toolkit, *passes, settings))
      return error;
    PassManager manager(toolkit.passes, settings);
    if (llvm::Error error = manager.checkPrinted())
      return error;
    otherForms.clear();
    addRewritePasses(manager, request, target, freed, [&](const Model& recovered) {
      if (otherForms.empty())
        otherForms = formsThatTakeAll(recovered, *passes, toolkit);
    });
    llvm::Error error = manager.run(*model, *passes);
    if (!error) {
      exported = passes->exported;
      // Attention that is not lowered keeps its original spelling.
      llvm::StringSet<> others = sitesToLeaveAlone(*passes);
      if (!others.empty() && passes->manifest) {
        passes->restart(std::move(others));
        auto again = openModel(source, toolkit);
        if (!again)
          return again.takeError();
        model = std::move(*again);
        error = manager.run(*model, *passes);
      }
    }
    timings.assign(manager.timings().begin(), manager.timings().end());
    passes->nearMisses = nullptr;
    return error;
  }

  /// Reads the model again to extract its first step.
  llvm::Error makeFirstStep(RewrittenModel& result) {
    auto first = openModel(source, toolkit);
    if (!first)
      return first.takeError();
    PassContext context(toolkit.rules, toolkit.targets);
    context.matcher = request.matcher;
    PassManagerOptions settings;
    if (llvm::Error error = disable(request.disabled, toolkit, context, settings))
      return error;
    PassManager manager(toolkit.passes, settings);
    addFirstStepPasses(manager, request,
                       *llvm::cantFail(targetFor(plainForm, toolkit.targets)).target);
    if (llvm::Error error = manager.run(**first, context))
      return withFile(std::move(error), path);
    (*first)->removeMetadata(manifestKey);
    if (llvm::Error error = inferShapes((*first)->graph()))
      return withFile(std::move(error), path);
    result.firstStep = std::move(*first);
    return llvm::Error::success();
  }

  /// Compares the result with the model as it was read, unless verification is off.
  llvm::Expected<RewriteComparison> compared(const Model& written, const Manifest& manifest,
                                             const Model* firstStep) {
    if (request.verification == VerificationExtent::Off)
      return RewriteComparison();
    if (llvm::Error error = inferShapes(original->graph()))
      return withFile(std::move(error), path);
    auto driven = drivenBy();
    if (!driven)
      return driven.takeError();
    return compareRewritten({digest, *original, *driven, written, manifest, firstStep,
                             passes->hasFirstStep, tested->untested},
                            request, toolkit);
  }

  /// The manifest of the model as it was read. Disabled rules may have hidden caches.
  llvm::Expected<Manifest> drivenBy() {
    const bool isWhole =
        request.disabled.empty() && request.matcher.stepBudget == MatcherOptions().stepBudget;
    auto stored = manifestOf(*original);
    if (!stored)
      return withFile(stored.takeError(), path);
    if (*stored)
      return std::move(**stored);
    return isWhole && exported && !request.addCaches && !request.freeExtents
               ? *exported
               : drivingManifest(*original, toolkit,
                                 request.verification == VerificationExtent::Check
                                     ? Rotations::LeftOut
                                     : Rotations::Included);
  }

  std::unique_ptr<Model> model;
  std::optional<TestedManifest> tested;
  /// The model as it was read, for the comparison; null without one.
  std::unique_ptr<Model> original;
  ModelSource source;
  std::string path;   ///< path in messages
  std::string digest; ///< digest of the file that is rewritten; empty without a comparison
  const RewriteRequest& request;
  const Toolkit& toolkit;
  TargetChoice target{nullptr, 0};
  std::unique_ptr<PassContext> passes;
  NearMissList misses;
  std::vector<PassTiming> timings;
  std::optional<Manifest> exported;
  std::vector<Form> otherForms;
  /// The reason that not all extents became symbols.
  std::string fixedBecause;
};

} // namespace

llvm::Expected<RewriteResult> rewrite(std::unique_ptr<Model> model, const RewriteRequest& request,
                                      const Toolkit& toolkit) {
  return Rewrite(std::move(model), request, toolkit).run();
}

} // namespace kvopt::driver
