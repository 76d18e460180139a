// Comparison of two sessions step by step.
#include "runtime/equivalence/equivalence.h"

#include "ir/manifest/documented_inputs.h"
#include "ir/movement.h"
#include "runtime/equivalence/compared_caches.h"
#include "runtime/equivalence/first_step.h"
#include "runtime/equivalence/interface_difference.h"
#include "runtime/session/cache_part.h"
#include "runtime/session/ring_rows.h"
#include "runtime/session/token_choice.h"
#include "runtime/session/token_ids.h"
#include "support/diagnostic.h"
#include "support/format.h"
#include "support/half.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace kvopt::runtime {
using namespace ir;

namespace {

/// A contiguous copy; narrower floats become f32.
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

/// Largest absolute value of the finite elements of a tensor of floats. Infinite elements (scores
/// of hidden keys) are not affected by rounding.
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

/// Reduces the first model's results for all tokens to those for the new tokens.
void keepLastTokens(StepResult& ofAll, const StepResult& ofNew) {
  for (NamedTensor& output : ofAll.outputs) {
    const Tensor* theirs = ofNew.find(output.name);
    TensorView& view = output.tensor.view;
    if (!theirs || theirs->view.rank() != view.rank())
      continue;
    for (unsigned axis = 0; axis < view.rank(); ++axis)
      if (view.shape[axis] > theirs->view.shape[axis])
        view = sliceAxis(view, axis, view.shape[axis] - theirs->view.shape[axis], view.shape[axis]);
  }
}

/// Whether a tensor fits the input's declaration.
bool takes(const Value& input, const TensorView& tensor) {
  const TensorType& type = input.type();
  if (type.elementType() != tensor.element || !type.hasRank() || type.rank() != tensor.rank())
    return type.elementType() == tensor.element && !type.hasRank();
  for (unsigned axis = 0; axis < type.rank(); ++axis)
    if (type.dim(axis).value().value_or(tensor.shape[axis]) != tensor.shape[axis])
      return false;
  return true;
}

int64_t tokensOf(const DecoderStep& step) {
  return static_cast<int64_t>(step.tokens.front().size());
}

/// Number of rows that a ring holds; nullopt for other caches.
std::optional<int64_t> rowsOfRing(const Session& session, size_t index) {
  const CacheState& caches = session.caches();
  return isRing(caches, index) ? std::optional<int64_t>(heldRows(caches, index)) : std::nullopt;
}

/// Whether a score of a row's last token is NaN.
bool hasNanScore(const TensorView& logits, int64_t row) {
  const Extents& shape = logits.shape;
  for (int64_t token = 0; shape.size() == 3 && token < shape[2]; ++token)
    if (isNan(logits, {row, shape[1] - 1, token}))
      return true;
  return false;
}

/// Whether two scores of a row's last token are closer than twice the budget of the outputs: two
/// models within a budget e of each other may order scores that are closer than 2 e in either way.
bool areNearTies(const TensorView& logits, int64_t row, int64_t one, int64_t other,
                 const StepComparison& compared, const std::shared_ptr<Allocator>& allocator) {
  auto wide = asFloats(logits, allocator);
  double budget = 0;
  for (const TensorComparison& output : compared.outputs)
    budget = std::max(budget, output.allowed);
  if (!wide) {
    llvm::consumeError(wide.takeError());
    return false;
  }
  const Extents& shape = wide->view.shape;
  const float* scores = wide->view.as<float>() + ((row + 1) * shape[1] - 1) * shape[2];
  return std::fabs(double{scores[one]} - double{scores[other]}) <= 2 * budget;
}

/// Axes of batch rows and tokens in a tensor.
struct TokenAxes {
  unsigned batch = 0;
  unsigned sequence = 1;
  int64_t firstPosition = 0;
};

/// The keys that tokens of a plan with padding see.
class PlannedSight {
public:
  PlannedSight(const EquivalencePlan& ofPlan, const PlannedSteps& ofSteps)
      : plan(ofPlan), planned(ofSteps) {}

