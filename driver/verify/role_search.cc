// Trials of roles, one after another.
#include "driver/verify/role_search.h"

#include "driver/roles/table_rows.h"
#include "ir/manifest/documented_inputs.h"
#include "ir/manifest/manifest_words.h"
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

constexpr const char* hidesNothing = "a token sees a hidden token";

/// A sign that positions may start elsewhere. Some models leave the first rows of a table unused.
constexpr const char* readsLaterRow = "the first token reads a later row of a table";

/// Such as `total_length`.
std::string wordOfRole(const InputRole& role) {
  if (const auto* length = std::get_if<ManifestLength>(&role))
    return analysis::wordOf(length->feed);
  if (const auto* input = std::get_if<ManifestInput>(&role))
    return llvm::find_if(inputFeedWords,
                         [&](const auto& word) { return word.value == input->feed; })
        ->text;
  return formatted("a state that starts with {}", std::get<StateStart>(role).contents.front());
}

/// Whether an input is named as a mask. A model may use it for something else, too.
bool isNamedMask(const RoleGuess& guess) {
  const DocumentedInput* documented = documentedInput(*guess.input);
  return documented && documented->feed == InputFeed::VisibleKeys &&
         !guess.input->type().dim(1).value();
}

bool isFedAsMask(const RoleGuess& guess, llvm::ArrayRef<InputRecipe> recipes) {
  for (const InputRecipe& recipe : recipes)
    if (recipe.input == guess.input->name())
      return recipe.kind == InputRecipe::Kind::Feed && isMaskFeed(recipe.feed);
  const DocumentedInput* documented = documentedInput(*guess.input);
  return documented && isTokenMask(*documented);
}

/// Other roles of an input, and the same integer at every step.
std::vector<InputRole> rivalsOf(const RoleGuess& guess) {
  std::vector<InputRole> roles = guess.others;
  const TensorType& type = guess.input->type();
  if (!guess.isConstant && !isFloatingPoint(type.elementType()))
    roles.emplace_back(
        ManifestInput{guess.input->name().str(), type.elementType(), {}, InputFeed::Constant, {0}});
  return roles;
}

bool isBool(const Value& input) { return input.type().elementType() == ElementType::Bool; }

} // namespace

llvm::Expected<std::vector<InputRole>> RoleSearch::run() {
  auto first = test({});
  if (first && first->holds()) {
    doubtful = rivals({});
    return std::vector<InputRole>();
  }
  // Where single tokens are all that the model takes, a number that only matters could be any.
  const bool isDecided = first && blamed && !trial.comparesChunks();
  std::optional<std::vector<InputRole>> found;
  if (!isDecided)
    found = tryOne();
  if (!isDecided && !found)
    found = tryTwo();
  if (!found && mustHide && seesHidden) {
    // The mask may count tokens only.
    mustHide = false;
    trials = 0;
    llvm::consumeError(first.takeError());
    auto again = run();
    if (again && doubtful.empty())
      doubtful = hidesNothing;
    return again;
  }
  if (found || !first) {
    llvm::Error error = first.takeError();
    if (!found)
      return error;
    llvm::consumeError(std::move(error));
    doubtful = rivals(*found);
    return std::move(*found);
  }
  if (first->isDecisive && !llvm::all_of(guesses, isNamedMask))
    return refusal(*first);
  if (first->failure != readsLaterRow)
    doubtful = first->failure;
  return std::vector<InputRole>();
}

llvm::Expected<TrialResult> RoleSearch::test(llvm::ArrayRef<InputRole> roles) {
  const Manifest hypothesis = withRoles(recovered, manifest, roles);
  const std::vector<InputRecipe> recipes = recipesOf(hypothesis);
  auto result = trial.run(recipes, hypothesis.caches);
  if (!result || !result->holds())
    return result;
  for (const RoleGuess& guess : guesses) {
    auto isFed = [&](const InputRecipe& recipe) { return recipe.input == guess.input->name(); };
    if (!guess.isConstant || llvm::any_of(recipes, isFed) ||
        !changesWith(*guess.input, InputFeed::Constant, isBool(*guess.input) ? 0 : 1, recipes))
      continue;
    if (roles.empty())
      blamed = guess.input;
    return TrialResult{"its value changes the scores", /*isDecisive=*/true};
  }
  GivenRoles all = given;
  for (const InputRole& role : roles)
    addRole(role, all);
  for (const RoleGuess& guess : guesses)
    if (mustHide && isFedAsMask(guess, recipes)) {
      auto hides = trial.hidesRows(recipes, hypothesis.caches);
      if (!hides)
        return hides.takeError();
      seesHidden |= !*hides;
      if (!*hides && isRead(guess, recipes))
        return TrialResult{hidesNothing, /*isDecisive=*/false};
      break;
    }
  const FirstRows first = firstTableRows(recovered, all, guesses).value_or(FirstRows());
  if (first.least < 0)
    return TrialResult{"the first token reads a row before the first one of a table",
                       /*isDecisive=*/true};
  if (first.areReserved)
    return TrialResult{"the first token reads a row of zeros, or the one before it",
                       /*isDecisive=*/false};
  if (first.least > 0)
    return TrialResult{readsLaterRow, /*isDecisive=*/false};
  return result;
}

