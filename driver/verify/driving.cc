// Tests of the roles of a model's inputs.
#include "driver/verify/driving.h"

#include "driver/recover.h"
#include "driver/verify/role_guesses.h"
#include "driver/verify/role_search.h"
#include "driver/verify/trial.h"
#include "ir/manifest/documented_inputs.h"
#include "ir/onnx/model_copy.h"
#include "ir/shapes/shape_inference.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace kvopt::driver {
using namespace analysis;
using namespace ir;
using namespace runtime;

namespace {

/// Whether a floating-point input of four axes can be a mask [batch, heads or 1, new, keys]: a
/// cache has a fixed width.
bool isKeyMask(const Value& input) {
  const TensorType& type = input.type();
  return type.rank() == 4 && (type.dim(1).value() == 1 || !type.shape().back().value());
}

std::string namesOf(llvm::ArrayRef<RoleGuess> guesses) {
  std::vector<std::string> names;
  for (const RoleGuess& guess : guesses)
    names.push_back(formatted("'{}'", guess.input->name()));
  return llvm::join(names, ", ");
}

} // namespace

const char UndrivenError::ID = 0;

bool mayHaveGuesses(const Graph& graph) {
  return llvm::any_of(graph.inputs(), [](const std::unique_ptr<Value>& input) {
    if (input->isInitializer())
      return false;
    const TensorType& type = input->type();
    const DocumentedInput* documented = documentedInput(*input);
    if (documented && documented->feed == InputFeed::VisibleKeys && type.hasRank() &&
        type.rank() == 2 && type.dim(1).value())
      return true;
    if (documented) {
      size_t budget = 10000;
      const InputReaders readers = readersOf(*input, budget);
      return (isTokenMask(*documented) && !readers.hidesByZero() && !input->uses().empty()) ||
             (documented->feed == InputFeed::Positions && !readers.tables.empty());
    }
    return !isFloatingPoint(type.elementType()) || !type.hasRank() || type.rank() <= 2 ||
           isKeyMask(*input);
  });
}

namespace {

/// Whether recovered attention reads caches.
bool readsCaches(const SiteList& sites) {
  return llvm::any_of(sites, [](const AttentionSite& site) {
    return site.isMatched() &&
           llvm::any_of(llvm::ArrayRef{&site.key, &site.value}, [](auto* cache) {
             return *cache && (*cache)->past && (*cache)->update != CacheUpdate::ReadOnly;
           });
  });
}

/// The caches that attention reads.
llvm::StringSet<> attentionCaches(const Manifest& manifest) {
  llvm::StringSet<> names;
  for (const ManifestCache& cache : manifest.caches)
    if (cache.role != CacheRole::State && cache.update() != CacheUpdate::ReadOnly &&
        cache.update() != CacheUpdate::State)
      names.insert(cache.past);
  return names;
}

/// Fails if roles of a stored manifest cannot be right. Roles that nothing can be learned about are
/// accepted.
llvm::Error testStored(const Model& model, const Manifest& manifest,
                       llvm::ArrayRef<InputRecipe> recipes, const Toolkit& toolkit) {
  const auto tested = llvm::find_if(manifest.inputs, [&](const ManifestInput& input) {
    return isMaskFeed(input.feed) && llvm::none_of(recipes, [&](const InputRecipe& recipe) {
             return recipe.input == input.input;
           });
  });
  if (tested == manifest.inputs.end() || !manifest.variants.empty() || manifest.tiles)
    return llvm::Error::success();
  auto trial = Trial::create(model, manifest, attentionCaches(manifest), /*isRecovered=*/true,
                             recipes.vec(), toolkit);
  if (!trial) {
    llvm::consumeError(trial.takeError());
    return llvm::Error::success();
  }
  if (!(*trial)->obstacle().empty())
    return llvm::Error::success();
  auto result = (*trial)->run({}, manifest.caches);
  if (!result) {
    llvm::consumeError(result.takeError());
    return llvm::Error::success();
  }
  if (!result->isDecisive)
    return llvm::Error::success();
  return invalid("the manifest's roles of inputs, such as that of '{}', are wrong: with them, {}",
                 tested->input, result->failure)
      .hint("rewrite the exported model again");
}

/// Starts states of a manifest as the user says.
llvm::Error startStates(llvm::ArrayRef<InputRecipe> recipes, Manifest& manifest) {
  for (const InputRecipe& recipe : recipes) {
    if (recipe.kind != InputRecipe::Kind::State)
      continue;
    auto state = llvm::find_if(manifest.caches, [&](const ManifestCache& cache) {
      return cache.past == recipe.input && cache.update() == CacheUpdate::State;
    });
    if (state == manifest.caches.end())
      return usageError("--state {}: the model has no such state", recipe.input);
    state->initial = recipe.numbers;
  }
  return llvm::Error::success();
}

} // namespace

