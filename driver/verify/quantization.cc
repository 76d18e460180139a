// Comparison of attention with its definition, and of outputs with the original's.
#include "driver/verify/quantization.h"

#include "driver/verify/verification.h"
#include "ir/rows/row_code.h"
#include "passes/unrounding/quantized_groups.h"
#include "passes/unrounding/quantized_model.h"
#include "passes/unrounding/widened_model.h"
#include "runtime/exec/input_binding.h"
#include "runtime/session/quantized_rows.h"
#include "support/diagnostic.h"
#include "support/format.h"

#include <cmath>
#include <numeric>

namespace kvopt::driver {
using namespace ir;
using namespace pattern;
using namespace runtime;
using namespace unrounding;

namespace {

/// Allowed difference of sums of a few thousand f32 terms, relative to their largest term. Results
/// of 16 bits are rounded on both sides.
double allowedDifference(const Model& model) {
  constexpr double ordinary = 1e-4;
  return ordinary + 2 * narrowNumbersOf(model).unitRoundoff();
}

class Check {
public:
  Check(Session& originalSession, Session& definedSession, std::vector<DefinedSite> definedSites,
        QuantizationReport& filled)
      : original(originalSession), defined(definedSession), sites(std::move(definedSites)),
        report(filled) {
    // The other ones only round rows.
    for (const DefinedSite& site : sites)
      report.sites += !site.presents.empty() || !site.valueScale.empty() ? 1 : 0;
  }

  llvm::Error step(const DecoderStep& input) {
    auto fromOriginal = stepDecoder(original, input);
    if (!fromOriginal)
      return withFile(fromOriginal.takeError(), original.modelPath());
    auto fromDefined = stepDecoder(defined, input);
    if (!fromDefined)
      return withFile(fromDefined.takeError(), defined.modelPath());
    for (const DefinedSite& site : sites)
      if (llvm::Error error = compareSite(site, *fromDefined))
        return error;
    if (llvm::Error error = report.deviation.add(*fromOriginal, *fromDefined,
                                                 static_cast<int64_t>(input.tokens.size())))
      return error;
    ++report.steps;
    return llvm::Error::success();
  }

private:
  llvm::Error compareSite(const DefinedSite& site, const StepResult& result) {
    double largestScale = 0;
    for (unsigned i = 0; i < site.presents.size(); ++i) {
      std::optional<size_t> cache = cacheOf(site.presents[i]);
      const Tensor* present = result.find(site.definedPresents[i]);
      if (!cache || !present)
        return invalid("the manifest does not describe '{}'", site.presents[i]);
      const auto axis = static_cast<unsigned>(defined.cacheInfo(*cache).sequenceAxis);
      // The valid rows of a buffer, or all slots of a ring.
      auto rows = defined.cacheRows(*cache);
      if (!rows)
        return rows.takeError();
      const TensorView& held = rows->view;
      auto compared = compareTensors(held, sliceAxis(present->view, axis, 0, held.shape[axis]));
      if (!compared)
        return compared.takeError();
      // Any NaN equals any other.
      report.rowsIdentical &= compared->isWithin();
      const CacheRole role = defined.cacheInfo(*cache).role;
      if (role == CacheRole::ValueScale || role == CacheRole::LatentScale)
        largestScale = largestMagnitude(held);
    }
    if (!site.valueScale.empty()) {
      const std::optional<size_t> scales = cacheOf(site.valueScale);
      if (!scales)
        return invalid("the manifest does not describe '{}'", site.valueScale);
      auto rows = defined.cacheRows(*scales);
      if (!rows)
        return rows.takeError();
      largestScale = largestMagnitude(rows->view);
    }
    const Tensor* output = result.find(site.output);
    const Tensor* expected = result.find(site.definedOutput);
    if (!output || !expected)
      return invalid("the model does not give '{}'", site.output);
    auto compared = compareTensors(output->view, expected->view);
    if (!compared)
      return compared.takeError();
    const double largest =
        site.largestNumber != 0 ? site.largestNumber : largestCode() * largestScale;
    // NaN is not within any limit.
    const double relative = compared->maxAbs == 0 ? 0 : compared->maxAbs / largest;
    if (!(relative <= report.siteDifference))
      report.siteDifference = std::isnan(relative) ? HUGE_VAL : relative;
    return llvm::Error::success();
  }

  /// The largest factor of a scale.
  double largestCode() const {
    for (size_t i = 0; i < defined.cacheCount(); ++i)
      if (defined.caches().scalesOf(i))
        return double{rowCodeOf(defined.cacheInfo(i).dtype)->largest};
    return double{int8Rows.largest};
  }

  std::optional<size_t> cacheOf(llvm::StringRef present) const {
    for (size_t i = 0; i < defined.cacheCount(); ++i)
      if (defined.cacheInfo(i).present == present)
        return i;
    return std::nullopt;
  }

  Session& original;
  Session& defined;
  std::vector<DefinedSite> sites;
  QuantizationReport& report;
};

void nameCodes(const CacheState& caches, bool areFourBitGroups, QuantizationReport& report) {
  for (size_t i = 0; i < caches.size(); ++i)
    if (caches.scalesOf(i))
      report.word = rowCodeOf(caches.info(i).dtype)->word;
  if (areFourBitGroups)
    report.word = fourBitRows.word;
  if (llvm::StringRef(report.word) == fourBitRows.word)
    report.bits = 4;
}

} // namespace

llvm::Expected<QuantizationReport>
checkQuantization(const Model& original, const Manifest& originalManifest, const Model& quantized,
                  const Manifest& quantizedManifest, CodeForms forms, const EquivalencePlan& plan,
                  llvm::ArrayRef<int64_t> steps, unsigned threads, const Toolkit& toolkit) {
  auto defined = cloneModel(quantized, toolkit);
  if (!defined)
    return defined.takeError();
  auto sites = addDefinitions(**defined, forms);
  if (!sites)
    return sites.takeError();
  // The room is not for all tokens of the plan, which may exceed a cache of fixed extents.
  const int64_t room = std::accumulate(steps.begin(), steps.end(), plan.pastRows);
  auto first = openForTokens(original, originalManifest, plan.batch, room, threads, toolkit);
  if (!first)
    return first.takeError();
  auto second = openForTokens(**defined, quantizedManifest, plan.batch, room, threads, toolkit);
  if (!second)
    return second.takeError();
  if (plan.pastRows > 0) {
    if (llvm::Error error = (*first)->preset(plan.pastRows))
      return withFile(std::move(error), original.path);
    if (llvm::Error error = seedQuantized((*second)->caches(), (*first)->caches()))
      return withFile(std::move(error), quantized.path);
  }
  QuantizationReport report;
  report.siteAllowed = allowedDifference(original);
  nameCodes((*second)->caches(), forms.groupCodes && groupCodeBits(quantized) == 4, report);
  Check check(**first, **second, std::move(*sites), report);
  PlannedSteps planned(plan);
  for (int64_t tokens : steps)
    if (llvm::Error error = check.step(planned.next(tokens, (*first)->length(), false)))
      return error;
  return report;
}

} // namespace kvopt::driver
