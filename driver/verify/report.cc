// The report of a verification as JSON and as text.
#include "driver/verify/report.h"

#include "ir/manifest/field_table.h"
#include "support/format.h"
#include "support/json.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace kvopt::driver {
using namespace runtime;

namespace {

/// A number in JSON. JSON has no infinity and no NaN, so these are strings.
OrderedJson finite(double value) {
  if (std::isfinite(value))
    return value;
  return std::isnan(value) ? "nan" : "inf";
}

OrderedJson comparisonJson(const TensorComparison& tensor) {
  const Comparison& comparison = tensor.comparison;
  OrderedJson json = {{"max_abs", finite(comparison.maxAbs)}, {"max_ulp", comparison.maxUlp},
                      {"bit_exact", comparison.bitExact},     {"allowed", finite(tensor.allowed)},
                      {"compared", comparison.compared},      {"skipped", tensor.skipped}};
  if (tensor.nanInFirst != 0)
    json["nan_in_first"] = tensor.nanInFirst;
  if (!tensor.mismatch.empty())
    json["mismatch"] = tensor.mismatch;
  if (tensor.visible)
    json["visible_rows"] = {{"max_abs", finite(tensor.visible->maxAbs)},
                            {"compared", tensor.visible->compared},
                            {"equal", tensor.visible->isWithin()}};
  return json;
}

OrderedJson groupJson(llvm::ArrayRef<TensorComparison> tensors) {
  OrderedJson json = OrderedJson::object();
  for (const TensorComparison& tensor : tensors)
    json[tensor.name] = comparisonJson(tensor);
  return json;
}

OrderedJson quantizationJson(const QuantizationReport& report) {
  return {{"bits", report.bits},
          {"sites", report.sites},
          {"steps", report.steps},
          {"equal_to_definition", report.equal()},
          {"rows_identical", report.rowsIdentical},
          {"max_relative", finite(report.siteDifference)},
          {"allowed_relative", report.siteAllowed},
          {"deviation_from_original",
           {{"max_abs", finite(report.deviation.largest)},
            {"of", report.deviation.magnitude},
            {"tokens_compared", report.deviation.tokens},
            {"tokens_equal", report.deviation.tokensAlike}}}};
}

std::vector<std::string> quantizationSummary(const QuantizationReport& report) {
  return {formatted("{}: int{} caches against their definition: {} attention layers × {} steps; "
                    "rows {}; outputs within {:.1e} of the largest value (allowed {:.1e})",
                    report.equal() ? "OK" : "DIFFERENT", report.bits, report.sites, report.steps,
                    report.rowsIdentical ? "identical" : "DIFFERENT", report.siteDifference,
                    report.siteAllowed),
          formatted("quantization moves outputs by up to {:.1e} of {:.1e}; {} of {} most likely "
                    "tokens stay",
                    report.deviation.largest, report.deviation.magnitude,
                    report.deviation.tokensAlike, report.deviation.tokens)};
}

OrderedJson roundingJson(const RoundingReport& report) {
  return {{"caches", report.caches},
          {"dtype", dtypeName(report.dtype).str()},
          {"steps", report.steps},
          {"within_rounding", report.equal()},
          {"allowed_relative", report.allowed},
          {"deviation_from_original",
           {{"max_abs", finite(report.deviation.largest)},
            {"of", report.deviation.magnitude},
            {"tokens_compared", report.deviation.tokens},
            {"tokens_equal", report.deviation.tokensAlike}}}};
}

std::string roundingSummary(const RoundingReport& report) {
  return formatted("{}: rounding the rows of {} caches to {} moves outputs by up to {:.1e} of "
                   "{:.1e} (allowed {:.1e} of it); {} of {} most likely tokens stay",
                   report.equal() ? "OK" : "DIFFERENT", report.caches,
                   dtypeName(report.dtype).str(), report.deviation.largest,
                   report.deviation.magnitude, report.allowed, report.deviation.tokensAlike,
                   report.deviation.tokens);
}

OrderedJson codesJson(const CodesReport& report) {
  return {{"caches", report.caches},
          {"codes_compared", report.compared},
          {"codes_different", report.different},
          {"largest_difference", finite(report.largest)},
          {"outputs_max_abs", finite(report.largestOutput)},
          {"tokens_equal", report.tokensEqual}};
}

std::string codesSummary(const CodesReport& report) {
  return formatted("codes: {} of {} in {} caches are the next one, as rounding decides; that moves "
                   "outputs by up to {:.1e}, tokens {}",
                   report.different, report.compared, report.caches, report.largestOutput,
                   report.tokensEqual ? "equal" : "different");
}

OrderedJson likelihoodJson(const LikelihoodReport& report) {
  return {{"tokens", report.tokens},
          {"context", report.context},
          {"perplexity", {finite(report.perplexityOfA()), finite(report.perplexityOfB())}},
          {"tokens_equal", report.tokensAlike},
          {"mean_divergence", finite(report.meanDivergence())}};
}

std::string likelihoodSummary(const LikelihoodReport& report) {
  return formatted(
      "text: {} tokens predicted, {} at a time: perplexity {:.4f} and {:.4f} "
      "({:+.3f} %); {} most likely tokens stay ({:.2f} %); mean divergence {:.1e} nats",
      report.tokens, report.context, report.perplexityOfA(), report.perplexityOfB(),
      100 * (report.perplexityOfB() / report.perplexityOfA() - 1), report.tokensAlike,
      100 * static_cast<double>(report.tokensAlike) /
          static_cast<double>(std::max<int64_t>(1, report.tokens)),
      report.meanDivergence());
}

/// Number of made-up rows from which every run of a model with a fixed past starts; 0 for other
/// models.
int64_t pastRowsOf(const VerificationReport& report) {
  return report.runs.empty() ? 0 : report.runs.front().plan.pastRows;
}

/// The distinct values, in order, that `get` gives for the runs that start like the first one.
template <class Get> auto valuesOf(const VerificationReport& report, Get get) {
  std::set<decltype(get(report.runs.front().plan))> values;
  for (const VerificationRun& run : report.runs)
    if (run.plan.pastRows == pastRowsOf(report))
      values.insert(get(run.plan));
  return std::vector(values.begin(), values.end());
}

std::vector<int64_t> batchesOf(const VerificationReport& report) {
  return valuesOf(report, [](const EquivalencePlan& plan) { return plan.batch; });
}

std::vector<int64_t> promptsOf(const VerificationReport& report) {
  return valuesOf(report, [](const EquivalencePlan& plan) { return plan.prompt; });
}

/// Ascending numbers as text. A long list is shortened to its first and last numbers and its
/// length.
std::string numbersText(llvm::ArrayRef<int64_t> numbers) {
  constexpr size_t most = 7, shown = 3;
  if (numbers.size() <= most)
    return joinedText(numbers, ", ");
  return formatted("{} … {} ({} numbers)", joinedText(numbers.take_front(shown), ", "),
                   joinedText(numbers.take_back(shown), ", "), numbers.size());
}

std::vector<std::string> paddingsOf(const VerificationReport& report) {
  return valuesOf(
      report, [](const EquivalencePlan& plan) { return std::string(paddingName(plan.padding)); });
}

int64_t tokensOf(const VerificationReport& report) {
  int64_t most = 0;
  for (const StepComparison& step : report.comparison.steps)
    most = std::max(most, step.pastTokens + step.tokens);
  return most;
}

std::vector<std::string> namesOf(llvm::ArrayRef<StepComparison> steps,
                                 std::vector<TensorComparison> StepComparison::*group) {
  std::vector<std::string> names;
  if (!steps.empty())
    for (const TensorComparison& tensor : steps.front().*group)
      names.push_back(tensor.name);
  return names;
}

/// Whether the models differ only in rows of padding.
bool differsInPaddingOnly(const VerificationReport& report) {
  return report.comparison.differsInPaddingOnly() &&
         (!report.quantization || report.quantization->equal()) &&
         (!report.rounding || report.rounding->equal());
}

/// The verdict: equal, different or inconclusive.
const char* verdictOf(const VerificationReport& report) {
  return report.isDifferent() ? "different" : report.isConclusive() ? "equal" : "inconclusive";
}

OrderedJson coverageJson(const VerificationReport& report) {
  OrderedJson json;
  json["batches"] = batchesOf(report);
  json["prompts"] = promptsOf(report);
  json["padding"] = paddingsOf(report);
  json["tokens"] = tokensOf(report);
  if (pastRowsOf(report) != 0)
    json["past_rows"] = pastRowsOf(report);
  json["around"] = OrderedJson::array();
  for (const Landmark& landmark : report.visited)
    json["around"].push_back({{"tokens", landmark.tokens}, {"what", landmark.what()}});
  if (report.variantsRun != 0)
    json["variants"] = report.variantsRun;
  json["outputs"] = namesOf(report.comparison.steps, &StepComparison::outputs);
  json["caches"] = namesOf(report.comparison.steps, &StepComparison::caches);
  json["not_covered"] = report.notCovered;
  if (!report.neverRun.empty())
    json["never_run"] = report.neverRun;
  if (!report.unreadTables.empty())
    json["never_read"] = report.unreadTables;
  return json;
}

} // namespace

