// Two sessions side by side.
#include "runtime/equivalence.h"

#include "ir/diagnostic.h"
#include "runtime/decoder_inputs.h"
#include "runtime/generation.h"

#include "llvm/ADT/STLExtras.h"

#include <random>

namespace kvopt {

int64_t EquivalencePlan::totalTokens() const {
  int64_t total = prompt + decodeSteps * stepTokens;
  for (int64_t chunk : chunks)
    total += chunk;
  return total;
}

namespace {

/// Which cache of `b` is each cache of `a`.
llvm::Expected<std::vector<size_t>> pairCaches(const Session& a, const Session& b) {
  if (a.cacheCount() != b.cacheCount())
    return invalid("one model has {} caches, the other {}", a.cacheCount(), b.cacheCount());
  std::vector<size_t> pairs;
  for (size_t i = 0; i < a.cacheCount(); ++i) {
    const ManifestCache& wanted = a.cacheInfo(i);
    size_t found = b.cacheCount();
    // A rewrite keeps names; models of other origin have the same order.
    for (size_t j = 0; j < b.cacheCount(); ++j)
      if (b.cacheInfo(j).past == wanted.past)
        found = j;
    for (size_t j = 0; found == b.cacheCount() && j < b.cacheCount(); ++j)
      if (b.cacheInfo(j).layer == wanted.layer && b.cacheInfo(j).role == wanted.role &&
          b.cacheInfo(j).kind == wanted.kind)
        found = j;
    if (found == b.cacheCount())
      return invalid("cache '{}' has no counterpart in the other model", wanted.past);
    pairs.push_back(found);
  }
  return pairs;
}

class SideBySide {
public:
  SideBySide(Session& first, Session& second, const EquivalencePlan& comparedPlan,
             std::vector<size_t> cachePairs)
      : a(first), b(second), plan(comparedPlan), pairs(std::move(cachePairs)),
        random(comparedPlan.seed) {
    auto rows = static_cast<size_t>(plan.batch);
    if (plan.padding != Padding::None)
      visible.resize(rows);
  }

  llvm::Error step(int64_t tokens, const char* phase, ComparisonReport& report) {
    DecoderStep input;
    input.pastLength = a.length();
    std::uniform_int_distribution<int64_t> anyToken(0, plan.vocabulary - 1);
    for (int64_t row = 0; row < plan.batch; ++row) {
      input.tokens.emplace_back();
      for (int64_t i = 0; i < tokens; ++i)
        input.tokens.back().push_back(anyToken(random));
    }
    if (a.cacheCount() == 0)
      visible.assign(visible.size(), {});
    for (size_t row = 0; row < visible.size(); ++row)
      for (int64_t i = 0; i < tokens; ++i)
        visible[row].push_back(isHidden(row, input.pastLength + i) ? 0 : 1);
    input.visible = visible;

    auto fromA = stepDecoder(a, input);
    auto fromB = stepDecoder(b, input);
    if (!fromA && !fromB && !report.steps.empty()) {
      report.ended = takeDiagnostic(fromA.takeError()).message;
      llvm::consumeError(fromB.takeError());
      return llvm::Error::success();
    }
    if (!fromA) {
      if (!fromB)
        llvm::consumeError(fromB.takeError());
      return fromA.takeError();
    }
    if (!fromB)
      return fromB.takeError();
    StepComparison compared;
    compared.phase = phase;
    compared.tokens = tokens;
    if (llvm::Error error = compareOutputs(*fromA, *fromB, compared, report))
      return error;
    if (llvm::Error error = compareCaches(compared))
      return error;
    report.steps.push_back(std::move(compared));
    return llvm::Error::success();
  }

private:
  bool isHidden(size_t row, int64_t position) const {
    int64_t hidden = std::min<int64_t>(plan.prompt - 1, 2);
    if (row % 2 == 0 || position >= plan.prompt)
      return false;
    return plan.padding == Padding::Left ? position < hidden : position >= plan.prompt - hidden;
  }

