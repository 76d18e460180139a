// Comparison of a rewritten model with the model as it was read.
#include "driver/rewrite/comparison.h"

#include "driver/check/check_files.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"

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

EqualityVerdict claimedVerdict(Verdict verdict) {
  switch (verdict) {
  case Verdict::Proved:
    return EqualityVerdict::Proved;
  case Verdict::ProvedReduced:
    return EqualityVerdict::ProvedReduced;
  case Verdict::Tested:
  case Verdict::Different:
  case Verdict::Skipped:
    break;
  }
  return EqualityVerdict::Tested;
}

/// Checks both models. The claim is that of the check, unless it shows no equality.
llvm::Error check(const RewrittenPair& pair, const Toolkit& toolkit, RewriteComparison& result) {
  auto report =
      checkAsWritten({pair.original, pair.driven}, {pair.written, pair.manifest}, toolkit);
  if (!report)
    return report.takeError();
  ManifestComparison& claim = *result.claim;
  if (isEqual(report->verdict(), /*allowsTested=*/true)) {
    // A check of the files decides less about a model with a first step.
    if (!pair.firstStep)
      claim.certificate = certificateDigest(*report, claim.before);
    claim.verdict = claimedVerdict(report->verdict());
    claim.assumptions = report->assumptions;
    claim.notChecked = report->notChecked;
  }
  if (pair.firstStep) {
    report->notChecked.push_back("the model of the first step");
    claim.notChecked.push_back("the model of the first step");
  }
  result.checked = std::move(*report);
  return llvm::Error::success();
}

/// Compares the models, and claims what that shows.
llvm::Error compare(const RewrittenPair& pair, const RewriteRequest& request,
                    const Toolkit& toolkit, RewriteComparison& result) {
  const bool isCheck = request.verification == VerificationExtent::Check;
  const bool isAuto = request.verification == VerificationExtent::Auto;
  if (isCheck || (isAuto && (canProve(pair, request) || !toolkit.runner))) {
    if (llvm::Error error = check(pair, toolkit, result))
      return error;
    if (isCheck || isProof(result.checked->verdict()) || !toolkit.runner)
      return llvm::Error::success();
  }
  if (!toolkit.runner)
    return needsRuntime("--verify quick or full");
  llvm::Error error = toolkit.runner->compare(pair, request, toolkit, result);
  if (!error)
    return error;
  Diagnostic failure = takeDiagnostic(std::move(error));
  if (failure.kind != Diagnostic::Kind::Unsupported || !result.checked ||
      !isEqual(result.checked->verdict(), /*allowsTested=*/true))
    return makeError(std::move(failure));
  result.checked->notChecked.push_back(formatted("a run, because of {}", failure.str()));
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
    return verification->isEqualWhereRun() && contradiction().empty();
  return !checked || isEqual(checked->verdict(), /*allowsTested=*/true);
}

void RewriteComparison::noteGap(const std::string& gap) {
  if (gap.empty())
    return;
  if (claim)
    claim->notChecked.push_back(gap);
  if (checked)
    checked->notChecked.push_back(gap);
  if (verification)
    verification->noteGap(gap);
}

std::string RewriteComparison::contradiction() const {
  if (!verification || verification->isDifferent() || !checked ||
      checked->verdict() != Verdict::Different)
    return "";
  return formatted("the run shows no difference, but a check finds one: {}; --verify off writes "
                   "the model, and kvopt check --counterexample the step",
                   checkSentences(*checked).front());
}

llvm::Expected<RewriteComparison>
compareRewritten(const RewrittenPair& pair, const RewriteRequest& request, const Toolkit& toolkit) {
  RewriteComparison result;
  result.claim.emplace().before = pair.digest;
  if (llvm::Error error = compare(pair, request, toolkit, result))
    return error;
  result.noteGap(pair.untested);
  // A model that was not read cannot be named.
  if (pair.digest.empty() || !result.mayBeWritten())
    result.claim.reset();
  return result;
}

} // namespace kvopt::driver
