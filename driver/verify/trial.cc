// The runs of a trial.
#include "driver/verify/trial.h"

#include "driver/verify/plan.h"
#include "driver/verify/row_numbers.h"
#include "driver/verify/verification.h"
#include "ir/manifest/documented_inputs.h"
#include "ir/random.h"
#include "passes/analysis/tokens/row_operators.h"
#include "runtime/cache/repeated_numbers.h"
#include "runtime/equivalence/equivalence.h"
#include "runtime/session/input_plan.h"
#include "runtime/session/token_choice.h"
#include "runtime/session/token_feed.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace kvopt::driver {
using namespace analysis;
using namespace ir;
using namespace runtime;

namespace {

/// Number of steps of a trial; fewer for models with many weights.
constexpr int64_t usualSteps = 6;
constexpr int64_t fewSteps = 3;
constexpr int64_t manyWeights = int64_t{1} << 27;

TrialResult failed(const char* what, bool isDecisive) { return {what, isDecisive}; }

} // namespace

llvm::Expected<std::unique_ptr<Trial>> Trial::create(const Model& model, const Manifest& manifest,
                                                     llvm::StringSet<> attention, bool isRecovered,
                                                     std::vector<InputRecipe> recipes,
                                                     const Toolkit& toolkit) {
  std::unique_ptr<Trial> trial(new Trial(model, std::move(attention), std::move(recipes)));
  trial->mustSeeEarlier = isRecovered && !trial->attention.empty();
  const Graph& graph = model.graph();
  trial->tolerance = toleranceFor(graph, 2);
  trial->steps = weightCount(graph) > manyWeights ? fewSteps : usualSteps;
  EquivalencePlan plan;
  plan.batch = 1;
  plan.prompt = trial->steps;
  fitTokenInputs(graph, manifest, plan);
  fitFixedPast(manifest, plan);
  if (plan.pastRows > 0) {
    trial->whyNot = formatted("every step follows {} earlier tokens", plan.pastRows);
    return trial;
  }
  trial->stepTokens = plan.stepTokens;
  if (trial->stepTokens > 1 || plan.prompt == 1) {
    trial->takesChunks = false;
  }
  auto known = vocabularyOf(graph, manifest.inputs);
  if (!known) {
    llvm::consumeError(known.takeError());
    trial->whyNot = "the number of token ids is unknown";
    return trial;
  }
  trial->vocabulary = *known;
  for (const Value* input : tokenInputs(graph, manifest.inputs))
    if (input->type().hasRank() && input->type().rank() >= 2)
      trial->batchExtent = input->type().dim(0);
  SessionOptions options;
  options.batch = plan.batch;
  options.threads = 1;
  if (!manifest.capacityValue)
    options.capacity = 2 * trial->steps * trial->stepTokens;
  auto session = Session::create(model, toolkit.runner->kernels(), manifest, options);
  if (!session)
    return session.takeError();
  trial->session = std::move(*session);
  trial->findObstacle();
  return trial;
}

void Trial::findObstacle() {
  if (session->cacheCount() == 0)
    whyNot = "the model has no caches";
  else if (llvm::any_of(model.graph().nodes(),
                        [](const Node& node) { return isRandom(node.op()); }))
    whyNot = "the model computes random numbers";
  steps = std::min(steps, session->capacity() / stepTokens);
  if (whyNot.empty() && steps < 2)
    whyNot = "the caches have room for one step only";
  takesChunks &= llvm::none_of(model.graph().nodes(), quantizesDynamically);
}

FeedOptions Trial::feedOf(llvm::ArrayRef<InputRecipe> roles) const {
  FeedOptions feed;
  feed.recipes = recipes;
  feed.recipes.insert(feed.recipes.end(), roles.begin(), roles.end());
  return feed;
}

/// Whether rows are made up for the tokens of a step, which depend on their number.
bool Trial::hasMadeUpRows(llvm::ArrayRef<InputRecipe> roles) const {
  auto isFed = [&](const Value& input) {
    auto isIt = [&](const InputRecipe& recipe) { return recipe.input == input.name(); };
    return isMask(input) || llvm::any_of(roles, isIt);
  };
  return llvm::any_of(session->callerInputs(), [&](const Value* input) {
    const TensorType& type = input->type();
    return isFloatingPoint(type.elementType()) && input->name() != "inputs_embeds" &&
           (!type.hasRank() || type.rank() > 1 ||
            (type.rank() == 1 && !type.dim(0).isKnownEqual(batchExtent))) &&
           llvm::any_of(type.shape(), [](const Dim& extent) { return !extent.value(); }) &&
           !isFed(*input);
  });
}

