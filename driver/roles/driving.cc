// Tests of the roles of a model's inputs.
#include "driver/roles/driving.h"

#include "driver/recover.h"
#include "driver/roles/role_guesses.h"
#include "ir/manifest/documented_inputs.h"
#include "ir/onnx/model_copy.h"
#include "ir/shapes/shape_inference.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace kvopt::driver {
using namespace analysis;
using namespace ir;

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
    if (toolkit.runner)
      if (llvm::Error error = toolkit.runner->testRoles(model, tested.manifest, recipes, toolkit))
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
  if (!toolkit.runner)
    return untested(noRuntime);
  auto found = toolkit.runner->findRoles(
      {model, *recovered, tested.manifest, tested.roles, guesses, recipes}, toolkit);
  if (!found) {
    if (found.errorIsA<UndrivenError>())
      return withFile(found.takeError(), model.path);
    return untested(takeDiagnostic(found.takeError()).message);
  }
  if (!found->doubt.empty())
    tested.untested = formatted("what {} {} fed may be wrong: {}", namesOf(guesses),
                                guesses.size() == 1 ? "is" : "are", found->doubt);
  if (found->roles.empty())
    return tested;
  roles.insert(roles.end(), found->roles.begin(), found->roles.end());
  for (const InputRole& role : found->roles)
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
