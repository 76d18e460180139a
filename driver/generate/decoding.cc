// Opens, starts and runs the models of a request.
#include "driver/generate/decoding.h"

#include "driver/claims/claims.h"
#include "driver/first_step.h"
#include "driver/recover.h"
#include "driver/roles/driving.h"
#include "driver/verify/first_step_run.h"
#include "ir/shapes/shape_inference.h"
#include "passes/extents/fixed_extents.h"
#include "runtime/cache/cache_file.h"
#include "runtime/session/input_plan.h"
#include "runtime/session/token_limits.h"
#include "support/diagnostic.h"
#include "support/mapped_file.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace kvopt::driver {
using namespace ir;
using namespace runtime;

namespace {

/// Number of tokens of the longest sequence in a cache file.
llvm::Expected<int64_t> savedLength(const std::string& path) {
  auto file = MappedFile::open(path);
  if (!file)
    return file.takeError();
  auto contents = parseCacheFile((*file)->bytes());
  if (!contents)
    return withFile(contents.takeError(), path);
  return *std::max_element(contents->lengths.begin(), contents->lengths.end());
}

/// Fails for a token for which the model's tables have no entry.
llvm::Error checkPrompts(llvm::ArrayRef<std::vector<int64_t>> prompts, const Graph& graph,
                         const Manifest& manifest) {
  const TokenLimits limits = TokenLimits::of(graph, manifest.inputs);
  for (const std::vector<int64_t>& prompt : prompts)
    if (llvm::Error error = limits.check(prompt))
      return error;
  return llvm::Error::success();
}

} // namespace

llvm::Expected<Decoding> Decoding::open(GenerateRequest request, const Toolkit& toolkit) {
  Decoding decoding(std::move(request), toolkit);
  auto model = openModel(decoding.asked.model.path, toolkit);
  if (!model)
    return model.takeError();
  decoding.main.model = std::move(*model);
  if (decoding.asked.draft.path.empty())
    return decoding;
  auto draft = openModel(decoding.asked.draft.path, toolkit);
  if (!draft)
    return draft.takeError();
  decoding.draft.model = std::move(*draft);
  return decoding;
}

/// Capacity for a cache that is loaded and for additional tokens.
llvm::Expected<int64_t> Decoding::neededCapacity(const GeneratingModel& settings) const {
  int64_t past = 0;
  if (!settings.load.empty()) {
    auto saved = savedLength(settings.load);
    if (!saved)
      return saved.takeError();
    past = *saved;
  }
  size_t longest = 0;
  for (const std::vector<int64_t>& prompt : asked.prompts)
    longest = std::max(longest, prompt.size());
  return past + static_cast<int64_t>(longest) + asked.options.steps;
}

/// The recipes for inputs and states of a model; others are for its first step, or unknown.
std::vector<InputRecipe> Decoding::ownRecipes(const Graph& graph) const {
  std::vector<InputRecipe> own;
  llvm::copy_if(asked.recipes, std::back_inserter(own), [&](const InputRecipe& recipe) {
    return recipe.kind == InputRecipe::Kind::State || hasInput(graph, recipe.input);
  });
  return own;
}

llvm::Error Decoding::start() {
  if (llvm::Error error = start(main, asked.model))
    return error;
  return draft.model ? start(draft, asked.draft) : llvm::Error::success();
}