bool Trial::isMask(const Value& input) const {
  return llvm::any_of(session->manifest().inputs, [&](const ManifestInput& entry) {
    return entry.input == input.name() && isMaskFeed(entry.feed);
  });
}

bool Trial::isAttention(size_t index) const {
  return attention.contains(session->cacheInfo(index).past);
}

llvm::Error Trial::start(Rows rows) {
  if (llvm::Error error = session->reset())
    return error;
  for (size_t i = 0; i < session->cacheCount(); ++i)
    for (const ManifestCache& cache : described)
      if (cache.past == session->cacheInfo(i).past && !cache.initial.empty())
        fillRepeatedly(session->cacheBuffer(i), cache.initial);
  if (rows == Rows::Zeros)
    return llvm::Error::success();
  for (size_t i = 0; i < session->cacheCount(); ++i) {
    const CacheUpdate update = session->cacheInfo(i).update();
    const bool isFilled =
        isAttention(i) && (update == CacheUpdate::Static || update == CacheUpdate::Ring);
    const TensorView view = session->cacheBuffer(i);
    if (isFilled && hasNumbers(view))
      forEachElement(view, [&](int64_t index, int64_t offset) {
        setNumber(view, offset, fillingNumber(index));
      });
  }
  return llvm::Error::success();
}

llvm::Expected<std::vector<Tensor>> Trial::cacheContents() const {
  std::vector<Tensor> contents;
  for (size_t i = 0; i < session->cacheCount(); ++i) {
    auto rows = session->cacheRows(i);
    if (!rows)
      return rows.takeError();
    auto copy = Tensor::copyOf(session->allocator(), rows->view);
    if (!copy)
      return copy.takeError();
    contents.push_back(std::move(*copy));
  }
  return contents;
}

/// Changes the rows of attention that the latest step of `written` tokens wrote.
llvm::Error Trial::changeNewRows(Session& fork, llvm::ArrayRef<Tensor> before, int64_t written,
                                 bool& isChanged) const {
  constexpr double difference = 1.5;
  for (size_t i = 0; i < fork.cacheCount(); ++i) {
    if (!isAttention(i))
      continue;
    auto rows = fork.cacheRows(i);
    if (!rows)
      return rows.takeError();
    TensorView view = rows->view;
    if (!hasNumbers(view))
      continue;
    const auto axis = static_cast<unsigned>(fork.cacheInfo(i).sequenceAxis);
    const bool grows = before[i].view.shape != view.shape;
    if (grows)
      view = sliceAxis(view, axis, view.shape[axis] - written, view.shape[axis]);
    forEachElement(view, [&](int64_t index, int64_t offset) {
      const double number = numberAt(view, offset);
      if (!grows && number == numberAt(before[i].view, index))
        return;
      setNumber(view, offset, number + difference);
      isChanged = true;
    });
  }
  return llvm::Error::success();
}

llvm::Expected<bool> Trial::isSameLast(const Tensor& one, const Tensor& other) const {
  auto a = lastScores(one, 0);
  auto b = a ? lastScores(other, 0) : a.takeError();
  if (!b)
    return b.takeError();
  auto compared = compareTensors(*a, *b, tolerance);
  if (!compared)
    return compared.takeError();
  return compared->isWithin();
}

std::vector<std::vector<int64_t>> Trial::tokensOf(int64_t count) const {
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < count; ++i)
    tokens.push_back((3 + 5 * (session->length() + i) + (otherToken == session->length() + i)) %
                     vocabulary);
  return {static_cast<size_t>(session->batch()), tokens};
}

