// The search for roles that hold.
#include "driver/verify/driving.h"

#include "driver/recover.h"
#include "driver/verify/role_guesses.h"
#include "driver/verify/table_rows.h"
#include "driver/verify/trial.h"
#include "ir/manifest/documented_inputs.h"
#include "ir/onnx/model_copy.h"
#include "ir/shapes/shape_inference.h"
#include "runtime/session/input_plan.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace kvopt::driver {
using namespace analysis;
using namespace ir;
using namespace runtime;

namespace {

/// Maximum number of sets of roles that are tried.
constexpr size_t mostTrials = 128;

/// Whether a floating-point input of four axes can be a mask [batch, heads or 1, new, keys]: a
/// cache has a fixed width.
bool isKeyMask(const Value& input) {
  const TensorType& type = input.type();
  return type.rank() == 4 && (type.dim(1).value() == 1 || !type.shape().back().value());
}

/// A sign that positions may start elsewhere. Some models leave the first rows of a table unused.
constexpr const char* readsLaterRow = "the first token reads a later row of a table";

class Search {
public:
  Search(const RecoveredModel& recoveredModel, const TestedManifest& described, Trial& runs,
         std::vector<RoleGuess> guessed)
      : recovered(recoveredModel), manifest(described.manifest), given(described.roles),
        trial(runs), guesses(std::move(guessed)) {}

  /// Roles in place of guesses; an error if none hold.
  llvm::Expected<std::vector<InputRole>> run() {
    auto first = test({});
    if (first && first->holds())
      return std::vector<InputRole>();
    // Where single tokens are all that the model takes, a number that only matters could be any.
    const bool isDecided = first && blamed && !trial.comparesChunks();
    std::optional<std::vector<InputRole>> found;
    if (!isDecided)
      found = tryOne();
    if (!isDecided && !found)
      found = tryTwo();
    if (found || !first) {
      llvm::Error error = first.takeError();
      if (!found)
        return error;
      llvm::consumeError(std::move(error));
      return std::move(*found);
    }
    if (first->isDecisive && !llvm::all_of(guesses, isNamedMask))
      return refusal(*first);
    if (first->failure != readsLaterRow)
      doubtful = first->failure;
    return std::vector<InputRole>();
  }

  /// A sign against the roles that run() gives; empty if there is none.
  const std::string& doubt() const { return doubtful; }

private:
  /// Whether an input is named as a mask. A model may use it for something else, too.
  static bool isNamedMask(const RoleGuess& guess) {
    const DocumentedInput* documented = documentedInput(*guess.input);
    return documented && documented->feed == InputFeed::VisibleKeys &&
           !guess.input->type().dim(1).value();
  }

  llvm::Expected<TrialResult> test(llvm::ArrayRef<InputRole> roles) {
    const Manifest hypothesis = withRoles(recovered, manifest, roles);
    std::vector<InputRecipe> recipes;
    for (const RoleGuess& guess : guesses)
      if (auto recipe = recipeOf(hypothesis, guess.input->name()))
        recipes.push_back(std::move(*recipe));
    auto result = trial.run(recipes, hypothesis.caches);
    if (!result || !result->holds())
      return result;
    for (const RoleGuess& guess : guesses) {
      auto isFed = [&](const InputRecipe& recipe) { return recipe.input == guess.input->name(); };
      if (!guess.isConstant || llvm::any_of(recipes, isFed) || !matters(*guess.input, recipes))
        continue;
      if (roles.empty())
        blamed = guess.input;
      return TrialResult{"its value changes the scores", /*isDecisive=*/true};
    }
    GivenRoles all = given;
    for (const InputRole& role : roles)
      addRole(role, all);
    const int64_t row = firstTableRow(recovered, all, guesses).value_or(0);
    if (row < 0)
      return TrialResult{"the first token reads a row before the first one of a table",
                         /*isDecisive=*/true};
    if (row > 0)
      return TrialResult{readsLaterRow, /*isDecisive=*/false};
    return result;
  }

  /// Whether another value of an input without a role changes the scores. A value that the model
  /// does not take says nothing about the one that it does.
  bool matters(const Value& input, std::vector<InputRecipe> recipes) {
    InputRecipe recipe;
    recipe.input = input.name().str();
    recipe.kind = input.type().elementType() == ElementType::Bool ? InputRecipe::Kind::Zeros
                                                                  : InputRecipe::Kind::Ones;
    auto changes = trial.changesWith(recipes, recipe);
    if (changes)
      return *changes;
    llvm::consumeError(changes.takeError());
    return false;
  }

  bool holds(llvm::ArrayRef<InputRole> roles) {
    if (trials++ >= mostTrials)
      return false;
    auto result = test(roles);
    if (result)
      return result->holds();
    llvm::consumeError(result.takeError());
    return false;
  }

  std::optional<std::vector<InputRole>> tryOne() {
    for (const RoleGuess& guess : guesses)
      for (const InputRole& role : guess.others)
        if (holds(role))
          return std::vector<InputRole>{role};
    return std::nullopt;
  }

  std::optional<std::vector<InputRole>> tryTwo() {
    for (size_t one = 0; one < guesses.size(); ++one)
      for (size_t two = one + 1; two < guesses.size(); ++two)
        for (const InputRole& role : guesses[one].others)
          for (const InputRole& other : guesses[two].others)
            if (holds({role, other}))
              return std::vector<InputRole>{role, other};
    return std::nullopt;
  }

  llvm::Error refusal(const TrialResult& result) const {
    std::vector<std::string> names;
    for (const RoleGuess& guess : guesses)
      if (!blamed || blamed == guess.input)
        names.push_back(fmt::format("'{}'", guess.input->name()));
    return unsupported(
               "nothing shows what to feed to {} {}: with every role that fits its type, {}",
               names.size() == 1 ? "input" : "inputs", llvm::join(names, ", "), result.failure)
        .hint(fmt::format("--input {}=ROLE, or =NUMBERS, says it",
                          (blamed ? blamed : guesses.front().input)->name()))
        .as<UndrivenError>();
  }

  const RecoveredModel& recovered;
  const Manifest& manifest;
  const GivenRoles& given;
  Trial& trial;
  std::vector<RoleGuess> guesses;
  const Value* blamed = nullptr;
  std::string doubtful;
  size_t trials = 0;
};

std::string namesOf(llvm::ArrayRef<RoleGuess> guesses) {
  std::vector<std::string> names;
  for (const RoleGuess& guess : guesses)
    names.push_back(fmt::format("'{}'", guess.input->name()));
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
      return (documented->feed == InputFeed::VisibleKeys && readers.hidesByOne) ||
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
    tested.untested = fmt::format("what {} {} fed is a guess that was not tested: {}",
                                  namesOf(guesses), guesses.size() == 1 ? "is" : "are", why);
    return std::move(tested);
  };
  auto trial = Trial::create(model, tested.manifest, attentionCaches(tested.manifest),
                             readsCaches(recovered->context->sites), recipes.vec(), toolkit);
  if (!trial)
    return untested(takeDiagnostic(trial.takeError()).message);
  if (!(*trial)->obstacle().empty())
    return untested((*trial)->obstacle());
  Search search(*recovered, tested, **trial, guesses);
  auto found = search.run();
  if (!found) {
    if (found.errorIsA<UndrivenError>())
      return withFile(found.takeError(), model.path);
    return untested(takeDiagnostic(found.takeError()).message);
  }
  if (!search.doubt().empty())
    tested.untested = fmt::format("what {} {} fed may be wrong: {}", namesOf(guesses),
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