llvm::Error Decoding::start(Driven& driven, const GeneratingModel& settings) const {
  if (llvm::Error error = inferShapes(driven.model->graph()))
    return withFile(std::move(error), settings.path);
  auto tested = testedManifest(*driven.model, *toolkit, ownRecipes(driven.model->graph()));
  if (!tested)
    return tested.takeError();
  driven.untested = std::move(tested->untested);
  Manifest* manifest = &tested->manifest;
  if (llvm::Error error = checkPrompts(asked.prompts, driven.model->graph(), *manifest))
    return withFile(std::move(error), settings.path);
  for (const extents::FixedExtent& extent : extents::fixedExtents(driven.model->graph()))
    if (extent.axis == 0 && extent.value != static_cast<int64_t>(asked.prompts.size()))
      return usageError("{} prompts, and {}", asked.prompts.size(), extent.text())
          .file(settings.path);
  if (asked.options.shift.isOn)
    if (llvm::Error error = proveRotations({*driven.model, *manifest}, *toolkit))
      return error;
  if (settings.capacity != 0)
    if (llvm::Error error = checkCapacity(*manifest, settings.capacity))
      return withFile(std::move(error), settings.path);
  SessionOptions options;
  options.mode = settings.mode;
  options.threads = settings.threads;
  options.foldedConstantsLimit = settings.foldedConstantsLimit;
  options.batch = static_cast<int64_t>(asked.prompts.size());
  options.capacity = settings.capacity;
  const bool hasBuffers = llvm::any_of(manifest->caches, [](const ManifestCache& cache) {
    return cache.isOneBuffer() || cache.update() == CacheUpdate::Static;
  });
  if (options.capacity == 0 && options.mode == SessionOptions::Mode::AsManifest && hasBuffers &&
      !manifest->capacityValue) {
    auto needed = neededCapacity(settings);
    if (!needed)
      return needed.takeError();
    options.capacity = *needed;
  }
  auto session = Session::create(*driven.model, toolkit->runner->kernels(), *manifest, options);
  if (!session)
    return withFile(session.takeError(), settings.path);
  driven.session = std::move(*session);
  driven.manifest = std::move(*manifest);
  if (!settings.load.empty())
    if (llvm::Error error = driven.session->load(settings.load))
      return error;
  if (settings.crop)
    if (llvm::Error error = driven.session->crop(*settings.crop))
      return withFile(std::move(error), settings.load);
  return llvm::Error::success();
}

/// Runs the first step of an encoder-decoder model, with the recipes for its inputs. Other recipes
/// remain for the main model; recipes for computed inputs are dropped.
llvm::Error Decoding::computeFirst(const Driven& driven, const GeneratingModel& settings,
                                   llvm::ArrayRef<InputRecipe> recipes, FeedOptions& feed) const {
  const Session& session = *driven.session;
  auto first = openFirstStep(settings.path, driven.manifest, *toolkit);
  if (!first)
    return first.takeError();
  for (const InputRecipe& recipe : recipes)
    if (hasInput(session.graph(), recipe.input) || !*first ||
        !hasInput((*first)->graph(), recipe.input))
      feed.recipes.push_back(recipe);
  if (!*first)
    return llvm::Error::success();
  auto computed = runFirstStep(**first, session.batch(), recipes, settings.threads, *toolkit);
  if (!computed)
    return computed.takeError();
  for (const std::unique_ptr<Value>& input : (*first)->graph().inputs())
    if (!input->isInitializer() &&
        llvm::none_of(recipes, [&](const auto& recipe) { return recipe.input == input->name(); }))
      feed.madeUp.push_back(input->name().str());
  for (NamedTensor& cache : *computed)
    if (hasInput(session.graph(), cache.name) &&
        llvm::none_of(recipes, [&](const auto& recipe) { return recipe.input == cache.name; }))
      feed.computed.push_back(std::move(cache));
  return llvm::Error::success();
}

llvm::Expected<GenerationResult> Decoding::run() {
  GenerationOptions& options = asked.options;
  if (llvm::Error error = computeFirst(main, asked.model, asked.recipes, options.feed))
    return error;
  options.draft.session = draft.session.get();
  options.draft.tokens = asked.draftTokens;
  if (draft.session) {
    if (llvm::Error error = computeFirst(draft, asked.draft, ownRecipes(draft.session->graph()),
                                         options.draft.feed))
      return error;
  }
  auto generated = generate(*main.session, asked.prompts, options);
  if (!generated)
    return withFile(generated.takeError(), asked.model.path);
  return generated;
}

} // namespace kvopt::driver