OrderedJson verificationJson(const VerificationReport& report) {
  OrderedJson json;
  json["schema"] = "kvopt/verify/1";
  json["equal"] = report.equal();
  json["verdict"] = verdictOf(report);
  json["padded_rows_only"] = differsInPaddingOnly(report);
  json["steps"] = OrderedJson::array();
  size_t run = 0;
  size_t stepsLeft = report.runs.empty() ? 0 : report.runs.front().steps;
  for (const StepComparison& step : report.comparison.steps) {
    while (stepsLeft == 0 && run + 1 < report.runs.size())
      stepsLeft = report.runs[++run].steps;
    stepsLeft -= stepsLeft == 0 ? 0 : 1;
    json["steps"].push_back({{"run", run},
                             {"phase", step.phase},
                             {"past_tokens", step.pastTokens},
                             {"tokens", step.tokens},
                             {"outputs", groupJson(step.outputs)},
                             {"caches", groupJson(step.caches)}});
  }
  if (const int64_t elements = report.comparison.nanInFirst(); elements != 0)
    json["nan_in_first"] = elements;
  json["worst"] = nullptr;
  if (const TensorComparison* worst = report.comparison.worst()) {
    json["worst"] = comparisonJson(*worst);
    json["worst"]["name"] = worst->name;
  }
  json["differences"] = report.comparison.differences;
  json["coverage"] = coverageJson(report);
  if (!report.limitedByMetadata.empty())
    json["limited_by_metadata"] = report.limitedByMetadata;
  if (!report.unproved.empty())
    json["unproved"] = report.unproved;
  if (!report.guessed.empty())
    json["guessed_inputs"] = report.guessed;
  json["refused"] = nullptr;
  if (report.comparison.refusedSteps != 0)
    json["refused"] = {{"steps", report.comparison.refusedSteps},
                       {"message", report.comparison.refusal}};
  json["tokens_equal"] = report.comparison.tokensEqual;
  if (report.claimed) {
    json["claimed"] = ir::valueJson(report.claimed->comparison);
    json["claimed"]["about_first"] = report.claimed->isAboutFirst();
  }
  if (report.quantization)
    json["quantization"] = quantizationJson(*report.quantization);
  if (report.rounding)
    json["rounding"] = roundingJson(*report.rounding);
  if (report.codes)
    json["codes"] = codesJson(*report.codes);
  if (report.likelihood)
    json["likelihood"] = likelihoodJson(*report.likelihood);
  json["tolerance"] = {{"atol", report.tolerance.absolute}, {"rtol", report.tolerance.relative}};
  json["cache_bytes"] = {{"written", report.cacheBytesWritten},
                         {"copied", report.cacheBytesCopied}};
  return json;
}

