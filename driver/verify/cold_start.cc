// Test whether the first step reads rows that no token wrote.
#include "driver/verify/cold_start.h"

#include "driver/verify/verification.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"

#include <cstring>

namespace kvopt::driver {
using namespace ir;
using namespace runtime;

namespace {

/// Number of rows of the caches that the model itself keeps at fixed extents; 0 if there are none.
int64_t keptRows(const Manifest& manifest) {
  int64_t most = 0;
  for (const ManifestCache& cache : manifest.caches)
    if (cache.update() == CacheUpdate::Ring && !cache.isOneBuffer())
      most = std::max(most, cache.fixedRows().value_or(0));
  return most;
}

/// Runs the first step from caches whose elements are all `number`.
llvm::Expected<StepResult> firstStep(Session& session, const EquivalencePlan& plan, float number) {
  std::vector<Tensor> rows;
  std::vector<NamedView> seeds;
  for (size_t i = 0; i < session.cacheCount(); ++i) {
    auto held = session.exportedCacheRows(i);
    if (!held)
      return held.takeError();
    auto copy = Tensor::copyOf(session.allocator(), held->view);
    if (!copy)
      return copy.takeError();
    if (copy->view.element == ElementType::Float)
      std::fill_n(copy->view.as<float>(), copy->view.elementCount(), number);
    seeds.push_back({session.cacheInfo(i).past, copy->view});
    rows.push_back(std::move(*copy));
  }
  if (llvm::Error error = session.seed(seeds, 0))
    return error;
  EquivalencePlan shown = plan;
  shown.padding = Padding::None;
  return stepDecoder(session, PlannedSteps(shown).next(plan.prompt, 0, false));
}

bool isSame(const StepResult& one, const StepResult& other) {
  return llvm::all_of(llvm::zip(one.outputs, other.outputs), [](const auto& pair) {
    const TensorView& first = std::get<0>(pair).tensor.view;
    const TensorView& second = std::get<1>(pair).tensor.view;
    return first.shape == second.shape &&
           std::memcmp(first.data, second.data, static_cast<size_t>(first.byteSize())) == 0;
  });
}

} // namespace

int64_t tokensBeforeStart(const Model& model, const Manifest& manifest, const EquivalencePlan& plan,
                          unsigned threads, const Toolkit& toolkit) {
  const int64_t rows = keptRows(manifest);
  if (rows == 0)
    return 0;
  bool isDefined = true;
  auto session = openForTokens(model, manifest, plan.batch, plan.totalTokens(), threads, toolkit);
  if (session) {
    auto zeros = firstStep(**session, plan, 0);
    llvm::Error error = (*session)->reset();
    auto ones =
        error ? llvm::Expected<StepResult>(std::move(error)) : firstStep(**session, plan, 1);
    isDefined = !zeros || !ones || isSame(*zeros, *ones);
    llvm::consumeError(zeros.takeError());
    llvm::consumeError(ones.takeError());
  } else {
    llvm::consumeError(session.takeError());
  }
  return isDefined ? 0 : rows;
}

} // namespace kvopt::driver