llvm::Expected<Tensor> Trial::scoresAmongEqualValues(const FeedOptions& options, double keyFactor) {
  constexpr double value = 2;
  auto fork = session->fork();
  if (!fork)
    return fork.takeError();
  for (size_t i = 0; i < (*fork)->cacheCount(); ++i) {
    auto rows = (*fork)->cacheRows(i);
    if (!rows)
      return rows.takeError();
    const bool isKey = (*fork)->cacheInfo(i).role == CacheRole::Key;
    if (isAttention(i) && hasNumbers(rows->view))
      forEachElement(rows->view, [&](int64_t index, int64_t offset) {
        setNumber(rows->view, offset, isKey ? keyFactor * fillingNumber(index) : value);
      });
  }
  TokenFeed feed(**fork, options);
  StepResult result;
  if (llvm::Error error = feed.run(tokensOf(stepTokens), result))
    return error;
  auto logits = findLogits(result);
  return logits ? Tensor::copyOf(session->allocator(), (*logits)->view) : logits.takeError();
}

/// Whether the last token sees its own row. Requires keys and values in separate caches of ordinary
/// numbers; otherwise true.
llvm::Expected<bool> Trial::seesItself(const FeedOptions& options) {
  bool hasKeys = false, hasValues = false;
  for (size_t i = 0; i < session->cacheCount(); ++i) {
    if (!isAttention(i))
      continue;
    const CacheRole role = session->cacheInfo(i).role;
    if ((role != CacheRole::Key && role != CacheRole::Value) ||
        !hasNumbers(session->cacheBuffer(i)))
      return true;
    hasKeys |= role == CacheRole::Key;
    hasValues |= role == CacheRole::Value;
  }
  if (!hasKeys || !hasValues)
    return true;
  const std::vector<int64_t> before(static_cast<size_t>(steps - 1), stepTokens);
  auto earlier = scoresOf(before, options, Rows::Zeros);
  if (!earlier)
    return earlier.takeError();
  auto one = scoresAmongEqualValues(options, 1);
  auto other = one ? scoresAmongEqualValues(options, -1) : one.takeError();
  if (!other)
    return other.takeError();
  auto isSame = isSameLast(*one, *other);
  return isSame ? llvm::Expected<bool>(!*isSame) : isSame.takeError();
}

llvm::Expected<std::vector<Tensor>> Trial::scoresOf(llvm::ArrayRef<int64_t> sizes,
                                                    const FeedOptions& options, Rows first,
                                                    bool* seesEarlier) {
  if (llvm::Error error = start(first))
    return error;
  TokenFeed feed(*session, options);
  std::vector<Tensor> scores;
  std::vector<Tensor> before;
  StepResult result;
  for (size_t step = 0; step < sizes.size(); ++step) {
    const std::vector<std::vector<int64_t>> rows = tokensOf(sizes[step]);
    std::unique_ptr<Session> fork;
    bool isChanged = false;
    if (seesEarlier && step > 0 && !*seesEarlier) {
      auto made = session->fork();
      if (!made)
        return made.takeError();
      fork = std::move(*made);
      if (llvm::Error error = changeNewRows(*fork, before, sizes[step - 1], isChanged))
        return error;
    }
    if (seesEarlier && !*seesEarlier) {
      auto copies = cacheContents();
      if (!copies)
        return copies;
      before = std::move(*copies);
    }
    if (llvm::Error error = feed.run(rows, result))
      return error;
    auto logits = findLogits(result);
    if (!logits)
      return logits.takeError();
    auto copy = Tensor::copyOf(session->allocator(), (*logits)->view);
    if (!copy)
      return copy.takeError();
    scores.push_back(std::move(*copy));
    if (!fork)
      continue;
    StepResult changed;
    TokenFeed forkFeed(*fork, options);
    if (llvm::Error error = forkFeed.run(rows, changed))
      return error;
    auto other = findLogits(changed);
    if (!other)
      return other.takeError();
    auto compared = compareTensors((*logits)->view, (*other)->view, Tolerance{0, 0});
    if (!compared)
      return compared.takeError();
    *seesEarlier = !isChanged || !compared->isWithin();
  }
  return scores;
}

