// What further runs of a trial show of roles that may hold.
#include "driver/roles/trial.h"

#include "driver/verify/row_numbers.h"
#include "runtime/equivalence/equivalence.h"
#include "runtime/session/token_choice.h"
#include "runtime/session/token_feed.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace kvopt::driver {
using namespace ir;
using namespace runtime;

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