  /// Whether a position holds a token rather than padding.
  bool isShown(int64_t row, int64_t position) const {
    return planned.shown(row, position).back() != 0;
  }

  /// Whether a token sees any, itself included, in every layer.
  bool seesAToken(int64_t row, int64_t position) const {
    llvm::ArrayRef<uint8_t> seen = planned.shown(row, position);
    if (plan.window > 0 && seen.size() > static_cast<size_t>(plan.window))
      seen = seen.take_back(static_cast<size_t>(plan.window));
    return llvm::any_of(seen, [](uint8_t shown) { return shown != 0; });
  }

  /// For each batch row, whether a token at one of the positions up to `last` sees no token. The
  /// softmax of such a row may be 0/0, and what is computed from it is NaN, too: perhaps all later
  /// results of the batch row.
  std::vector<bool> rowsThatMayBeNan(int64_t last) const {
    std::vector<bool> rows;
    for (int64_t row = 0; row < plan.batch; ++row) {
      bool mayBeNan = false;
      for (int64_t at = 0; at <= last && !mayBeNan && plan.padding != Padding::None; ++at)
        mayBeNan = !seesAToken(row, at);
      rows.push_back(mayBeNan);
    }
    return rows;
  }

private:
  const EquivalencePlan& plan;
  const PlannedSteps& planned;
};

class SideBySide {
public:
  SideBySide(Session& first, Session& second, const EquivalencePlan& comparedPlan,
             std::vector<CachePair> cachePairs, std::optional<ExactSession> exactTwin,
             Session* firstOfSecond)
      : a(first), b(second), firstStep(firstOfSecond), plan(comparedPlan),
        pairs(std::move(cachePairs)), exact(exactTwin), planned(comparedPlan) {}

  llvm::Error step(int64_t tokens, const char* phase, ComparisonReport& report) {
    const bool startsAnew = a.cacheCount() == 0 && b.cacheCount() == 0;
    const DecoderStep input =
        planned.next(tokens, runsWholeSequences() ? b.length() : a.length(), startsAnew);
    const DecoderStep& inputOfA = runsWholeSequences() ? wholeSequence(input) : input;
    auto inputsOfA = decoderInputs(a, inputOfA);
    if (!inputsOfA)
      return withFile(inputsOfA.takeError(), a.modelPath());
    if (llvm::Error error = firstStep.take(*inputsOfA, tokensOf(inputOfA)))
      return error;
    auto inputsOfB = runsWholeSequences() ? decoderInputs(b, input) : sameInputs(*inputsOfA, input);
    if (!inputsOfB)
      return withFile(inputsOfB.takeError(), b.modelPath());
    firstStep.give(*inputsOfB);
    auto fromA = a.step(viewsOf(*inputsOfA), tokensOf(inputOfA));
    auto fromB = b.step(viewsOf(*inputsOfB), tokens);
    if (!fromA && !report.steps.empty()) {
      llvm::Error ofB = fromB ? llvm::Error::success() : fromB.takeError();
      noteRefusal(fromA.takeError(), std::move(ofB), report);
      return llvm::Error::success();
    }
    if (!fromA) {
      if (!fromB)
        llvm::consumeError(fromB.takeError());
      return withFile(fromA.takeError(), a.modelPath());
    }
    if (!fromB) {
      // A usage or I/O error is not a property of the model.
      Diagnostic refusal = takeDiagnostic(fromB.takeError());
      if (refusal.kind == Diagnostic::Kind::Usage || refusal.kind == Diagnostic::Kind::Io)
        return withFile(makeError(std::move(refusal)), b.modelPath());
      report.differences.push_back(
          formatted("the second model refuses a step that the first takes: {}", refusal.str()));
      hasEnded = true;
      return llvm::Error::success();
    }
    StepResult fromExact;
    if (exact) {
      if (auto computed = stepExact(input)) {
        fromExact = std::move(*computed);
      } else {
        // An error of the twin only leaves the plan's tolerance in place.
        llvm::consumeError(computed.takeError());
        exact.reset();
      }
    }
    StepComparison compared;
    compared.phase = phase;
    compared.tokens = tokens;
    compared.pastTokens = startsAnew ? 0 : (runsWholeSequences() ? b : a).length() - tokens;
    if (runsWholeSequences()) {
      keepLastTokens(*fromA, *fromB);
      if (llvm::Error error = compareWithCaches(*fromA, compared))
        return error;
    }
    if (llvm::Error error = compareOutputs(*fromA, *fromB, fromExact, compared, report))
      return error;
    if (llvm::Error error = compareCaches(compared))
      return error;
    report.steps.push_back(std::move(compared));
    return llvm::Error::success();
  }