namespace {

/// Text such as `8 caches compared`.
std::string cachesText(const VerificationReport& report) {
  const ComparisonReport& comparison = report.comparison;
  size_t caches = 0;
  bool areExact = true;
  bool areWithin = true;
  for (const StepComparison& step : comparison.steps) {
    caches = std::max(caches, step.caches.size());
    for (const TensorComparison& cache : step.caches) {
      areExact &= cache.comparison.bitExact;
      areWithin &= cache.comparison.isWithin();
    }
  }
  if (caches == 0)
    return comparison.hasCaches ? "caches of one model only" : "no caches";
  const char* verdict = areExact ? "identical" : areWithin ? "equal" : "compared";
  return formatted("{} cache{} {}", caches, caches == 1 ? "" : "s", verdict);
}

std::string stepsText(size_t steps) {
  return formatted("{} step{} compared", steps, steps == 1 ? "" : "s");
}

/// Text such as `53 steps; largest difference 1.7e-05; 8 caches compared; tokens equal`.
std::string measuresText(const VerificationReport& report) {
  const ComparisonReport& comparison = report.comparison;
  const TensorComparison* worst = comparison.worst();
  std::string text =
      formatted("{}; largest difference {:.1e}; {}", stepsText(comparison.steps.size()),
                worst ? worst->comparison.maxAbs : 0.0, cachesText(report));
  if (comparison.anyToken)
    text += comparison.tokensEqual ? "; tokens equal" : "; tokens DIFFERENT";
  return text;
}

/// Numbers for developers of kernels.
std::string detailText(const VerificationReport& report) {
  uint64_t maxUlp = 0;
  for (const StepComparison& step : report.comparison.steps)
    for (const auto* group : {&step.outputs, &step.caches})
      for (const TensorComparison& tensor : *group)
        maxUlp = std::max(maxUlp, tensor.comparison.maxUlp);
  return formatted("max ulp {}; allowed {:.1e} + {:.1e} of the value", maxUlp,
                   report.tolerance.absolute, report.tolerance.relative);
}

/// The places at which the models differ.
std::string differenceText(const VerificationReport& report) {
  constexpr size_t shown = 3;
  const ComparisonReport& comparison = report.comparison;
  const llvm::ArrayRef<std::string> all = comparison.differences;
  if (!all.empty())
    return formatted("DIFFERENT: {}{}", joinedText(all.take_front(shown), "; "),
                     all.size() <= shown ? "" : formatted("; and {} more", all.size() - shown));
  const TensorComparison* worst = comparison.worst();
  const std::string name = worst ? worst->name : "";
  if (differsInPaddingOnly(report))
    return formatted("DIFFERENT in padded rows only: worst is '{}'; the rows of all tokens agree "
                     "(--pad none compares without padding)",
                     name);
  return formatted("DIFFERENT: worst is '{}'", name);
}

/// The verdict, with the reason unless the models are equal.
std::string verdictText(const VerificationReport& report) {
  const ComparisonReport& comparison = report.comparison;
  if (comparison.isDifferent() || !comparison.tokensEqual)
    return differenceText(report);
  if (!report.limitedByMetadata.empty())
    return "INCONCLUSIVE: " + report.limitedByMetadata;
  if (!report.neverRun.empty())
    return formatted("INCONCLUSIVE: no run reached {}", joinedText(report.neverRun, "; "));
  if (!report.unproved.empty())
    return formatted("INCONCLUSIVE: not proved of {}", joinedText(report.unproved, "; "));
  if (const auto names = comparison.nothingButNan(); !names.empty())
    return formatted("INCONCLUSIVE: the first model has no numbers, only NaN, in '{}'",
                     joinedText(names, "', '"));
  if (!comparison.isConclusive())
    return comparison.steps.empty() ? "INCONCLUSIVE: nothing was compared"
                                    : "INCONCLUSIVE: no step after earlier tokens was compared";
  std::string text = "OK";
  if (!report.unreadTables.empty())
    text += " in the rows of tables that the runs read";
  if (comparison.nanInFirst() != 0)
    text += report.unreadTables.empty() ? " where the first model has numbers"
                                        : ", where the first model has numbers";
  return text;
}

/// The elements that were not compared because the first model has no numbers there.
std::string nanText(int64_t elements) {
  return formatted("not compared: {} element{} of batch rows with padding, NaN in the first model "
                   "and {} in the second: a row that sees no key divides zero by zero",
                   elements, elements == 1 ? "" : "s", elements == 1 ? "a number" : "numbers");
}

/// The landmarks by kind, as "; steps around 16, 32 (block), 200 (capacity) tokens".
std::string aroundText(llvm::ArrayRef<Landmark> visited) {
  std::vector<std::string> kinds;
  for (size_t i = 0; i < visited.size(); ++i) {
    std::vector<int64_t> tokens;
    const auto isOfKind = [&](const Landmark& other) { return other.kind == visited[i].kind; };
    if (llvm::any_of(visited.take_front(i), isOfKind))
      continue;
    for (const Landmark& landmark : visited)
      if (isOfKind(landmark))
        tokens.push_back(landmark.tokens);
    kinds.push_back(
        formatted("{} ({})", numbersText(tokens),
                  visited[i].kind == LandmarkKind::Compared ? "compared" : visited[i].what()));
  }
  return kinds.empty() ? "" : formatted("; steps around {} tokens", joinedText(kinds, ", "));
}

std::string coverageText(const VerificationReport& report) {
  const size_t caches = namesOf(report.comparison.steps, &StepComparison::caches).size();
  std::string text =
      formatted("covered: batch {}; prompt {}; padding {}; up to {} tokens; {} caches; outputs {}",
                numbersText(batchesOf(report)), numbersText(promptsOf(report)),
                joinedText(paddingsOf(report), ", "), tokensOf(report), caches,
                joinedText(namesOf(report.comparison.steps, &StepComparison::outputs), ", "));
  if (pastRowsOf(report) != 0)
    text += formatted("; {} made-up earlier rows", pastRowsOf(report));
  text += aroundText(report.visited);
  if (report.variantsRun != 0)
    text += formatted("; {} variant{}", report.variantsRun, report.variantsRun == 1 ? "" : "s");
  if (report.comparesInOnePiece)
    text += "; the model in pieces and in one";
  if (!report.notCovered.empty())
    text += formatted("   not covered: {}", joinedText(report.notCovered, "; "));
  if (!report.unreadTables.empty())
    text += formatted("   never read: {}", joinedText(report.unreadTables, "; "));
  if (report.isDifferent() && !report.unproved.empty())
    text += formatted("   not proved: of {}", joinedText(report.unproved, "; "));
  if (!report.guessed.empty())
    text += formatted("   made-up values for inputs of unknown meaning (see --input): {}",
                      joinedText(report.guessed, ", "));
  return text;
}

/// Description of the compared models if one of them rounds rows of caches.
const char* comparedText(const VerificationReport& report) {
  return report.rounding       ? " without rounding"
         : report.quantization ? " without quantization"
         : report.codes        ? " without rounding to codes"
                               : "";
}

/// The headline, such as `OK without rounding: 53 steps; …`.
std::string headline(const VerificationReport& report) {
  return formatted("{}{}: {}", verdictText(report), comparedText(report), measuresText(report));
}

/// The effects of rounded and quantized caches, with separate verdicts.
std::vector<std::string> roundedText(const VerificationReport& report) {
  std::vector<std::string> lines;
  if (report.rounding)
    lines.push_back(roundingSummary(*report.rounding));
  else if (report.quantization)
    lines = quantizationSummary(*report.quantization);
  else if (report.codes)
    lines.push_back(codesSummary(*report.codes));
  return lines;
}

} // namespace

