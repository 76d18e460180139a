// Two sessions side by side.
#include "runtime/equivalence.h"

#include "ir/diagnostic.h"
#include "ir/half.h"
#include "runtime/generation.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace kvopt {

int64_t EquivalencePlan::totalTokens() const {
  int64_t total = prompt + decodeSteps * stepTokens;
  for (int64_t chunk : chunks)
    total += chunk;
  return total;
}

PlannedSteps::PlannedSteps(const EquivalencePlan& steps) : plan(steps), random(steps.seed) {
  if (plan.padding != Padding::None)
    visible.resize(static_cast<size_t>(plan.batch));
}

bool PlannedSteps::isHidden(size_t row, int64_t position) const {
  int64_t hidden = std::min<int64_t>(plan.prompt - 1, 2);
  if (row % 2 == 0 || position >= plan.prompt)
    return false;
  return plan.padding == Padding::Left ? position < hidden : position >= plan.prompt - hidden;
}

DecoderStep PlannedSteps::next(int64_t tokens, int64_t pastLength, bool startsAnew) {
  DecoderStep step;
  step.pastLength = pastLength;
  std::uniform_int_distribution<int64_t> anyToken(0, plan.vocabulary - 1);
  for (int64_t row = 0; row < plan.batch; ++row) {
    step.tokens.emplace_back();
    for (int64_t i = 0; i < tokens; ++i)
      step.tokens.back().push_back(anyToken(random));
  }
  if (startsAnew)
    visible.assign(visible.size(), {});
  for (size_t row = 0; row < visible.size(); ++row)
    for (int64_t i = 0; i < tokens; ++i)
      visible[row].push_back(isHidden(row, pastLength + i) ? 0 : 1);
  step.visible = visible;
  step.recipes = plan.recipes;
  return step;
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

/// A contiguous copy, of f32 where the elements are narrower floats.
llvm::Expected<Tensor> asFloats(const TensorView& view,
                                const std::shared_ptr<Allocator>& allocator) {
  auto packed = Tensor::copyOf(allocator, view);
  const bool isHalf = view.element == ElementType::Float16;
  if (!packed || (!isHalf && view.element != ElementType::BFloat16))
    return packed;
  auto wide = Tensor::create(allocator, ElementType::Float, view.shape);
  if (!wide)
    return wide;
  for (int64_t i = 0; i < packed->view.elementCount(); ++i) {
    const uint16_t bits = packed->view.as<uint16_t>()[i];
    wide->view.as<float>()[i] = isHalf ? f16ToFloat(bits) : bf16ToFloat(bits);
  }
  return wide;
}

/// Of the finite elements of a tensor of floats. What is infinite (the scores of hidden keys) is
/// rounded by nobody.
double largestMagnitude(const TensorView& view) {
  double largest = 0;
  Extents index(view.rank(), 0);
  for (int64_t left = view.elementCount(); left > 0; --left) {
    int64_t offset = 0;
    for (unsigned axis = 0; axis < view.rank(); ++axis)
      offset += index[axis] * view.strides[axis];
    const double magnitude = std::fabs(double{view.as<float>()[offset]});
    if (std::isfinite(magnitude))
      largest = std::max(largest, magnitude);
    for (unsigned axis = view.rank(); axis-- > 0 && ++index[axis] == view.shape[axis];)
      index[axis] = 0;
  }
  return largest;
}

class SideBySide {
public:
  SideBySide(Session& first, Session& second, const EquivalencePlan& comparedPlan,
             std::vector<size_t> cachePairs, std::optional<ExactSession> exactTwin)
      : a(first), b(second), plan(comparedPlan), pairs(std::move(cachePairs)), exact(exactTwin),
        planned(comparedPlan) {}

  llvm::Error step(int64_t tokens, const char* phase, ComparisonReport& report) {
    const DecoderStep input = planned.next(tokens, a.length(), a.cacheCount() == 0);
    auto fromA = stepDecoder(a, input);
    auto fromB = stepDecoder(b, input);
    if (!fromA && !fromB && !report.steps.empty()) {
      noteRefusal(fromA.takeError(), fromB.takeError(), report);
      return llvm::Error::success();
    }
    if (!fromA) {
      if (!fromB)
        llvm::consumeError(fromB.takeError());
      return fromA.takeError();
    }
    if (!fromB)
      return fromB.takeError();
    StepResult fromExact;
    if (exact) {
      if (auto computed = stepExact(input)) {
        fromExact = std::move(*computed);
      } else {
        // What only the twin cannot do leaves the plan's tolerance.
        llvm::consumeError(computed.takeError());
        exact.reset();
      }
    }
    StepComparison compared;
    compared.phase = phase;
    compared.tokens = tokens;
    if (llvm::Error error = compareOutputs(*fromA, *fromB, fromExact, compared, report))
      return error;
    if (llvm::Error error = compareCaches(compared))
      return error;
    report.steps.push_back(std::move(compared));
    return llvm::Error::success();
  }

  /// Of models that remember nothing: one run for each length of the plan.
  llvm::Error runEachLength(ComparisonReport& report) {
    llvm::SmallVector<int64_t, 8> lengths = {plan.prompt};
    lengths.append(plan.chunks.begin(), plan.chunks.end());
    if (plan.decodeSteps > 0)
      lengths.push_back(plan.stepTokens);
    for (size_t i = 0; i < lengths.size(); ++i) {
      if (llvm::is_contained(llvm::ArrayRef<int64_t>(lengths).take_front(i), lengths[i]))
        continue;
      auto isKnown = hasKnownExtents(lengths[i]);
      if (!isKnown)
        return isKnown.takeError();
      if (*isKnown)
        continue;
      const char* phase = i == 0                                              ? "prefill"
                          : i + 1 == lengths.size() && i > plan.chunks.size() ? "decode"
                                                                              : "chunk";
      if (llvm::Error error = step(lengths[i], phase, report))
        return error;
    }
    return llvm::Error::success();
  }

private:
  /// Whether no input of `a` tells a run of so many tokens from an earlier one; else it is one from
  /// now on.
  llvm::Expected<bool> hasKnownExtents(int64_t tokens) {
    DecoderStep step;
    step.tokens.assign(static_cast<size_t>(plan.batch),
                       std::vector<int64_t>(static_cast<size_t>(tokens), 0));
    step.recipes = plan.recipes;
    auto inputs = decoderInputs(a.callerInputs(), step, a.allocator(), a.manifest().inputs);
    if (!inputs)
      return inputs.takeError();
    std::vector<Extents> extents;
    for (const NamedTensor& input : *inputs)
      extents.push_back(input.tensor.view.shape);
    if (llvm::is_contained(extentsOfRuns, extents))
      return true;
    extentsOfRuns.push_back(std::move(extents));
    return false;
  }

  /// Two models within a measured budget e of each other may order scores that are closer than 2 e
  /// in either way.
  bool isNearTie(const Tensor& logits, int64_t row, int64_t one, int64_t other,
                 const StepComparison& compared) const {
    if (!exact)
      return false;
    auto wide = asFloats(logits.view, exact->session.allocator());
    double budget = 0;
    for (const TensorComparison& output : compared.outputs)
      budget = std::max(budget, output.allowed);
    if (!wide) {
      llvm::consumeError(wide.takeError());
      return false;
    }
    const Extents& shape = wide->view.shape;
    const float* scores =
        wide->view.as<float>() + ((row + 1) * shape[1] - 1) * shape[2]; // of the last token
    return std::fabs(double{scores[one]} - double{scores[other]}) <= 2 * budget;
  }

  static void noteRefusal(llvm::Error ofA, llvm::Error ofB, ComparisonReport& report) {
    Diagnostic first = takeDiagnostic(std::move(ofA));
    Diagnostic second = takeDiagnostic(std::move(ofB));
    ++report.refusedSteps;
    if (report.refusal.empty())
      report.refusal = first.message;
    if ((first.kind != second.kind || first.op != second.op) && report.refusedDifferently.empty())
      report.refusedDifferently = first.str() + "; the other: " + second.str();
  }

  /// The step in the twin: its inputs are those of `a`, widened.
  llvm::Expected<StepResult> stepExact(const DecoderStep& step) {
    Session& twin = exact->session;
    auto inputs = decoderInputs(a.callerInputs(), step, twin.allocator(), a.manifest().inputs);
    if (!inputs)
      return inputs.takeError();
    std::vector<NamedView> views;
    for (NamedTensor& input : *inputs) {
      auto wide = asFloats(input.tensor.view, twin.allocator());
      if (!wide)
        return wide.takeError();
      input.tensor = std::move(*wide);
      views.push_back({input.name, input.tensor.view});
    }
    return twin.step(views, static_cast<int64_t>(step.tokens.front().size()));
  }

  /// The plan's tolerance or, where a twin says so, less.
  llvm::Expected<Tolerance> toleranceFor(const TensorView& ours, const TensorView* twin) const {
    if (!twin)
      return plan.tolerance;
    auto rounded = asFloats(ours, exact->session.allocator());
    if (!rounded)
      return rounded.takeError();
    if (rounded->view.element != ElementType::Float || twin->element != ElementType::Float)
      return plan.tolerance;
    auto comparison = compareTensors(rounded->view, *twin);
    if (!comparison)
      return comparison.takeError();
    const double budget = 2 * comparison->maxAbs + exact->unitRoundoff * largestMagnitude(*twin);
    return budget <= plan.tolerance.absolute ? Tolerance{budget, 0} : plan.tolerance;
  }

  /// Where rows of tokens lie in a tensor.
  struct TokenAxes {
    unsigned batch = 0;
    unsigned sequence = 1;
    int64_t firstPosition = 0;
  };

  /// Whether a model says that it computes something else for a token that sees none.
  bool skipsPadding() const {
    return plan.padding != Padding::None &&
           (a.manifest().hiddenRowsUndefined || b.manifest().hiddenRowsUndefined);
  }

  bool seesAToken(int64_t row, int64_t position) const {
    return llvm::any_of(planned.shown(row, position), [](uint8_t shown) { return shown != 0; });
  }

  llvm::Expected<TensorComparison> compare(const std::string& name, const TensorView& ours,
                                           const TensorView& theirs, const TensorView* twin,
                                           std::optional<TokenAxes> axes) const {
    auto tolerance = toleranceFor(ours, twin);
    if (!tolerance)
      return withNode(tolerance.takeError(), name);
    auto isDefined = [&](llvm::ArrayRef<int64_t> index) {
      return seesAToken(index[axes->batch], axes->firstPosition + index[axes->sequence]);
    };
    auto comparison =
        axes && skipsPadding()
            ? compareTensors(theirs, ours, *tolerance,
                             llvm::function_ref<bool(llvm::ArrayRef<int64_t>)>(isDefined))
            : compareTensors(theirs, ours, *tolerance);
    if (!comparison)
      return withNode(comparison.takeError(), name);
    TensorComparison result;
    result.skipped = ours.elementCount() - comparison->compared;
    result.name = name;
    result.comparison = std::move(*comparison);
    result.allowed = tolerance->absolute;
    return result;
  }

  llvm::Error compareOutputs(const StepResult& fromA, const StepResult& fromB,
                             const StepResult& fromExact, StepComparison& compared,
                             ComparisonReport& report) {
    for (const NamedTensor& ours : fromA.outputs) {
      const Tensor* theirs = fromB.find(ours.name);
      if (!theirs)
        continue;
      const Tensor* twin = fromExact.find(ours.name);
      // Outputs are [batch, tokens, …] where they are by token at all.
      std::optional<TokenAxes> axes;
      const Extents& shape = ours.tensor.view.shape;
      if (shape.size() >= 2 && shape[0] == plan.batch && shape[1] == compared.tokens)
        axes = TokenAxes{0, 1, a.length() - compared.tokens};
      auto comparison =
          compare(ours.name, ours.tensor.view, theirs->view, twin ? &twin->view : nullptr, axes);
      if (!comparison)
        return comparison.takeError();
      compared.outputs.push_back(std::move(*comparison));
    }
    if (compared.outputs.empty())
      return invalid("the two models have no output in common");
    auto logitsA = findLogits(fromA);
    auto logitsB = findLogits(fromB);
    if (logitsA && logitsB)
      for (int64_t row = 0; row < plan.batch; ++row) {
        auto tokenA = greedyToken(**logitsA, row);
        auto tokenB = greedyToken(**logitsB, row);
        const bool both = tokenA && tokenB;
        // Where neither has a largest score there is no token to compare.
        if (tokenA || tokenB) {
          report.tokensEqual &=
              both && (*tokenA == *tokenB || isNearTie(**logitsA, row, *tokenA, *tokenB, compared));
          report.anyToken = true;
        }
        llvm::consumeError(tokenA.takeError());
        llvm::consumeError(tokenB.takeError());
      }
    llvm::consumeError(logitsA.takeError());
    llvm::consumeError(logitsB.takeError());
    return llvm::Error::success();
  }

  llvm::Error compareCaches(StepComparison& compared) {
    for (size_t i = 0; i < pairs.size(); ++i) {
      TensorView twin = exact ? exact->session.exportedCacheView(i) : TensorView();
      std::optional<TokenAxes> axes;
      const unsigned sequence = a.exportedSequenceAxis(i);
      const std::optional<unsigned> batch = a.exportedBatchAxis(i);
      if (batch && a.cacheInfo(i).policy == CachePolicy::Fixed)
        axes = TokenAxes{*batch, sequence, 0};
      auto comparison = compare(a.cacheInfo(i).present, a.exportedCacheView(i),
                                b.exportedCacheView(pairs[i]), exact ? &twin : nullptr, axes);
      if (!comparison)
        return comparison.takeError();
      compared.caches.push_back(std::move(*comparison));
    }
    return llvm::Error::success();
  }

  Session& a;
  Session& b;
  const EquivalencePlan& plan;
  std::vector<size_t> pairs;
  std::optional<ExactSession> exact;
  PlannedSteps planned;
  std::vector<std::vector<Extents>> extentsOfRuns; ///< of models without caches
};

} // namespace