  /// Whether only the second model has caches. The first one then receives all tokens at every
  /// step, and its results for the new ones are compared.
  bool runsWholeSequences() const { return a.cacheCount() == 0 && b.cacheCount() != 0; }

  /// Whether the sessions have taken different steps, so that later steps cannot be compared.
  bool ended() const { return hasEnded; }

  /// For models without caches: one run for each length of the plan.
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
  /// The step's tokens after those of all earlier steps.
  const DecoderStep& wholeSequence(const DecoderStep& step) {
    whole.tokens.resize(step.tokens.size());
    for (size_t row = 0; row < step.tokens.size(); ++row)
      whole.tokens[row].insert(whole.tokens[row].end(), step.tokens[row].begin(),
                               step.tokens[row].end());
    whole.visible = step.visible;
    whole.isMadeUp = step.isMadeUp;
    whole.recipes = step.recipes;
    return whole;
  }

  /// Whether the inputs of `a` for `tokens` tokens have the same extents as in an earlier run.
  /// Otherwise remembers their extents.
  llvm::Expected<bool> hasKnownExtents(int64_t tokens) {
    DecoderStep step;
    step.tokens.assign(static_cast<size_t>(plan.batch),
                       std::vector<int64_t>(static_cast<size_t>(tokens), 0));
    step.recipes = plan.recipes;
    auto inputs = decoderInputs(a, step);
    if (!inputs)
      return withFile(inputs.takeError(), a.modelPath());
    std::vector<Extents> extents;
    for (const NamedTensor& input : *inputs)
      extents.push_back(input.tensor.view.shape);
    if (llvm::is_contained(extentsOfRuns, extents))
      return true;
    extentsOfRuns.push_back(std::move(extents));
    return false;
  }

  /// The inputs of `b`: those of `a` where names and types agree, whatever the manifest of `b` says
  /// about them, for a difference would not show between different inputs.
  llvm::Expected<std::vector<NamedTensor>> sameInputs(llvm::ArrayRef<NamedTensor> inputsOfA,
                                                      const DecoderStep& step) const {
    auto inputs = decoderInputs(b, step);
    if (!inputs)
      return inputs;
    const auto driven = drivenInputs(b, step.recipes);
    for (size_t i = 0; i < inputs->size(); ++i)
      for (const NamedTensor& input : inputsOfA)
        if (input.name == (*inputs)[i].name && takes(*driven[i], input.tensor.view))
          (*inputs)[i].tensor = input.tensor;
    return inputs;
  }

  /// Records a step that the first model refuses. If the second one takes it, the sessions diverge.
  void noteRefusal(llvm::Error ofA, llvm::Error ofB, ComparisonReport& report) {
    Diagnostic first = takeDiagnostic(std::move(ofA));
    ++report.refusedSteps;
    if (report.refusal.empty())
      report.refusal = first.message;
    if (!ofB) {
      hasEnded = true;
      return;
    }
    // Neither refusal says anything about the numbers.
    llvm::consumeError(std::move(ofB));
  }