std::vector<std::string> verificationVerdict(const VerificationReport& report) {
  std::vector<std::string> lines = {headline(report)};
  for (std::string& line : roundedText(report))
    lines.push_back(std::move(line));
  if (const int64_t elements = report.comparison.nanInFirst(); elements != 0)
    lines.push_back(nanText(elements));
  // Recordings determine their own coverage.
  if (!report.runs.empty())
    lines.push_back(coverageText(report));
  return lines;
}

std::string verificationSummary(const VerificationReport& report, bool isDetailed) {
  std::string text = joinedText(verificationVerdict(report), "\n  ");
  if (report.claimed)
    text += formatted("\n  claimed: {}{}", claimSentence(report.claimed->comparison),
                      claimedRemark(report.claimed->comparison, report.claimed->first));
  if (report.likelihood)
    text += "\n  " + likelihoodSummary(*report.likelihood);
  return isDetailed ? text + "\n  " + detailText(report) : text;
}

void VerificationReport::noteGap(std::string gap) {
  if (!llvm::is_contained(notCovered, gap))
    notCovered.push_back(std::move(gap));
}

OrderedJson VerificationReport::json() const { return verificationJson(*this); }

std::vector<std::string> VerificationReport::verdict() const { return verificationVerdict(*this); }

std::string VerificationReport::summary(bool isDetailed) const {
  return verificationSummary(*this, isDetailed);
}

} // namespace kvopt::driver
