// Forms and numbers of shared values.
#include "check/regions/leaves.h"

#include "check/regions/region_walk.h"

#include "llvm/ADT/STLExtras.h"

#include <utility>

namespace kvopt::check {
namespace {

/// Longest chain of values whose elements depend on each other's kind.
constexpr unsigned deepestChain = 200;
/// Number of arbitrary numbers from which on they are freed.
constexpr uint64_t mostNumbers = uint64_t(1) << 20;

} // namespace

bool isWeight(const ir::Value& value) {
  const auto data = value.constantRef();
  return data && isWeightData(*data);
}

/// Shape of a constant that becomes arbitrary numbers; null for other constants.
Ref Leaves::ofConstant(const ir::TensorData& data) {
  constexpr int64_t fewestElements = 16;
  if (!ir::isFloatingPoint(data.elementType()) || elementCount(data.shape()) < fewestElements)
    return nullptr;
  if (!isWeightData(data)) {
    const Ref elements = tensorOf(data);
    if (!elements || Constants::hasSpecial(*elements))
      return nullptr; // a mask: its infinite elements are not any numbers
  } else if (digests.hasInfinite(data)) {
    return patternOf(math.constants.real(tensorOf(data)));
  }
  return hollowTensor(Extents(data.shape().begin(), data.shape().end()), false, data.elementType());
}

const Form* Leaves::formOf(const ValueClass& value, const ir::Value& representative) {
  if (auto found = known.find(value); found != known.end())
    return found->second;
  auto remember = [&](const Form* form) { return known[value] = form; };
  if (steps.empty())
    return remember(nullptr);
  Form own(steps.size());
  if (const auto data = representative.constantRef()) {
    own.assign(steps.size(), ofConstant(*data));
    return remember(own.front() ? forms.form(own) : nullptr);
  }
  if (!representative.producer())
    return remember(nullptr);
  const Form& hollow = *shapes.of(representative);
  const Form* compared = shapes.comparedAs(value);
  llvm::SmallVector<size_t, 64> special;
  for (size_t step = 0; step < steps.size(); ++step) {
    Ref contents = hollow[step];
    if (!contents) {
      contents = shapes.declared(step, representative);
      if (contents)
        doubts.try_emplace(&representative,
                           representative.producer()->describe() +
                               " is not evaluated: its result is taken for numbers "
                               "in the shape that the first model declares");
    }
    if (!contents || !contents->isReal() || !ir::isFloatingPoint(contents->type))
      continue;
    if (compared && (*compared)[step])
      own[step] = (*compared)[step];
    else if (compared || !contents->isSpecial)
      own[step] = hollowTensor(contents->shape, false, contents->type, contents->extentGrowths);
    else
      special.push_back(step);
  }
  // Some elements may be infinite, or hidden: those stay what they are.
  if (!special.empty()) {
    if (depth >= deepestChain)
      return nullptr;
    ++depth;
    const Form& ofSpecial = patternsOf(representative, special);
    for (size_t step : special)
      own[step] = ofSpecial[step];
    --depth;
  }
  const bool isAny = llvm::any_of(own, [](const Ref& contents) { return contents != nullptr; });
  return remember(isAny ? forms.form(own) : nullptr);
}

/// Patterns of a value in some steps. Values that are computed alike, from values of equal forms,
/// have equal patterns, as regions of equal keys have one answer.
const Form& Leaves::patternsOf(const ir::Value& representative, llvm::ArrayRef<size_t> special) {
  auto stops = [&](bool, const ir::Value& value) -> std::optional<Stop> {
    if (&value == &representative)
      return std::nullopt;
    return Stop{classes.of(value), &value, false};
  };
  const auto computed = RegionWalk({feeding, shapes, *this, classes, classes, digests}, stops)
                            .walk(representative, Key(special.begin(), special.end()));
  if (computed)
    if (auto found = patterns.find(computed->key); found != patterns.end())
      return *found->second;
  Form own(steps.size());
  const NotesApart notes(math); // shapes have those of the same nodes
  for (size_t step : special)
    own[step] = patternIn(step, representative);
  const Form* form = forms.form(own);
  if (computed)
    patterns.emplace(computed->key, form);
  return *form;
}

/// The operand of a product that is a matrix of arbitrary numbers; null if there is none.
const ir::Value* Leaves::matrixOf(const ir::Value& product) {
  const ir::Node& node = *product.producer();
  const ir::Value* matrix = node.is("MatMul") ? node.operand(1) : nullptr;
  if (!matrix || matrix == node.operand(0) || !isWeight(*matrix) ||
      matrix->constantRef()->shape().size() != 2)
    return nullptr;
  const Form* form = formOf(classes.of(*matrix), *matrix);
  return form && form->front()->isHollow ? matrix : nullptr;
}

/// The pattern of a value in a step; null if the value must be computed, as one whose pattern
/// depends on the order of real numbers.
Ref Leaves::patternIn(size_t step, const ir::Value& representative) {
  const bool usesOrder = std::exchange(math.usesOrder, false);
  const uint64_t order = std::exchange(math.order, 0);
  const Ref pattern = forms.tensor(patternOf(exact(step, representative)));
  bool isOfAll = true;
  for (math.order = 1; math.usesOrder && isOfAll && math.order < Arithmetic::orders; ++math.order)
    isOfAll = forms.tensor(patternOf(exact(step, representative))) == pattern;
  math.order = order;
  math.usesOrder = usesOrder;
  return isOfAll ? pattern : nullptr;
}

/// A value that is computed from arbitrary numbers; null if it is not one of real numbers.
Ref Leaves::exact(size_t step, const ir::Value& representative) {
  release();
  enter(math.thresholds, steps[step]);
  // All columns of a matrix of arbitrary numbers give the same pattern, so that one is computed.
  const ir::Value* matrix = matrixOf(representative);
  Evaluation::Hooks hooks;
  hooks.input = [&](const ir::Value& input) {
    return feeding.beforeInput(input, steps[step], math);
  };
  hooks.given = [&](const ir::Value& operand) -> Ref {
    if (&operand == &representative)
      return nullptr;
    const ValueClass own = classes.of(operand);
    if (&operand == matrix)
      return fresh(0, own, hollowTensor({matrix->constantRef()->shape()[0], 1}, false));
    if (Ref elements = contents(step, {own, &operand, false}))
      return elements;
    // Integers and known numbers are what they are.
    const Form* form = operand.graph().parentNode() ? nullptr : shapes.of(operand);
    return form && (*form)[step] && !(*form)[step]->isReal() ? (*form)[step] : nullptr;
  };
  Evaluation evaluation(feeding.before().model, rules, math, hooks);
  const Ref result = evaluation.evaluate(representative);
  if (!result || !result->isReal() || !matrix)
    return result && result->isReal() ? result : nullptr;
  Extents shape = result->shape;
  if (shape.empty() || shape.back() != 1)
    return nullptr;
  shape.back() = matrix->constantRef()->shape()[1];
  if (elementCount(shape) < 0)
    return nullptr;
  auto whole = std::make_shared<Tensor>(*broadcastTo(result, shape));
  whole->extentGrowths = result->extentGrowths;
  return whole;
}

Ref Leaves::fresh(size_t step, const ValueClass& value, const Ref& pattern) {
  auto result = std::make_shared<Tensor>();
  result->shape = pattern->shape;
  result->type = pattern->type;
  result->extentGrowths = pattern->extentGrowths;
  const uint64_t name = value.bits[0] ^ mixBits(value.bits[1] + step);
  const auto count = static_cast<uint64_t>(result->count());
  result->reals.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    Exact element = math.field.arbitrary(name + i);
    if (!pattern->isHollow) {
      const Exact& kept = pattern->reals[i];
      if (kept.status == Status::Fill) { // any such number
        element.status = kept.status;
        element.level = kept.level;
        element.isVague = kept.isVague;
      } else if (!kept.isNumber() || kept.isZero()) {
        element = kept;
      }
    }
    result->reals.push_back(element);
  }
  return result;
}

