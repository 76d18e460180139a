// Sites beside their definitions, and outputs beside the original's.
#include "driver/verify/quantization.h"

#include "driver/verify/verification.h"
#include "runtime/equivalence/quantized_model.h"
#include "runtime/equivalence/widened_model.h"
#include "runtime/exec/input_binding.h"
#include "runtime/session/generation.h"
#include "support/diagnostic.h"
#include "support/format.h"
#include "support/half.h"

#include <cmath>

namespace kvopt::driver {
using namespace ir;
using namespace pattern;
using namespace runtime;

namespace {

/// What sums of a few thousand f32 terms may be off by, relative to their largest term; results of
/// 16 bits are rounded on both sides.
double allowedDifference(const Model& model) {
  constexpr double ordinary = 1e-4;
  return ordinary + 2 * narrowNumbersOf(model).unitRoundoff();
}

/// Calls body(element) for the elements of a view of float, float16 or bfloat16.
template <class Body> void forEachNumber(const TensorView& view, Body body) {
  Extents index(view.rank(), 0);
  for (int64_t left = view.elementCount(); left > 0; --left) {
    int64_t offset = 0;
    for (unsigned axis = 0; axis < view.rank(); ++axis)
      offset += index[axis] * view.strides[axis];
    if (view.element == ElementType::Float)
      body(double{view.as<float>()[offset]});
    else if (view.element == ElementType::Float16)
      body(double{f16ToFloat(view.as<uint16_t>()[offset])});
    else if (view.element == ElementType::BFloat16)
      body(double{bf16ToFloat(view.as<uint16_t>()[offset])});
    for (unsigned axis = view.rank(); axis-- > 0 && ++index[axis] == view.shape[axis];)
      index[axis] = 0;
  }
}

/// Of the finite elements.
double largestMagnitude(const TensorView& view) {
  double largest = 0;
  forEachNumber(view, [&](double x) {
    if (std::isfinite(x))
      largest = std::max(largest, std::fabs(x));
  });
  return largest;
}

class Check {
public:
  Check(Session& originalSession, Session& definedSession, std::vector<DefinedSite> definedSites,
        QuantizationReport& filled)
      : original(originalSession), defined(definedSession), sites(std::move(definedSites)),
        report(filled) {
    report.sites = sites.size();
  }

  llvm::Error step(const DecoderStep& input) {
    auto fromOriginal = stepDecoder(original, input);
    if (!fromOriginal)
      return fromOriginal.takeError();
    auto fromDefined = stepDecoder(defined, input);
    if (!fromDefined)
      return fromDefined.takeError();
    for (const DefinedSite& site : sites)
      if (llvm::Error error = compareSite(site, *fromDefined))
        return error;
    if (llvm::Error error = measureDeviation(*fromOriginal, *fromDefined))
      return error;
    countTokens(*fromOriginal, *fromDefined, static_cast<int64_t>(input.tokens.size()));
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
      auto compared = compareTensors(defined.cacheView(*cache),
                                     sliceAxis(present->view, axis, 0, defined.length()));
      if (!compared)
        return compared.takeError();
      // NaN is NaN, whatever its bits.
      report.rowsIdentical &= compared->isWithin();
      if (defined.cacheInfo(*cache).role == CacheRole::ValueScale)
        largestScale = largestMagnitude(defined.cacheView(*cache));
    }
    const Tensor* output = result.find(site.output);
    const Tensor* expected = result.find(site.definedOutput);
    if (!output || !expected)
      return invalid("the model does not give '{}'", site.output);
    auto compared = compareTensors(output->view, expected->view);
    if (!compared)
      return compared.takeError();
    constexpr double largestCode = 127;
    if (compared->maxAbs != 0)
      report.siteDifference =
          std::max(report.siteDifference, compared->maxAbs / (largestCode * largestScale));
    return llvm::Error::success();
  }

  std::optional<size_t> cacheOf(llvm::StringRef present) const {
    for (size_t i = 0; i < defined.cacheCount(); ++i)
      if (defined.cacheInfo(i).present == present)
        return i;
    return std::nullopt;
  }

  llvm::Error measureDeviation(const StepResult& fromOriginal, const StepResult& fromDefined) {
    for (const NamedTensor& ours : fromOriginal.outputs) {
      const Tensor* theirs = fromDefined.find(ours.name);
      if (!theirs)
        continue;
      auto compared = compareTensors(theirs->view, ours.tensor.view);
      if (!compared)
        return compared.takeError();
      report.deviation = std::max(report.deviation, compared->maxAbs);
      report.magnitude = std::max(report.magnitude, largestMagnitude(ours.tensor.view));
    }
    return llvm::Error::success();
  }

  void countTokens(const StepResult& fromOriginal, const StepResult& fromDefined, int64_t rows) {
    auto ours = findLogits(fromOriginal);
    // Outputs of sites are no scores: the original's name tells which output they are.
    if (!ours)
      return llvm::consumeError(ours.takeError());
    const Tensor* theirs = nullptr;
    for (const NamedTensor& output : fromOriginal.outputs)
      if (&output.tensor == *ours)
        theirs = fromDefined.find(output.name);
    for (int64_t row = 0; theirs && row < rows; ++row) {
      auto one = greedyToken(**ours, row);
      auto other = greedyToken(*theirs, row);
      ++report.tokens;
      if (one && other && *one == *other)
        ++report.tokensAlike;
      llvm::consumeError(one.takeError());
      llvm::consumeError(other.takeError());
    }
  }

  Session& original;
  Session& defined;
  std::vector<DefinedSite> sites;
  QuantizationReport& report;
};

} // namespace

llvm::Expected<QuantizationReport>
checkQuantization(const Model& original, const Manifest& originalManifest, const Model& quantized,
                  const Manifest& quantizedManifest, const EquivalencePlan& plan,
                  llvm::ArrayRef<int64_t> steps, unsigned threads, const Toolkit& toolkit) {
  auto defined = cloneModel(quantized, toolkit);
  if (!defined)
    return defined.takeError();
  auto sites = addDefinitions(**defined);
  if (!sites)
    return sites.takeError();
  auto first = openForTokens(original, originalManifest, plan.batch,
                             plan.pastRows + plan.totalTokens(), threads, toolkit);
  if (!first)
    return first.takeError();
  auto second = openForTokens(**defined, quantizedManifest, plan.batch,
                              plan.pastRows + plan.totalTokens(), threads, toolkit);
  if (!second)
    return second.takeError();
  QuantizationReport report;
  report.siteAllowed = allowedDifference(original);
  Check check(**first, **second, std::move(*sites), report);
  PlannedSteps planned(plan);
  for (int64_t tokens : steps)
    if (llvm::Error error = check.step(planned.next(tokens, (*first)->length(), false)))
      return error;
  return report;
}

} // namespace kvopt::driver
