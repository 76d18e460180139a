// Runs of a model with and without rounding, and comparison of their outputs.
#include "driver/verify/rounding.h"

#include "driver/verify/verification.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::driver {
using namespace ir;
using namespace runtime;

namespace {

/// Allowed deviation for rows of a type, which is that of models that compute in it.
double allowedBy(ElementType dtype) { return dtype == ElementType::Float16 ? 2e-2 : 1e-1; }

} // namespace

llvm::Expected<RoundingReport> checkRounding(const Model& plain, const Manifest& plainManifest,
                                             const Model& rounded, const Manifest& roundedManifest,
                                             const EquivalencePlan& plan,
                                             llvm::ArrayRef<int64_t> steps, unsigned threads,
                                             const Toolkit& toolkit) {
  const int64_t tokens = plan.pastRows + plan.totalTokens();
  auto first = openForTokens(plain, plainManifest, plan.batch, tokens, threads, toolkit);
  if (!first)
    return first.takeError();
  auto second = openForTokens(rounded, roundedManifest, plan.batch, tokens, threads, toolkit);
  if (!second)
    return second.takeError();
  if (plan.pastRows > 0)
    for (const auto& session : {std::ref(*first), std::ref(*second)})
      if (llvm::Error error = session.get()->preset(plan.pastRows))
        return error;
  RoundingReport report;
  for (const ManifestCache& cache : roundedManifest.caches) {
    if (cache.exportedDtype == ElementType::Undefined)
      continue;
    ++report.caches;
    report.dtype = cache.dtype;
    report.allowed = std::max(report.allowed, allowedBy(cache.dtype));
  }
  PlannedSteps planned(plan);
  for (int64_t count : steps) {
    const DecoderStep input = planned.next(count, (*first)->length(), false);
    auto ours = stepDecoder(**first, input);
    if (!ours)
      return withFile(ours.takeError(), plain.path);
    auto theirs = stepDecoder(**second, input);
    if (!theirs)
      return withFile(theirs.takeError(), rounded.path);
    if (llvm::Error error =
            report.deviation.add(*ours, *theirs, static_cast<int64_t>(input.tokens.size())))
      return error;
    ++report.steps;
  }
  return report;
}

} // namespace kvopt::driver
