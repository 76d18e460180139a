// Comparison of values at many points.
#include "passes/analysis/evaluation/step_evaluations.h"

#include "passes/analysis/evaluation/traced_operators.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

namespace kvopt::analysis {
using namespace ir;

StepEvaluations::StepEvaluations(const Graph& graph, const InterfaceFacts& facts)
    : evaluated(graph), steps(graph, facts), sizes(steps.sizes()), made(sizes.size()) {}

Evaluation& StepEvaluations::at(size_t index) {
  if (!made[index])
    made[index] = index == 0 ? std::make_unique<Evaluation>(evaluated, steps.at(sizes[0]))
                             : std::make_unique<Evaluation>(at(0), steps.at(sizes[index]));
  return *made[index];
}

namespace {

/// Maximum number of elements compared at sizes with large tensors.
constexpr int64_t mostSampled = 128;
/// Maximum number of integer constants that determine sizes.
constexpr size_t mostConstants = 3;

/// Factors of the elements of one product, concatenated.
struct TracedFactors {
  std::vector<LinearForm> left, right;
};

std::optional<TracedFactors> factorsOf(const Value& result, llvm::ArrayRef<int64_t> elements,
                                       Evaluation& evaluation) {
  constexpr int64_t mostMultiplied = int64_t{1} << 16;
  auto product = result.producer() ? productOf(*result.producer(), evaluation) : std::nullopt;
  if (!product || product->depth * static_cast<int64_t>(elements.size()) > mostMultiplied)
    return std::nullopt;
  std::vector<int64_t> left, right;
  for (int64_t element : elements)
    for (int64_t k = 0; k < product->depth; ++k)
      product->at(element, k, left.emplace_back(), right.emplace_back());
  TracedFactors factors;
  return evaluation.trace(*product->left, left, factors.left) &&
                 evaluation.trace(*product->right, right, factors.right)
             ? std::optional(std::move(factors))
             : std::nullopt;
}

/// Whether both are results of operators that may be products.
bool mayBeProducts(const Value& one, const Value& other) {
  auto mayBe = [](const Value& value) {
    const Node* node = value.producer();
    return node && (node->is("MatMul") || node->is("Einsum") || node->is("ReduceSum"));
  };
  return mayBe(one) && mayBe(other);
}

/// For elements that differ because they are from different blocks: whether all are the same
/// multiples of products of the same factors. Only some are compared if there are many.
/// `mayBeImpossible`: the graph may be unable to run such a step, in which case factors have no
/// extents.
bool areSameProducts(llvm::ArrayRef<LinearForm> first, llvm::ArrayRef<LinearForm> second,
                     Evaluation& evaluation, bool mayBeImpossible) {
  constexpr size_t mostCompared = 48;
  const Value* one = nullptr;
  const Value* other = nullptr;
  std::vector<int64_t> mine, theirs;
  size_t different = 0;
  const size_t step = first.size() <= mostCompared ? 1 : (first.size() / mostCompared) | 1;
  for (size_t i = 0; i < first.size(); ++i) {
    if (first[i] == second[i])
      continue;
    if (first[i].terms.size() != 1 || second[i].terms.size() != 1 ||
        first[i].constant != second[i].constant)
      return false;
    const ElementTerm& a = first[i].terms.front();
    const ElementTerm& b = second[i].terms.front();
    if ((one && (a.block != one || b.block != other)) || a.weight != b.weight)
      return false;
    one = a.block;
    other = b.block;
    if (different++ % step == 0) {
      mine.push_back(a.element);
      theirs.push_back(b.element);
    }
  }
  auto isKnown = [&](const Value& result) {
    return result.producer() && productOf(*result.producer(), evaluation).has_value();
  };
  if (!one ||
      (mayBeImpossible && mayBeProducts(*one, *other) && (!isKnown(*one) || !isKnown(*other))))
    return true;
  const auto a = factorsOf(*one, mine, evaluation);
  const auto b = a ? factorsOf(*other, theirs, evaluation) : std::nullopt;
  return b && ((a->left == b->left && a->right == b->right) ||
               (a->left == b->right && a->right == b->left));
}

/// Kind of the tried point. At a point near a constant the graph may be unable to run a step, for
/// example because a table is too short.
enum class Tried { WholeSize, SampledSize, NearConstant };

bool areEqualAt(const Value& one, const Value& other, Evaluation& evaluation, Tried tried) {
  const Extents* extents = evaluation.extents(one);
  const Extents* others = evaluation.extents(other);
  const auto count = extents ? countOf(*extents) : std::nullopt;
  if (!count || !others || *extents != *others)
    return false;
  std::vector<int64_t> indices;
  const bool isSampled = tried != Tried::WholeSize && *count > mostSampled;
  const int64_t step = isSampled ? *count / mostSampled : 1;
  // Rows in the middle may be the ones that differ, so the stride is not a power of two.
  for (int64_t i = 0; i < *count; i += step == 1 ? 1 : step | 1)
    indices.push_back(i);
  if (*count > 0 && indices.back() != *count - 1)
    indices.push_back(*count - 1);
  std::vector<LinearForm> first, second;
  return evaluation.trace(one, indices, first) && evaluation.trace(other, indices, second) &&
         areSameProducts(first, second, evaluation, tried == Tried::NearConstant);
}

/// Change of an integer input from the values that its role prescribes.
enum class Variation { Alternating, AllMore, LastRowMore, LastMore };

EvaluationPoint variedPoint(const EvaluationPoint& point, const Value* input, Variation variation) {
  EvaluationPoint result = point;
  NumberTensor& tensor = result.inputs[input];
  std::vector<double>& numbers = tensor.numbers;
  const bool isBool = input->type().elementType() == ElementType::Bool;
  const size_t lastRow =
      tensor.extents.empty() ? 0 : numbers.size() - static_cast<size_t>(tensor.extents.back());
  for (size_t i = 0; i < numbers.size(); ++i)
    switch (variation) {
    case Variation::Alternating:
      if (i % 3 == 1)
        numbers[i] = numbers[i] == 0 ? 1 : 0;
      break;
    case Variation::AllMore:
      numbers[i] = isBool ? 1 - numbers[i] : numbers[i] + 1;
      break;
    case Variation::LastRowMore:
    case Variation::LastMore:
      if (variation == Variation::LastMore ? i + 1 == numbers.size() : i >= lastRow)
        numbers[i] = isBool ? 1 - numbers[i] : numbers[i] + 1;
      break;
    }
  return result;
}

/// Integers that the evaluation computed with and that can be sizes.
std::set<int64_t> integersOf(const Evaluation& evaluation) {
  std::set<int64_t> found;
  for (double number : evaluation.constantsRead()) {
    // Rows counted from the end are included.
    const double size = std::abs(number);
    if (size >= 3 && size <= static_cast<double>(StepEvaluations::mostRowsTried) &&
        size == static_cast<double>(static_cast<int64_t>(size)))
      found.insert(static_cast<int64_t>(size));
  }
  return found;
}

/// Integers that evaluations at both sizes computed with: constants, including those that the graph
/// computes from others, but not extents.
std::vector<int64_t> comparedSizes(const Evaluation& one, const Evaluation& other) {
  const std::set<int64_t> first = integersOf(one), second = integersOf(other);
  std::vector<int64_t> sizes;
  std::set_intersection(first.begin(), first.end(), second.begin(), second.end(),
                        std::back_inserter(sizes));
  // No other size is close to the largest ones.
  if (sizes.size() > mostConstants)
    sizes.erase(sizes.begin(), sizes.end() - mostConstants);
  return sizes;
}

} // namespace

llvm::ArrayRef<StepEvaluations::Varied> StepEvaluations::varied() {
  if (!variations.empty() || count() == 0)
    return variations;
  for (size_t i : {size_t{0}, count() - 1}) {
    const EvaluationPoint& point = at(i).point();
    for (const auto& [input, numbers] : point.inputs)
      for (Variation variation : {Variation::Alternating, Variation::AllMore,
                                  Variation::LastRowMore, Variation::LastMore}) {
        if (variation == Variation::LastRowMore && numbers.extents.size() < 2)
          continue;
        // Rows cannot be written to positions without an order.
        const bool isMask =
            llvm::all_of(numbers.numbers, [](double number) { return number == 0 || number == 1; });
        if (isMask || variation != Variation::Alternating)
          variations.push_back(
              {std::make_unique<Evaluation>(at(0), variedPoint(point, input, variation)), input,
               variation == Variation::LastMore});
      }
  }
  return variations;
}

Evaluation& StepEvaluations::of(const StepSize& size) {
  auto& evaluation = large[{size.batch, size.tokens, size.past}];
  if (!evaluation)
    evaluation = std::make_unique<Evaluation>(at(0), steps.at(size));
  return *evaluation;
}

llvm::ArrayRef<StepEvaluations::Varied> StepEvaluations::fedWith(int64_t number) {
  auto [entry, isNew] = fed.try_emplace(number);
  if (isNew) {
    const EvaluationPoint& point = at(0).point();
    for (const auto& [input, numbers] : point.inputs) {
      if (input->type().elementType() == ElementType::Bool || numbers.numbers.size() < 2)
        continue;
      for (int64_t next : {number, number + 1}) {
        EvaluationPoint changed = point;
        std::vector<double>& all = changed.inputs[input].numbers;
        // Only one element differs: other positions and mask entries are unchanged.
        all.back() = static_cast<double>(next);
        entry->second.push_back(
            {std::make_unique<Evaluation>(at(0), std::move(changed)), input, true});
      }
    }
  }
  return entry->second;
}

namespace {

/// Steps with about that number of rows, tokens and batch rows, within limits.
std::vector<StepSize> sizesNear(int64_t rows) {
  constexpr int64_t mostTokens = 256, mostBatch = 64;
  std::vector<StepSize> sizes;
  for (int64_t past : {rows - 1, rows, rows + 1})
    for (int64_t tokens : {int64_t{1}, int64_t{3}})
      sizes.push_back({1, tokens, std::max<int64_t>(past - (tokens - 1), 0), 17});
  if (rows <= mostTokens)
    for (int64_t tokens : {rows, rows + 1})
      sizes.push_back({1, tokens, 2, 17});
  if (rows <= mostBatch)
    for (int64_t batch : {rows, rows + 1})
      sizes.push_back({batch, 2, 3, 17});
  return sizes;
}

} // namespace

std::vector<StepEvaluations::CheckingPoint> StepEvaluations::checkingPoints() {
  std::vector<CheckingPoint> points;
  if (count() == 0)
    return points;
  auto add = [&](llvm::ArrayRef<Varied> list) {
    for (const Varied& each : list)
      points.push_back({each.evaluation.get(), each.isTorn ? each.input : nullptr});
  };
  add(varied());
  std::vector<int64_t> compared = comparedSizes(at(0), at(count() > 1 ? 1 : 0));
  for (int64_t rows : alsoTried)
    if (!llvm::is_contained(compared, rows))
      compared.push_back(rows);
  for (int64_t number : compared)
    add(fedWith(number));
  if (steps.hasGrowingPast())
    for (int64_t rows : compared)
      for (const StepSize& size : sizesNear(rows))
        points.push_back({&of(size)});
  return points;
}

std::vector<Evaluation*> StepEvaluations::allPoints() {
  std::vector<Evaluation*> points;
  for (size_t i = 0; i < count(); ++i)
    points.push_back(&at(i));
  for (const CheckingPoint& point : checkingPoints())
    points.push_back(point.evaluation);
  return points;
}

void StepEvaluations::tryNear(int64_t rows) {
  if (rows >= 3 && rows <= mostRowsTried && alsoTried.size() < mostConstants)
    alsoTried.insert(rows);
}

bool areAlwaysEqual(const Value& one, const Value& other, StepEvaluations& evaluations,
                    const Value* consecutive) {
  for (size_t i = 0; i < evaluations.count(); ++i)
    if (!areEqualAt(one, other, evaluations.at(i),
                    i >= StepPoints::fitted ? Tried::SampledSize : Tried::WholeSize))
      return false;
  if (evaluations.count() == 0)
    return false;
  // A graph has no extents for a step that it cannot run, for example because a table is too short.
  return llvm::all_of(evaluations.checkingPoints(), [&](const auto& point) {
    return (point.torn && point.torn == consecutive) || !point.evaluation->extents(one) ||
           areEqualAt(one, other, *point.evaluation, Tried::NearConstant);
  });
}

} // namespace kvopt::analysis