  /// Runs the step in the twin with the inputs of `a`, widened.
  llvm::Expected<StepResult> stepExact(const DecoderStep& step) {
    Session& twin = exact->session;
    auto inputs = decoderInputs(drivenInputs(a, step.recipes), step, twin.allocator(),
                                a.manifest().inputs, slotsOf(a.manifest()));
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

  /// The plan's tolerance, or a smaller one from the twin.
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

  /// Whether results of a token that sees no token may differ: if a manifest says so, or if scores
  /// of 16 bits are lost next to the finite number that hides a key.
  bool skipsPadding() const {
    return plan.padding != Padding::None &&
           (exact || a.manifest().hiddenRowsUndefined || b.manifest().hiddenRowsUndefined);
  }

  /// Whether the model defines this row of a cache or result. `place` counts the rows of a cache
  /// from its first one; `token` is its position in the sequence.
  bool isDefined(int64_t row, int64_t place, int64_t token) const {
    if (plan.rowsAdvanceByMask)
      return place < llvm::count(planned.shown(row, a.length() - 1), 1);
    return !skipsPadding() || sight.seesAToken(row, token);
  }

  /// Position of the last token of the last step.
  int64_t lastPosition() const { return (runsWholeSequences() ? b : a).length() - 1; }

  llvm::Expected<TensorComparison> compare(const std::string& name, const TensorView& ours,
                                           const TensorView& theirs, const TensorView* twin,
                                           std::optional<TokenAxes> axes) const {
    auto tolerance = toleranceFor(ours, twin);
    if (!tolerance)
      return withValue(tolerance.takeError(), name);
    TensorComparison result;
    const std::vector<bool> mayBeNan = sight.rowsThatMayBeNan(lastPosition());
    auto isDefinedAt = [&](llvm::ArrayRef<int64_t> index) {
      const int64_t place = index[axes->sequence];
      return isDefined(index[axes->batch], place, axes->firstPosition + place);
    };
    auto isNanInFirst = [&](llvm::ArrayRef<int64_t> index) {
      return mayBeNan[static_cast<size_t>(index[axes->batch])] && isNan(ours, index) &&
             !isNan(theirs, index);
    };
    auto isCompared = [&](llvm::ArrayRef<int64_t> index) {
      if (!isDefinedAt(index))
        return false;
      if (!isNanInFirst(index))
        return true;
      ++result.nanInFirst;
      return false;
    };
    auto comparison =
        axes && plan.padding != Padding::None
            ? compareTensors(theirs, ours, *tolerance,
                             llvm::function_ref<bool(llvm::ArrayRef<int64_t>)>(isCompared))
            : compareTensors(theirs, ours, *tolerance);
    if (!comparison)
      return withValue(comparison.takeError(), name);
    result.skipped = ours.elementCount() - comparison->compared - result.nanInFirst;
    result.name = name;
    result.comparison = std::move(*comparison);
    result.allowed = tolerance->absolute;
    if (!axes || plan.padding == Padding::None || result.comparison.isWithin())
      return result;
    auto isOfAToken = [&](llvm::ArrayRef<int64_t> index) {
      return isDefinedAt(index) && !isNanInFirst(index) &&
             sight.isShown(index[axes->batch], axes->firstPosition + index[axes->sequence]);
    };
    auto visible = compareTensors(theirs, ours, *tolerance,
                                  llvm::function_ref<bool(llvm::ArrayRef<int64_t>)>(isOfAToken));
    if (!visible)
      return withValue(visible.takeError(), name);
    result.visible = std::move(*visible);
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
      // Outputs by token have the shape [batch, tokens, …].
      std::optional<TokenAxes> axes;
      const Extents& shape = ours.tensor.view.shape;
      if (shape.size() >= 2 && shape[0] == plan.batch && shape[1] == compared.tokens)
        axes = TokenAxes{0, 1, lastPosition() + 1 - compared.tokens};
      auto comparison =
          compare(ours.name, ours.tensor.view, theirs->view, twin ? &twin->view : nullptr, axes);
      if (!comparison)
        return comparison.takeError();
      compared.outputs.push_back(std::move(*comparison));
    }
    auto logitsA = findLogits(fromA);
    auto logitsB = findLogits(fromB);
    const int64_t last = lastPosition();
    const std::vector<bool> mayBeNan = sight.rowsThatMayBeNan(lastPosition());
    if (logitsA && logitsB)
      for (int64_t row = 0; row < plan.batch; ++row) {
        // A row that ends in padding may have no last token that is defined.
        if (skipsPadding() && !sight.seesAToken(row, last))
          continue;
        if (mayBeNan[static_cast<size_t>(row)] && hasNanScore((*logitsA)->view, row))
          continue;
        auto tokenA = greedyToken(**logitsA, row);
        auto tokenB = greedyToken(**logitsB, row);
        const bool both = tokenA && tokenB;
        if (tokenA || tokenB) { // else neither has a largest score
          const bool areEqual =
              both && (*tokenA == *tokenB || ((exact || plan.allowsNearTies) &&
                                              areNearTies((*logitsA)->view, row, *tokenA, *tokenB,
                                                          compared, a.allocator())));
          report.tokensEqual &= areEqual;
          report.visibleTokensEqual &=
              areEqual || (plan.padding != Padding::None && !sight.isShown(row, last));
          report.anyToken = true;
        }
        llvm::consumeError(tokenA.takeError());
        llvm::consumeError(tokenB.takeError());
      }
    llvm::consumeError(logitsA.takeError());
    llvm::consumeError(logitsB.takeError());
    return llvm::Error::success();
  }

