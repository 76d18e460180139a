// The plan of the runs, and what they let a rewritten model claim.
#include "driver/verify/rewrite_runs.h"

#include "driver/verify/verification.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::driver {
using namespace ir;

llvm::Error compareByRuns(const RewrittenPair& pair, const RewriteRequest& request,
                          const Toolkit& toolkit, RewriteComparison& result) {
  VerificationPlan plan = request.verification == VerificationExtent::Full
                              ? fullVerification()
                              : VerificationPlan(quickVerification());
  plan.setTolerance(toleranceBetween(pair.original.graph(), pair.manifest));
  plan.setRecipes(request.recipes);
  auto report = verifyModels(pair.original, pair.driven, pair.written, pair.manifest, plan, 1,
                             toolkit, pair.hasNewFirstStep ? pair.firstStep : nullptr);
  if (!report)
    return llvm::handleErrors(report.takeError(), [&](const OriginalRefusal& refused) {
      result.notVerified =
          formatted("the model as it was read takes no step: {}", refused.diagnostic().str());
    });
  ManifestComparison& claim = *result.claim;
  claim.by = request.verification == VerificationExtent::Full ? ComparisonMeans::Full
                                                              : ComparisonMeans::Quick;
  claim.verdict = EqualityVerdict::Tested;
  llvm::append_range(claim.notChecked, report->neverRun);
  result.verification = std::make_shared<VerificationReport>(std::move(*report));
  return llvm::Error::success();
}

} // namespace kvopt::driver