llvm::Expected<ComparisonReport> compareSessions(Session& a, Session& b,
                                                 const EquivalencePlan& plan,
                                                 std::optional<ExactSession> exact) {
  if (plan.vocabulary < 1 || plan.prompt < 1 || plan.batch < 1 || a.batch() != plan.batch ||
      b.batch() != plan.batch || (exact && exact->session.batch() != plan.batch))
    return invalid("a comparison needs tokens, a prompt and sessions of its batch size");
  auto pairs = pairCaches(a, b);
  if (!pairs)
    return pairs.takeError();
  if (exact && exact->session.cacheCount() != a.cacheCount())
    return invalid("the exact twin has other caches");
  if (plan.pastRows > 0) {
    if (plan.padding != Padding::None)
      return invalid("a comparison that starts with made-up caches has no padding");
    for (Session* session : {&a, &b, exact ? &exact->session : nullptr})
      if (session)
        if (llvm::Error error = session->preset(plan.pastRows))
          return error;
  }
  ComparisonReport report;
  SideBySide sessions(a, b, plan, std::move(*pairs), exact);
  if (a.cacheCount() == 0 && b.cacheCount() == 0) {
    if (llvm::Error error = sessions.runEachLength(report))
      return error;
    return report;
  }
  if (llvm::Error error = sessions.step(plan.prompt, "prefill", report))
    return error;
  for (int64_t chunk : plan.chunks)
    if (llvm::Error error = sessions.step(chunk, "chunk", report))
      return error;
  for (int64_t i = 0; i < plan.decodeSteps; ++i)
    if (llvm::Error error = sessions.step(plan.stepTokens, "decode", report))
      return error;
  return report;
}