  /// Compares outputs of the first model, which computes whole sequences, with the second model's
  /// caches of the same names.
  llvm::Error compareWithCaches(const StepResult& fromA, StepComparison& compared) {
    for (size_t i = 0; i < b.cacheCount(); ++i) {
      const ManifestCache& cache = b.cacheInfo(i);
      const Tensor* computed = fromA.find(cache.present);
      if (!computed)
        continue;
      Tensor storage;
      auto theirs = comparedRows(b, i, rowsOfRing(b, i), cache, storage);
      if (!theirs)
        return theirs.takeError();
      TensorView ours = computed->view;
      const unsigned sequence = b.exportedSequenceAxis(i);
      // Rounded rows are compared through results that are computed from them.
      if (ours.element != theirs->element || ours.rank() != theirs->rank())
        continue;
      const int64_t rows = ours.shape[sequence];
      if (rows > theirs->shape[sequence])
        ours = sliceAxis(ours, sequence, rows - theirs->shape[sequence], rows);
      std::optional<TokenAxes> axes;
      if (const std::optional<unsigned> batch = b.exportedBatchAxis(i))
        axes = TokenAxes{*batch, sequence, b.length() - theirs->shape[sequence]};
      auto comparison = compare(cache.present, ours, *theirs, nullptr, axes);
      if (!comparison)
        return comparison.takeError();
      compared.caches.push_back(std::move(*comparison));
    }
    return llvm::Error::success();
  }

  llvm::Error compareCaches(StepComparison& compared) {
    for (const auto& [first, second] : pairs) {
      const ManifestCache& cacheA = a.cacheInfo(first);
      const ManifestCache& cacheB = b.cacheInfo(second);
      // Both have the same axes, unless one is a part of the other.
      const bool isWhole = isPartOf(cacheB, cacheA);
      const Session& narrow = isWhole ? b : a;
      const size_t index = isWhole ? second : first;
      const std::optional<unsigned> batch = narrow.exportedBatchAxis(index);
      std::optional<TokenAxes> axes;
      if (batch && cacheA.update() == CacheUpdate::Grows)
        axes = TokenAxes{*batch, narrow.exportedSequenceAxis(index), 0};
      // A ring and another cache have only some last rows in common.
      std::optional<int64_t> common;
      if (slotCount(a.caches(), first) != slotCount(b.caches(), second) &&
          (isRing(a.caches(), first) || isRing(b.caches(), second))) {
        common = std::min(heldRows(a.caches(), first), heldRows(b.caches(), second));
        if (axes)
          axes->firstPosition = a.length() - *common;
      }
      Tensor storage[3];
      auto ours = comparedRows(a, first, common, cacheB, storage[0]);
      if (!ours)
        return ours.takeError();
      auto theirs = comparedRows(b, second, common, cacheA, storage[1]);
      if (!theirs)
        return theirs.takeError();
      TensorView twin;
      if (exact) {
        auto rows = comparedRows(exact->session, first, common, cacheB, storage[2]);
        if (!rows)
          return rows.takeError();
        twin = *rows;
      }
      auto comparison = compare(isWhole ? cacheB.part->text(cacheA.present) : cacheA.present, *ours,
                                *theirs, exact ? &twin : nullptr, axes);
      if (!comparison)
        return comparison.takeError();
      compared.caches.push_back(std::move(*comparison));
    }
    return llvm::Error::success();
  }

