// Guessing of tokens, and cropping of rejected guesses.
#include "driver/generate/draft.h"

#include "support/diagnostic.h"

namespace kvopt::driver {
using namespace ir;
using namespace runtime;

llvm::Expected<std::vector<int64_t>> Draft::guess(llvm::ArrayRef<int64_t> sequence, int64_t count) {
  std::vector<int64_t> all(sequence.begin(), sequence.end());
  while (static_cast<int64_t>(all.size() - sequence.size()) < count) {
    auto token = next(all);
    if (!token)
      return token.takeError();
    if (!*token)
      break;
    all.push_back(**token);
  }
  return std::vector<int64_t>(all.begin() + static_cast<std::ptrdiff_t>(sequence.size()),
                              all.end());
}

llvm::Expected<std::optional<int64_t>> Draft::next(llvm::ArrayRef<int64_t> sequence) {
  auto unseen = sequence.drop_front(static_cast<size_t>(session.length()));
  if (llvm::Error error = session.checkRoom(static_cast<int64_t>(unseen.size()))) {
    llvm::consumeError(std::move(error));
    return std::nullopt;
  }
  while (!unseen.empty()) {
    const size_t most = static_cast<size_t>(session.mostStepTokens());
    if (llvm::Error error =
            feed.run({unseen.take_front(std::min(most, unseen.size())).vec()}, result))
      return error;
    unseen = unseen.drop_front(std::min(most, unseen.size()));
  }
  auto logits = findLogits(result);
  if (!logits)
    return logits.takeError();
  scoreCount = (*logits)->view.shape[2];
  auto token = chooser.choose(**logits, {static_cast<int64_t>(sequence.size()), 0});
  if (!token)
    return token.takeError();
  return std::optional<int64_t>(*token);
}

llvm::Error Draft::goBack(int64_t tokens) {
  return tokens < session.length() ? session.crop(tokens) : llvm::Error::success();
}

llvm::Error checkGoesBack(const Session& session, llvm::StringRef whose) {
  if (session.cacheCount() == 0)
    return usageError("{} has no caches: it computes all tokens anew at every step", whose);
  for (size_t i = 0; i < session.cacheCount(); ++i) {
    const ManifestCache& cache = session.cacheInfo(i);
    if (cache.update() == CacheUpdate::Ring || cache.update() == CacheUpdate::State)
      return usageError("{} cannot take tokens back: '{}' keeps {}", whose, cache.past,
                        cache.update() == CacheUpdate::Ring ? "the last rows only"
                                                            : "a state only");
  }
  return llvm::Error::success();
}

} // namespace kvopt::driver
