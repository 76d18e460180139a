// Comparison of a rewritten model with the model as it was read.
#include "driver/rewrite/comparison.h"

#include "driver/check/check_files.h"
#include "support/diagnostic.h"

namespace kvopt::driver {
using namespace ir;
using check::Verdict;

namespace {

/// Whether a check can prove all that the rewrite claims. It is about real numbers and about one
/// model, and it feeds inputs by their roles.
bool canProve(const RewrittenPair& pair, const RewriteRequest& request) {
  const bool roundsNumbers =
      request.form.rows != RowKind::Same || request.tileState == ElementType::Float16;
  return !roundsNumbers && !pair.firstStep && request.form.split == SplitKind::None &&
         request.recipes.empty();
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

std::string RewriteComparison::contradiction() const {
  if (!verification || verification->isDifferent() || !checked ||
      checked->verdict() != Verdict::Different)
    return "";
  return fmt::format("the run shows no difference, but a check finds one: {}; kvopt check "
                     "--counterexample writes the step",
                     checkSentences(*checked).front());
}

llvm::Expected<RewriteComparison>
compareRewritten(const RewrittenPair& pair, const RewriteRequest& request, const Toolkit& toolkit) {
  RewriteComparison result;
  const bool isCheck = request.verification == VerificationExtent::Check;
  if (isCheck || (request.verification == VerificationExtent::Auto && canProve(pair, request))) {
    auto checked = checkAsWritten({pair.original, pair.driven}, {pair.written, pair.manifest});
    if (!checked)
      return checked.takeError();
    result.checked = std::move(*checked);
    if (pair.firstStep)
      result.checked->notChecked.push_back("the model of the first step");
    if (isCheck || isProof(result.checked->verdict()))
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