  llvm::Error compareOutputs(const StepResult& fromA, const StepResult& fromB,
                             StepComparison& compared, ComparisonReport& report) {
    for (const NamedTensor& ours : fromA.outputs) {
      const Tensor* theirs = fromB.find(ours.name);
      if (!theirs)
        continue;
      auto comparison = compareTensors(theirs->view, ours.tensor.view, plan.tolerance);
      if (!comparison)
        return withNode(comparison.takeError(), ours.name);
      compared.outputs.push_back({ours.name, std::move(*comparison), 0});
    }
    if (compared.outputs.empty())
      return invalid("the two models have no output in common");
    auto logitsA = findLogits(fromA);
    auto logitsB = findLogits(fromB);
    if (logitsA && logitsB)
      for (int64_t row = 0; row < plan.batch; ++row) {
        auto tokenA = greedyToken(**logitsA, row);
        auto tokenB = greedyToken(**logitsB, row);
        report.tokensEqual &= tokenA && tokenB && *tokenA == *tokenB;
        llvm::consumeError(tokenA.takeError());
        llvm::consumeError(tokenB.takeError());
      }
    llvm::consumeError(logitsA.takeError());
    llvm::consumeError(logitsB.takeError());
    return llvm::Error::success();
  }

  llvm::Error compareCaches(StepComparison& compared) {
    for (size_t i = 0; i < pairs.size(); ++i) {
      auto comparison = compareTensors(b.cacheView(pairs[i]), a.cacheView(i), plan.tolerance);
      if (!comparison)
        return withNode(comparison.takeError(), a.cacheInfo(i).present);
      compared.caches.push_back({a.cacheInfo(i).present, std::move(*comparison), 0});
    }
    return llvm::Error::success();
  }

  Session& a;
  Session& b;
  const EquivalencePlan& plan;
  std::vector<size_t> pairs;
  std::mt19937_64 random;
  std::vector<std::vector<uint8_t>> visible;
};

} // namespace

llvm::Expected<ComparisonReport> compareSessions(Session& a, Session& b,
                                                 const EquivalencePlan& plan) {
  if (plan.vocabulary < 1 || plan.prompt < 1 || plan.batch < 1 || a.batch() != plan.batch ||
      b.batch() != plan.batch)
    return invalid("a comparison needs tokens, a prompt and sessions of its batch size");
  auto pairs = pairCaches(a, b);
  if (!pairs)
    return pairs.takeError();
  ComparisonReport report;
  SideBySide sessions(a, b, plan, std::move(*pairs));
  if (llvm::Error error = sessions.step(plan.prompt, "prefill", report))
    return error;
  for (int64_t chunk : plan.chunks)
    if (report.ended.empty())
      if (llvm::Error error = sessions.step(chunk, "chunk", report))
        return error;
  for (int64_t i = 0; i < plan.decodeSteps && report.ended.empty(); ++i)
    if (llvm::Error error = sessions.step(plan.stepTokens, "decode", report))
      return error;
  return report;
}

llvm::Expected<int64_t> vocabularyOf(const Graph& graph) {
  for (const std::unique_ptr<Value>& input : graph.inputs()) {
    if (!isInteger(input->type().elementType()))
      continue;
    for (const Use& use : input->uses()) {
      const Node& reader = use.user();
      if (reader.op() != "Gather" || use.operandIndex() != 1 ||
          (input->name() != "input_ids" && input->name() != "decoder_input_ids"))
        continue;
      if (std::optional<int64_t> rows = reader.operand(0)->type().dim(0).value())
        return *rows;
    }
  }
  for (const Value* output : graph.outputs())
    if (output->type().hasRank() && output->type().rank() == 3)
      if (std::optional<int64_t> scores = output->type().dim(2).value())
        return *scores;
  return unsupported("the number of token ids is not fixed in the model");
}

} // namespace kvopt