bool Leaves::isTable(const ir::Value& value) { return shapesOfTable(value) != nullptr; }

const Form* Leaves::shapesOfTable(const ir::Value& value) {
  auto [at, isNew] = tables.try_emplace(&value, nullptr);
  if (!isNew || !value.producer())
    return at->second;
  Form own;
  for (const Ref& contents : *shapes.of(value)) {
    if (!contents || contents->kind != Kind::Known || contents->isWeight)
      return nullptr;
    own.push_back(hollowTensor(contents->shape, false, contents->type, contents->extentGrowths));
  }
  return tables[&value] = shapes.isPlain(value) ? forms.form(own) : nullptr;
}

Ref Leaves::contents(size_t step, const Stop& stop) {
  auto& ofStep = (stop.isTable ? tableNumbers : numbers)[step];
  if (auto found = ofStep.find(stop.value); found != ofStep.end())
    return found->second;
  const Form* form = formOf(stop);
  if (!form || !(*form)[step])
    return nullptr;
  // A constant has the same numbers in all steps.
  const bool isConstant = stop.representative->constantRef() != nullptr;
  const Ref contents = fresh(isConstant ? 0 : step, stop.value, (*form)[step]);
  math.countElements(*contents);
  numberCount += contents->reals.size();
  return ofStep[stop.value] = contents;
}

std::string Leaves::gapOf(const Stop& stop) {
  const FormGap& gap = shapes.gapOf(*stop.representative);
  const std::string* found = gap.shape || stop.isTable ? gap.shape : gap.pattern;
  return found ? *found : "";
}

void Leaves::setCompared(const ValueClass& value, const Form* form) {
  shapes.setCompared(value, form);
  known.erase(value);
  for (auto& ofStep : numbers)
    ofStep.erase(value);
}

void Leaves::release() {
  if (numberCount < mostNumbers)
    return;
  for (auto* all : {&numbers, &tableNumbers})
    for (auto& ofStep : *all)
      ofStep.clear();
  numberCount = 0;
}

} // namespace kvopt::check
