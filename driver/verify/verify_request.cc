// Comparisons with models and with recordings.
#include "driver/verify/verify_request.h"

#include "driver/verify/likelihood.h"
#include "driver/verify/references.h"
#include "passes/unrounding/quantized_groups.h"
#include "passes/unrounding/quantized_model.h"
#include "runtime/equivalence/reference.h"
#include "support/diagnostic.h"

namespace kvopt::driver {
using namespace ir;
using namespace runtime;
using namespace unrounding;

namespace {

void say(VerifyRemark remark, llvm::StringRef sentence) {
  if (remark)
    remark(sentence);
}

/// Adds the likelihoods of a text to the report.
llvm::Error measureText(std::vector<int64_t> tokens, const PreparedModel& first,
                        const PreparedModel& second, const VerifyWords& words,
                        const Toolkit& toolkit, VerificationReport& report) {
  TextPlan plan;
  plan.tokens = std::move(tokens);
  plan.context = words.context;
  auto recipes = parseInputRecipes(words.inputs, words.states);
  if (!recipes)
    return recipes.takeError();
  plan.recipes = std::move(*recipes);
  auto likelihood = compareLikelihoods(*first.model, first.manifest, *second.model, second.manifest,
                                       plan, words.threads, toolkit);
  if (!likelihood)
    return withFile(likelihood.takeError(), words.text.path());
  report.likelihood = *likelihood;
  return llvm::Error::success();
}

} // namespace

llvm::Expected<VerificationReport> verifyRecorded(const PreparedModel& prepared,
                                                  llvm::ArrayRef<ReferenceStep> steps,
                                                  const VerifyWords& words, const Toolkit& toolkit,
                                                  VerifyRemark remark) {
  VerificationReport report;
  // The tolerance of recorded outputs is absolute.
  report.tolerance = {words.atol.value_or(toleranceFor(prepared.model->graph(), 1).absolute),
                      words.rtol.value_or(0.0)};
  if (isDrivenOtherwise(prepared.model->graph(), prepared.manifest, steps)) {
    say(remark, "the recording has steps of its own: each is run with all that was recorded for "
                "it, caches too");
    auto compared = runAsRecorded(prepared, steps, report.tolerance, words.threads, toolkit);
    if (!compared)
      return withFile(compared.takeError(), words.reference);
    report.comparison = std::move(*compared);
    return report;
  }
  auto settings = referenceSession(prepared.manifest, steps, words.threads);
  if (!settings)
    return withFile(settings.takeError(), words.reference);
  auto session =
      Session::create(*prepared.model, toolkit.runner->kernels(), prepared.manifest, *settings);
  if (!session)
    return session.takeError();
  auto comparison = replayReference(**session, steps, report.tolerance);
  if (!comparison)
    return withFile(comparison.takeError(), words.reference);
  const bool hasConstantScales =
      prepared.manifest.target == "ort-gqa" && groupCodeBits(*prepared.model) != 0;
  if ((hasQuantizedCaches(prepared.manifest) || hasConstantScales) && !words.atol)
    say(remark, "rows of the caches are rounded to codes, recordings are not: the usual tolerance "
                "shows how far off that is; --atol says what may be");
  report.comparison = std::move(*comparison);
  report.cacheBytesWritten = (*session)->statistics().cacheBytesWritten;
  report.cacheBytesCopied = (*session)->statistics().inPlaceBytesCopied;
  return report;
}

llvm::Expected<VerificationReport> verify(const PreparedModel& first, const PreparedModel* second,
                                          const VerifyWords& words, const Toolkit& toolkit,
                                          VerifyRemark remark) {
  if (!second) {
    auto steps = readReference(words.reference);
    if (!steps)
      return steps.takeError();
    return verifyRecorded(first, *steps, words, toolkit, remark);
  }
  auto plan = words.planFor(first, *second);
  if (!plan)
    return plan.takeError();
  auto tokens = readTokens(words.text);
  if (!tokens)
    return tokens.takeError();
  if (!words.text.text.empty())
    if (llvm::Error error = checkByteTokens(first.model->graph(), first.manifest.inputs,
                                            "--text-file", "--token-file"))
      return error;
  auto report = verifyPrepared(first, *second, *plan, words.threads, toolkit);
  if (report && second->manifest.comparison)
    report->claimed = {*second->manifest.comparison, digestOf(*first.model)};
  if (report && !tokens->empty())
    if (llvm::Error error =
            measureText(std::move(*tokens), first, *second, words, toolkit, *report))
      return error;
  return report;
}

} // namespace kvopt::driver