/// Compares steps of single tokens with one step and with two.
llvm::Expected<TrialResult> Trial::compareChunks(const FeedOptions& feed,
                                                 llvm::ArrayRef<Tensor> single) {
  const auto count = static_cast<int64_t>(single.size());
  // Chunks of different sizes distinguish a number that is the same in a chunk from a sum of equal
  // parts.
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{count}, std::vector<int64_t>{count / 3, count - count / 3},
        std::vector<int64_t>{count - 1, 1}}) {
    if (llvm::is_contained(sizes, 0))
      continue;
    auto scores = scoresOf(sizes, feed, Rows::Zeros);
    if (!scores) {
      // The model does not take such steps.
      llvm::consumeError(scores.takeError());
      continue;
    }
    int64_t token = 0;
    for (size_t step = 0; step < sizes.size(); ++step) {
      const TensorView& view = (*scores)[step].view;
      const int64_t given = view.shape[1];
      token += sizes[step];
      for (int64_t back = 0; back < std::min(given, sizes[step]); ++back) {
        auto ours = lastScores((*scores)[step], 0, back);
        auto theirs =
            ours ? lastScores(single[static_cast<size_t>(token - 1 - back)], 0) : ours.takeError();
        if (!theirs)
          return theirs.takeError();
        auto compared = compareTensors(*ours, *theirs, tolerance);
        if (!compared)
          return compared.takeError();
        if (!compared->isWithin())
          return failed("tokens in one step have other scores than one by one",
                        /*isDecisive=*/true);
      }
    }
  }
  return TrialResult();
}

llvm::Expected<TrialResult> Trial::run(llvm::ArrayRef<InputRecipe> roles,
                                       llvm::ArrayRef<ManifestCache> caches) {
  described = caches;
  const FeedOptions feed = feedOf(roles);
  const std::vector<int64_t> sizes(static_cast<size_t>(steps), stepTokens);
  bool seesEarlier = !mustSeeEarlier;
  auto single = scoresOf(sizes, feed, Rows::Zeros, &seesEarlier);
  if (!single)
    return single.takeError();
  for (const Tensor& scores : *single)
    if (auto token = greedyToken(scores, 0); !token) {
      llvm::consumeError(token.takeError());
      return failed("scores are not numbers", /*isDecisive=*/true);
    }
  auto filled = scoresOf(sizes, feed, Rows::OtherNumbers);
  if (!filled)
    return filled.takeError();
  for (size_t step = 0; step < sizes.size(); ++step) {
    auto isSame = isSameLast((*single)[step], (*filled)[step]);
    if (!isSame)
      return isSame.takeError();
    if (!*isSame)
      return failed("a token sees rows that no step has written", /*isDecisive=*/true);
  }
  if (!seesEarlier)
    return failed("no token sees the rows of the token before it", /*isDecisive=*/true);
  auto isOwnRowSeen = seesItself(feed);
  if (!isOwnRowSeen)
    return isOwnRowSeen.takeError();
  if (!*isOwnRowSeen)
    return failed("a token does not see itself", /*isDecisive=*/false);
  latest = std::move(*single);
  if (!comparesChunks() || hasMadeUpRows(feed.recipes))
    return TrialResult();
  return compareChunks(feed, latest);
}

bool Trial::hasScores(llvm::ArrayRef<Tensor> scores) const {
  if (scores.size() != latest.size())
    return false;
  for (size_t step = 0; step < latest.size(); ++step) {
    auto isSame = isSameLast(scores[step], latest[step]);
    if (!isSame) {
      llvm::consumeError(isSame.takeError());
      return false;
    }
    if (!*isSame)
      return false;
  }
  return true;
}

/// Whether a step moves rows of caches whose extents it keeps.
llvm::Expected<bool> Trial::movesRows(llvm::ArrayRef<Tensor> before) const {
  for (size_t i = 0; i < session->cacheCount(); ++i) {
    if (!isAttention(i))
      continue;
    auto rows = session->cacheRows(i);
    if (!rows)
      return rows.takeError();
    const TensorView& view = rows->view;
    if (!hasNumbers(view) || before[i].view.shape != view.shape)
      continue;
    int64_t changed = 0;
    forEachElement(view, [&](int64_t index, int64_t offset) {
      changed += numberAt(view, offset) != numberAt(before[i].view, index);
    });
    const int64_t extent = view.shape[static_cast<unsigned>(session->cacheInfo(i).sequenceAxis)];
    if (changed > view.elementCount() / std::max<int64_t>(extent, 1) * stepTokens)
      return true;
  }
  return false;
}