llvm::Expected<TestedManifest> testedManifest(const Model& model, const Toolkit& toolkit,
                                              llvm::ArrayRef<InputRecipe> recipes) {
  TestedManifest tested;
  auto stored = manifestOf(model);
  if (!stored)
    return withFile(stored.takeError(), model.path);
  if (*stored) {
    tested.manifest = std::move(**stored);
    if (llvm::Error error = startStates(recipes, tested.manifest))
      return error;
    if (llvm::Error error = testStored(model, tested.manifest, recipes, toolkit))
      return withFile(std::move(error), model.path);
    return tested;
  }
  auto recovered = recoverCopy(model, toolkit);
  if (!recovered)
    return recovered.takeError();
  const Manifest derived = derivedManifest(*recovered, Rotations::Included);
  std::vector<InputRole> roles = rolesOf(recovered->model->graph(), recipes);
  tested.manifest = withRoles(*recovered, derived, roles);
  if (llvm::Error error = startStates(recipes, tested.manifest))
    return error;
  for (const InputRole& role : roles)
    addRole(role, tested.roles);
  const std::vector<RoleGuess> guesses = guessesAmong(*recovered, tested.manifest, recipes);
  if (guesses.empty())
    return tested;
  auto untested = [&](const std::string& why) {
    tested.untested = formatted("what {} {} fed is a guess that was not tested: {}",
                                namesOf(guesses), guesses.size() == 1 ? "is" : "are", why);
    return std::move(tested);
  };
  auto trial = Trial::create(model, tested.manifest, attentionCaches(tested.manifest),
                             readsCaches(recovered->context->sites), recipes.vec(), toolkit);
  if (!trial)
    return untested(takeDiagnostic(trial.takeError()).message);
  if (!(*trial)->obstacle().empty())
    return untested((*trial)->obstacle());
  RoleSearch search(*recovered, tested.manifest, tested.roles, **trial, guesses);
  auto found = search.run();
  if (!found) {
    if (found.errorIsA<UndrivenError>())
      return withFile(found.takeError(), model.path);
    return untested(takeDiagnostic(found.takeError()).message);
  }
  if (!search.doubt().empty())
    tested.untested = formatted("what {} {} fed may be wrong: {}", namesOf(guesses),
                                guesses.size() == 1 ? "is" : "are", search.doubt());
  if (found->empty())
    return tested;
  roles.insert(roles.end(), found->begin(), found->end());
  for (const InputRole& role : *found)
    addRole(role, tested.roles);
  tested.manifest = withRoles(*recovered, derived, roles);
  return tested;
}

llvm::Error testOnce(const Model& model, const Toolkit& toolkit,
                     llvm::ArrayRef<InputRecipe> recipes, std::optional<TestedManifest>& tested) {
  if (tested)
    return llvm::Error::success();
  tested.emplace();
  if (model.findMetadata(manifestKey) || (!mayHaveGuesses(model.graph()) && recipes.empty()))
    return llvm::Error::success();
  auto copy = copySharingConstants(model);
  if (!copy)
    return copy.takeError();
  if (llvm::Error error = inferShapes((*copy)->graph()))
    return error;
  auto found = testedManifest(**copy, toolkit, recipes);
  if (found) {
    tested = std::move(*found);
    return llvm::Error::success();
  }
  return llvm::handleErrors(found.takeError(), [](UndrivenError& undriven) -> llvm::Error {
    return llvm::make_error<passes::RefusedError>(std::move(undriven.diagnostic()));
  });
}

} // namespace kvopt::driver