namespace {

/// The rows of the table that the elements of an integer input index.
std::optional<int64_t> indexedRows(const Value& input) {
  constexpr size_t mostValues = 64;
  llvm::SmallVector<const Value*, 8> pending = {&input};
  for (size_t i = 0; i < pending.size() && i < mostValues; ++i)
    for (const Use& use : pending[i]->uses()) {
      const Node& reader = use.user();
      if (reader.is("Gather") && use.operandIndex() == 1) {
        if (std::optional<int64_t> rows = reader.operand(0)->type().dim(0).value())
          return rows;
        continue;
      }
      for (const char* op : {"Cast", "Identity", "Reshape", "Flatten", "Unsqueeze", "Squeeze"})
        if (reader.is(op) && use.operandIndex() == 0)
          pending.push_back(&reader.result());
    }
  return std::nullopt;
}

} // namespace

llvm::Expected<int64_t> vocabularyOf(const Graph& graph, llvm::ArrayRef<ManifestInput> described) {
  const std::vector<const Value*> tokens = tokenInputs(graph, described);
  for (const Value* input : tokens)
    if (isInteger(input->type().elementType()))
      if (std::optional<int64_t> rows = indexedRows(*input))
        return *rows;
  for (const Value* output : graph.outputs())
    if (output->type().hasRank() && output->type().rank() == 3)
      if (std::optional<int64_t> scores = output->type().dim(2).value())
        return *scores;
  if (tokens.empty())
    return 1;
  return unsupported("the number of token ids is not fixed in the model");
}

} // namespace kvopt
