// Runs a prompt without its padding.
#include "driver/generate/padding_test.h"

#include "driver/verify/verification.h"
#include "passes/analysis/tokens/row_operators.h"
#include "runtime/equivalence/comparison.h"
#include "runtime/session/token_choice.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace kvopt::driver {
using namespace ir;
using namespace runtime;

namespace {

/// Whether small differences of sums become large ones.
bool rounds(const Session& session) {
  return llvm::any_of(session.graph().nodes(), analysis::quantizesDynamically) ||
         llvm::any_of(session.manifest().caches, [](const ManifestCache& cache) {
           return isInteger(cache.dtype) && cache.update() != CacheUpdate::State;
         });
}

} // namespace

llvm::Expected<std::optional<PaddingTest>>
PaddingTest::create(const Session& session, llvm::ArrayRef<std::vector<int64_t>> prompts) {
  const auto [least, most] =
      std::minmax_element(prompts.begin(), prompts.end(), [](const auto& one, const auto& other) {
        return one.size() < other.size();
      });
  if (least->size() == most->size() || session.length() != 0 || rounds(session))
    return std::nullopt;
  auto fork = session.fork();
  if (!fork)
    return fork.takeError();
  return PaddingTest(std::move(*fork), *least, static_cast<size_t>(least - prompts.begin()));
}

llvm::Error PaddingTest::run(const FeedOptions& options, size_t chunk, const Tensor& logits,
                             int64_t after) {
  settings = options;
  settings.onStep = nullptr; // observers see the steps of the session only
  feed = std::make_unique<TokenFeed>(*fork, settings);
  for (size_t begin = 0; begin < prompt.size(); begin += chunk) {
    const auto part = llvm::ArrayRef(prompt).slice(begin, std::min(chunk, prompt.size() - begin));
    const std::vector<std::vector<int64_t>> rows(static_cast<size_t>(fork->batch()), part.vec());
    if (llvm::Error error = feed->run(rows, alone))
      return error;
  }
  return compare(logits, after);
}

llvm::Error PaddingTest::runNext(int64_t token, const Tensor& logits) {
  const std::vector<std::vector<int64_t>> rows(static_cast<size_t>(fork->batch()), {token});
  if (llvm::Error error = feed->run(rows, alone))
    return error;
  return compare(logits, 0);
}

llvm::Error PaddingTest::compare(const Tensor& logits, int64_t after) const {
  auto ours = findLogits(alone);
  if (!ours)
    return ours.takeError();
  const auto batchRow = static_cast<int64_t>(shortest);
  auto expected = lastScores(**ours, batchRow);
  auto padded = expected ? lastScores(logits, batchRow, after) : expected.takeError();
  if (!padded)
    return padded.takeError();
  auto compared = compareTensors(*expected, *padded, toleranceFor(fork->graph(), 2));
  if (!compared)
    return compared.takeError();
  if (compared->isWithin())
    return llvm::Error::success();
  return unsupported("the prompts differ in length, and padding changes the scores of prompt {}: "
                     "the model does not hide it everywhere, or counts it",
                     shortest + 1)
      .hint("run prompts of one length together");
}

} // namespace kvopt::driver