bool RoleSearch::isRead(const RoleGuess& guess, llvm::ArrayRef<InputRecipe> recipes) {
  return changesWith(*guess.input, InputFeed::Constant, 0, recipes) ||
         changesWith(*guess.input, InputFeed::Constant, 1, recipes) ||
         changesWith(*guess.input, InputFeed::KeyPositions, 0, recipes);
}

bool RoleSearch::changesWith(const Value& input, InputFeed feed, double number,
                             llvm::ArrayRef<InputRecipe> recipes) {
  const std::string name = input.name().str();
  const InputRole other = ManifestInput{name, input.type().elementType(), {}, feed, {number}};
  const auto recipe = recipeOf(withRoles(recovered, manifest, other), name);
  auto changes = recipe ? trial.changesWith(recipes, *recipe) : false;
  if (changes)
    return *changes;
  llvm::consumeError(changes.takeError());
  return false;
}

bool RoleSearch::holds(llvm::ArrayRef<InputRole> roles) {
  if (trials++ >= mostTrials)
    return false;
  auto result = test(roles);
  if (result)
    return result->holds();
  llvm::consumeError(result.takeError());
  return false;
}

std::optional<std::vector<InputRole>> RoleSearch::tryOne() {
  for (const RoleGuess& guess : guesses)
    for (const InputRole& role : guess.others)
      if (holds(role))
        return std::vector<InputRole>{role};
  return std::nullopt;
}

std::optional<std::vector<InputRole>> RoleSearch::tryTwo() {
  for (size_t one = 0; one < guesses.size(); ++one)
    for (size_t two = one + 1; two < guesses.size(); ++two)
      for (const InputRole& role : guesses[one].others)
        for (const InputRole& other : guesses[two].others)
          if (holds({role, other}))
            return std::vector<InputRole>{role, other};
  return std::nullopt;
}

std::string RoleSearch::rivals(llvm::ArrayRef<InputRole> found) {
  if (llvm::all_of(guesses, [](const RoleGuess& guess) { return guess.isShown; }))
    return "";
  auto usual = test(found);
  if (!usual) {
    llvm::consumeError(usual.takeError());
    return "";
  }
  const std::vector<Tensor> scores = trial.takeScores();
  for (const RoleGuess& guess : guesses) {
    if (guess.isShown)
      continue;
    const std::string name = guess.input->name().str();
    auto isOfGuess = [&](const InputRole& role) { return inputOf(role) == name; };
    std::vector<InputRole> rest(found.begin(), found.end());
    llvm::erase_if(rest, isOfGuess);
    bool isTested = guess.isConstant;
    for (const InputRole& role : rivalsOf(guess)) {
      rest.push_back(role);
      const bool isRival = holds(rest);
      if (isRival && !trial.hasScores(scores) && !forgetsMore(rest, found))
        return formatted("with '{}' as {}, every test passes, too", name, wordOfRole(role));
      isTested |= !isRival;
      rest.pop_back();
    }
    if (!isTested)
      return formatted("no test depends on '{}'", name);
  }
  return "";
}

bool RoleSearch::forgetsMore(llvm::ArrayRef<InputRole> roles, llvm::ArrayRef<InputRole> others) {
  auto ours = remembers(roles);
  auto theirs = ours ? remembers(others) : ours.takeError();
  if (!theirs) {
    llvm::consumeError(theirs.takeError());
    return false;
  }
  return ((*theirs)[0] && !(*ours)[0]) || ((*theirs)[1] && !(*ours)[1]);
}

llvm::Expected<std::array<bool, 2>> RoleSearch::remembers(llvm::ArrayRef<InputRole> roles) {
  const Manifest hypothesis = withRoles(recovered, manifest, roles);
  return trial.remembers(recipesOf(hypothesis), hypothesis.caches);
}

std::vector<InputRecipe> RoleSearch::recipesOf(const Manifest& hypothesis) const {
  std::vector<InputRecipe> recipes;
  for (const RoleGuess& guess : guesses)
    if (auto recipe = recipeOf(hypothesis, guess.input->name()))
      recipes.push_back(std::move(*recipe));
  return recipes;
}

llvm::Error RoleSearch::refusal(const TrialResult& result) const {
  std::vector<std::string> names;
  for (const RoleGuess& guess : guesses)
    if (!blamed || blamed == guess.input)
      names.push_back(formatted("'{}'", guess.input->name()));
  return unsupported("nothing shows what to feed to {} {}: with every role that fits its type, {}",
                     names.size() == 1 ? "input" : "inputs", llvm::join(names, ", "),
                     result.failure)
      .hint(formatted("--input {}=ROLE, or =NUMBERS, says it",
                      (blamed ? blamed : guesses.front().input)->name()))
      .as<UndrivenError>();
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

} // namespace

llvm::Expected<FoundRoles> searchRoles(const GuessedRoles& guessed, const Toolkit& toolkit) {
  auto trial =
      Trial::create(guessed.model, guessed.manifest, attentionCaches(guessed.manifest),
                    readsCaches(guessed.recovered.context->sites), guessed.recipes.vec(), toolkit);
  if (!trial)
    return trial.takeError();
  if (!(*trial)->obstacle().empty())
    return unsupported("{}", (*trial)->obstacle());
  RoleSearch search(guessed.recovered, guessed.manifest, guessed.given, **trial, guessed.guesses);
  auto found = search.run();
  if (!found)
    return found.takeError();
  return FoundRoles{std::move(*found), search.doubt()};
}

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

} // namespace kvopt::driver