  Session& a;
  Session& b;
  FirstStep firstStep;
  const EquivalencePlan& plan;
  std::vector<CachePair> pairs;
  std::optional<ExactSession> exact;
  PlannedSteps planned;
  PlannedSight sight{plan, planned};
  bool hasEnded = false;
  DecoderStep whole;                               ///< for runsWholeSequences
  std::vector<std::vector<Extents>> extentsOfRuns; ///< for models without caches
};

} // namespace

const char PresetError::ID = 0;

llvm::Expected<ComparisonReport> compareSessions(Session& a, Session& b,
                                                 const EquivalencePlan& plan,
                                                 std::optional<ExactSession> exact,
                                                 Session* firstOfB) {
  if (plan.vocabulary < 1 || plan.prompt < 1 || plan.batch < 1 || a.batch() != plan.batch ||
      b.batch() != plan.batch || (exact && exact->session.batch() != plan.batch))
    return invalid("a comparison needs tokens, a prompt and sessions of its batch size");
  if (exact && exact->session.cacheCount() != a.cacheCount())
    return invalid("the exact twin has other caches");
  if (plan.pastRows > 0) {
    if (llvm::Error error = presetAlike(a, b, plan.pastRows))
      return llvm::make_error<PresetError>(takeDiagnostic(std::move(error)));
    if (exact)
      if (llvm::Error error = exact->session.preset(plan.pastRows))
        return error;
  }
  ComparisonReport report;
  report.differences = interfaceDifferences(a, b, firstOfB);
  report.hasCaches = a.cacheCount() != 0 || b.cacheCount() != 0;
  SideBySide sessions(a, b, plan, pairCaches(a, b), exact, firstOfB);
  if (a.cacheCount() == 0 && b.cacheCount() == 0) {
    if (llvm::Error error = sessions.runEachLength(report))
      return error;
    return report;
  }
  std::vector<std::pair<const char*, int64_t>> steps = {{"prefill", plan.prompt}};
  for (int64_t chunk : plan.chunks)
    steps.emplace_back("chunk", chunk);
  for (int64_t i = 0; i < plan.decodeSteps; ++i)
    steps.emplace_back("decode", plan.stepTokens);
  for (const auto& [phase, tokens] : steps) {
    if (sessions.ended())
      break;
    if (llvm::Error error = sessions.step(tokens, phase, report))
      return error;
  }
  return report;
}

llvm::Expected<int64_t> vocabularyOf(const Graph& graph, llvm::ArrayRef<ManifestInput> described) {
  const std::vector<const Value*> tokens = tokenInputs(graph, described);
  for (const Value* input : tokens)
    if (isInteger(input->type().elementType()))
      if (const int64_t most = tokenIdsOf(*input).most(); most > 0)
        return most;
  for (const Value* output : graph.outputs())
    if (output->type().hasRank() && output->type().rank() == 3)
      if (std::optional<int64_t> scores = output->type().dim(2).value())
        return *scores;
  if (tokens.empty())
    return 1;
  return unsupported("the number of token ids is not fixed in the model");
}

} // namespace kvopt::runtime
