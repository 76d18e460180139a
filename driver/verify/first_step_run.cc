// One step of a session of its own.
#include "driver/verify/first_step_run.h"

#include "driver/first_step.h"
#include "driver/recover.h"
#include "runtime/session/decoder_inputs.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::driver {
using namespace ir;
using namespace runtime;

llvm::Expected<std::vector<NamedTensor>> runFirstStep(const Model& firstStep, int64_t batch,
                                                      llvm::ArrayRef<InputRecipe> recipes,
                                                      unsigned threads, const Toolkit& toolkit) {
  auto manifest = drivingManifest(firstStep, toolkit);
  if (!manifest)
    return manifest.takeError();
  SessionOptions options;
  options.batch = batch;
  options.threads = threads;
  auto session = Session::create(firstStep, toolkit.runner->kernels(), *manifest, options);
  if (!session)
    return withFile(session.takeError(), firstStep.path);
  DecoderStep step;
  step.tokens.assign(static_cast<size_t>(batch), {0});
  std::vector<InputRecipe> own;
  llvm::copy_if(recipes, std::back_inserter(own), [&](const InputRecipe& recipe) {
    return hasInput(firstStep.graph(), recipe.input);
  });
  step.recipes = own;
  auto inputs = decoderInputs(**session, step);
  if (!inputs)
    return withFile(inputs.takeError(), firstStep.path);
  std::vector<NamedView> views;
  for (const NamedTensor& input : *inputs)
    views.push_back({input.name, input.tensor.view});
  auto results = (*session)->step(views, 1);
  if (!results)
    return withFile(results.takeError(), firstStep.path);
  std::vector<NamedTensor> caches;
  for (const NamedTensor& result : results->outputs) {
    auto copy = Tensor::copyOf((*session)->allocator(), result.tensor.view);
    if (!copy)
      return copy.takeError();
    caches.push_back({result.name, std::move(*copy)});
  }
  return caches;
}

} // namespace kvopt::driver