llvm::Expected<std::optional<Tensor>> Trial::scoresAfterHidden(const FeedOptions& options,
                                                               bool changesRows) {
  if (llvm::Error error = start(Rows::Zeros))
    return error;
  TokenFeed feed(*session, options);
  for (int64_t row = 0; row < session->batch(); ++row)
    feed.hidePadding(static_cast<size_t>(stepTokens),
                     static_cast<size_t>((steps - 2) * stepTokens));
  StepResult result;
  for (int64_t step = 0; step + 2 < steps; ++step)
    if (llvm::Error error = feed.run(tokensOf(stepTokens), result))
      return error;
  auto before = cacheContents();
  if (!before)
    return before.takeError();
  if (llvm::Error error = feed.run(tokensOf(stepTokens), result))
    return error;
  if (changesRows) {
    bool isChanged = false;
    auto isElsewhere = movesRows(*before);
    if (!isElsewhere)
      return isElsewhere.takeError();
    if (llvm::Error error = changeNewRows(*session, *before, stepTokens, isChanged))
      return error;
    if (!isChanged || *isElsewhere)
      return std::nullopt;
  }
  if (llvm::Error error = feed.run(tokensOf(stepTokens), result))
    return error;
  auto logits = findLogits(result);
  if (!logits)
    return logits.takeError();
  auto copy = Tensor::copyOf(session->allocator(), (*logits)->view);
  if (!copy)
    return copy.takeError();
  return std::move(*copy);
}

llvm::Expected<bool> Trial::hidesRows(llvm::ArrayRef<InputRecipe> roles,
                                      llvm::ArrayRef<ManifestCache> caches) {
  constexpr int64_t fewestSteps = 3;
  if (steps < fewestSteps)
    return true;
  described = caches;
  const FeedOptions feed = feedOf(roles);
  auto one = scoresAfterHidden(feed, /*changesRows=*/false);
  auto other = one ? scoresAfterHidden(feed, /*changesRows=*/true) : one.takeError();
  if (!other)
    return other.takeError();
  if (!*other)
    return true;
  auto compared = compareTensors((*one)->view, (*other)->view, Tolerance{0, 0});
  return compared ? llvm::Expected<bool>(compared->isWithin()) : compared.takeError();
}

llvm::Expected<std::array<bool, 2>> Trial::remembers(llvm::ArrayRef<InputRecipe> roles,
                                                     llvm::ArrayRef<ManifestCache> caches) {
  described = caches;
  const FeedOptions feed = feedOf(roles);
  const std::vector<int64_t> sizes(static_cast<size_t>(steps), stepTokens);
  auto usual = scoresOf(sizes, feed, Rows::Zeros);
  if (!usual)
    return usual.takeError();
  std::array<bool, 2> isRemembered = {};
  for (size_t token = 0; token < isRemembered.size(); ++token) {
    otherToken = static_cast<int64_t>(token) * stepTokens;
    auto other = scoresOf(sizes, feed, Rows::Zeros);
    otherToken.reset();
    if (!other)
      return other.takeError();
    auto compared = compareTensors(usual->back().view, other->back().view, Tolerance{0, 0});
    if (!compared)
      return compared.takeError();
    isRemembered[token] = !compared->isWithin();
  }
  return isRemembered;
}

llvm::Expected<bool> Trial::changesWith(llvm::ArrayRef<InputRecipe> roles,
                                        const InputRecipe& recipe) {
  FeedOptions feed = feedOf(roles);
  const std::vector<int64_t> sizes(2, stepTokens);
  auto usual = scoresOf(sizes, feed, Rows::Zeros);
  if (!usual)
    return usual.takeError();
  llvm::erase_if(feed.recipes, [&](const InputRecipe& role) { return role.input == recipe.input; });
  feed.recipes.push_back(recipe);
  auto other = scoresOf(sizes, feed, Rows::Zeros);
  if (!other)
    return other.takeError();
  auto isSame = isSameLast(usual->back(), other->back());
  return isSame ? llvm::Expected<bool>(!*isSame) : isSame.takeError();
}

} // namespace kvopt::driver
