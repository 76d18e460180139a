// Comparison of a rewritten model with the model as it was read.
#include "driver/rewrite/comparison.h"

#include "check/checker.h"
#include "driver/check/check_files.h"
#include "support/diagnostic.h"

namespace kvopt::driver {
using namespace ir;
using check::Verdict;

namespace {

/// Whether the written model computes with rounded rows of caches or states of tiles. A check is
/// about real numbers.
bool roundsNumbers(const RewriteRequest& request) {
  return request.form.rows != RowKind::Same || request.tileState == ElementType::Float16;
}

bool isProof(Verdict verdict) { return isEqual(verdict, /*allowsTested=*/false); }

/// Runs both models.
llvm::Error run(const RewrittenPair& pair, const RewriteRequest& request, const Toolkit& toolkit,
                RewriteComparison& result) {
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
          fmt::format("the model as it was read takes no step: {}", refused.diagnostic().str());
    });
  result.verification = std::move(*report);
  return llvm::Error::success();
}

} // namespace

bool RewriteComparison::isDifferent() const {
  return verification ? verification->isDifferent()
                      : checked && checked->verdict() == Verdict::Different;
}

bool RewriteComparison::mayBeWritten() const {
  if (!notVerified.empty())
    return false;
  if (verification)
    return verification->isEqualWhereRun();
  return !checked || isEqual(checked->verdict(), /*allowsTested=*/true);
}

llvm::Expected<RewriteComparison>
compareRewritten(const RewrittenPair& pair, const RewriteRequest& request, const Toolkit& toolkit) {
  RewriteComparison result;
  const bool isAuto = request.verification == VerificationExtent::Auto;
  if (request.verification == VerificationExtent::Check || (isAuto && !roundsNumbers(request))) {
    result.checked =
        check::checkModels({pair.original, pair.driven}, {pair.written, pair.manifest});
    if (pair.firstStep)
      result.checked->notChecked.push_back("the model of the first step");
    if (!isAuto)
      return result;
    const bool isWhole =
        !pair.firstStep && request.form.split == SplitKind::None && request.recipes.empty();
    if (isWhole && isProof(result.checked->verdict()))
      return result;
  }
  llvm::Error error = run(pair, request, toolkit, result);
  if (!error)
    return result;
  Diagnostic failure = takeDiagnostic(std::move(error));
  if (failure.kind != Diagnostic::Kind::Unsupported || !result.checked ||
      !isEqual(result.checked->verdict(), /*allowsTested=*/true))
    return makeError(std::move(failure));
  result.checked->notChecked.push_back(fmt::format("a run, because of {}", failure.str()));
  return result;
}

} // namespace kvopt::driver
