// Conversion of options to a plan.
#include "driver/verify/verify_words.h"

#include "support/diagnostic.h"

namespace kvopt::driver {
using namespace runtime;

VerificationPlan VerifyWords::plan() const {
  VerificationPlan planned = fullVerification();
  if (isOneRun()) {
    EquivalencePlan run = planned.runs.front();
    run.prompt = prompt.value_or(run.prompt);
    run.chunks = chunks.value_or(run.chunks);
    run.decodeSteps = steps.value_or(run.decodeSteps);
    run.batch = batch.value_or(run.batch);
    run.padding = padding.value_or(Padding::None);
    planned = VerificationPlan(run);
    planned.requested = {prompt.has_value(), chunks.has_value(), steps.has_value()};
  }
  planned.depth = depth.value_or(0);
  for (EquivalencePlan& run : planned.runs)
    run.seed = seed;
  return planned;
}

Tolerance VerifyWords::tolerance(const PreparedModel& first, const PreparedModel& second) const {
  const Tolerance usual = toleranceBetween(first.model->graph(), second.manifest);
  return {atol.value_or(usual.absolute), rtol.value_or(atol ? 0.0 : usual.relative)};
}

llvm::Error VerifyWords::checkModels(size_t models) const {
  if (models + (reference.empty() ? 0 : 1) != 2)
    return usageError("verify takes two models, a model and --reference PATH, or models and "
                      "--references")
        .hint("kvopt inspect MODEL prints what a rewrite claims of a model");
  if (!text.text.empty() && !text.numbers.empty())
    return usageError("--text-file excludes --token-file");
  if (reference.empty())
    return llvm::Error::success();
  // A recording is replayed as it is.
  if (!text.path().empty())
    return usageError("--reference excludes {}",
                      text.text.empty() ? "--token-file" : "--text-file");
  if (isOneRun() || depth || !inputs.empty() || !states.empty())
    return usageError("--reference excludes the options for runs");
  return llvm::Error::success();
}

llvm::Expected<VerificationPlan> VerifyWords::planFor(const PreparedModel& first,
                                                      const PreparedModel& second) const {
  VerificationPlan planned = plan();
  planned.setTolerance(tolerance(first, second));
  auto recipes = ir::parseInputRecipes(inputs, states);
  if (!recipes)
    return recipes.takeError();
  planned.setRecipes(*recipes);
  return planned;
}

} // namespace kvopt::driver
