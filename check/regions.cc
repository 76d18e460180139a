// Frontiers, arbitrary numbers for shared values, and the comparison of elements.
#include "check/regions.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <iterator>

namespace kvopt::check {
namespace {

/// Longest chain of values whose elements depend on each other's kind.
constexpr unsigned deepestChain = 200;
/// Number of steps in which whole models are evaluated.
constexpr size_t mostWholeSteps = 24;

bool isWeight(const ir::Value& value) {
  const auto data = value.constantRef();
  return data && isWeightData(*data);
}

/// Whether a node only arranges the elements of its first operand.
bool arrangesOperand(const ir::Value& value) {
  static constexpr const char* names[] = {"Reshape", "Transpose", "Unsqueeze", "Squeeze", "Flatten",
                                          "Expand",  "Slice",     "Split",     "Gather",  "Cast"};
  const ir::Node* node = value.producer();
  return node && node->op().isOnnx() && llvm::is_contained(names, node->op().type()) &&
         node->operand(0) && !node->operand(0)->constantRef();
}

Ref hollowed(const Ref& tensor) {
  if (!tensor || !tensor->isReal() || tensor->isHollow)
    return tensor;
  const bool isSpecial =
      llvm::any_of(tensor->reals, [](const Exact& element) { return !element.isNumber(); });
  return hollowTensor(tensor->shape, isSpecial, tensor->type);
}

std::string elementText(const Exact& element) {
  switch (element.status) {
  case Status::Number:
    return "number " + std::to_string(element.p);
  case Status::MinusInfinity:
    return "minus infinity";
  case Status::Fill:
    return "fill of a mask";
  case Status::PlusInfinity:
    return "infinity";
  case Status::Unspecified:
    return "unspecified";
  case Status::NotANumber:
    return "not a number";
  case Status::Undecided:
    break;
  }
  return "undecided";
}

std::string placeText(llvm::ArrayRef<int64_t> place) {
  std::string text = "[";
  for (size_t i = 0; i < place.size(); ++i)
    text += (i ? ", " : "") + std::to_string(place[i]);
  return text + "]";
}

std::string shapeText(const Ref& tensor) { return placeText(tensor->shape); }

} // namespace

Regions::Regions(Feeding& inputs, const RuleTable& table, std::vector<Step> scope, unsigned seed)
    : feeding(inputs), rules(table), steps(std::move(scope)), math(seed),
      classesBefore(inputs.before().model, digests), classesAfter(inputs.after().model, digests),
      states(steps.size()) {
  digests.readCopies(feeding.before().model, feeding.after().model);
  indexInputs();
  classesBefore.hashAll();
  classesAfter.hashAll();
  for (const auto& input : feeding.before().model.graph().inputs())
    if (std::string why = feeding.gapOfInput(false, *input); !why.empty())
      doubts[input.get()] = why;
  collectDoubts(feeding.before().model.graph());
  auto forAll = [](const ir::Model& model, auto visit) {
    ir::forEachGraph(const_cast<ir::Graph&>(model.graph()), [&](ir::Graph& graph) {
      for (const auto& input : graph.inputs())
        visit(*input);
      for (const auto& constant : graph.initializers())
        visit(*constant);
      for (const ir::Node& node : graph.nodes())
        for (const ir::Value& result : node.results())
          if (!result.isAbsent())
            visit(result);
    });
  };
  forAll(feeding.before().model, [&](const ir::Value& value) {
    representatives.try_emplace(classesBefore.of(value), &value);
  });
  forAll(feeding.after().model,
         [&](const ir::Value& value) { ofAfter.insert(classesAfter.of(value)); });
  // Values that depend on constants only stay what they are when activations are cut.
  for (const ir::Model* model : {&feeding.before().model, &feeding.after().model})
    ir::forEachGraph(const_cast<ir::Graph&>(model->graph()), [&](ir::Graph& graph) {
      for (const auto& input : graph.inputs())
        dependsOnInput.insert(input.get());
    });
  for (const ir::Model* model : {&feeding.before().model, &feeding.after().model})
    ir::forEachGraph(const_cast<ir::Graph&>(model->graph()), [&](ir::Graph& graph) {
      for (const ir::Node& node : graph.nodes())
        if (!node.subgraphs().empty() || llvm::any_of(node.operands(), [&](const ir::Use& use) {
              return use.value() && dependsOnInput.count(use.value());
            }))
          for (const ir::Value& result : node.results())
            dependsOnInput.insert(&result);
    });
}

void Regions::collectDoubts(const ir::Graph& graph) {
  const ir::Model& model = feeding.before().model;
  auto isUnruled = [&](const ir::Node& node) {
    return !node.is("If") && !model.findFunction(node.op()) && !rules.count(node.op().str());
  };
  for (const ir::Node& node : graph.nodes()) {
    std::string why;
    auto take = [&](const ir::Value* value) {
      if (auto known = doubts.find(value); why.empty() && known != doubts.end())
        why = known->second;
    };
    const ir::Function* function = model.findFunction(node.op());
    if (isUnruled(node) || (function && llvm::any_of(function->body.nodes(), isUnruled))) {
      why = node.describe() + " has no rule: its results are taken for numbers in the shapes that "
                              "the first model declares";
      if (firstDoubt.empty())
        firstDoubt = why;
    }
    for (const ir::Use& use : node.operands())
      take(use.value());
    for (const ir::Graph* inner : node.subgraphs()) {
      collectDoubts(*inner);
      for (const ir::Value* output : inner->outputs())
        take(output);
    }
    if (!why.empty())
      for (const ir::Value& result : node.results())
        doubts[&result] = why;
  }
}

std::string Regions::lastGap() const {
  if (!gap.empty())
    return gap;
  const std::string threshold = math.thresholds.gap();
  return threshold.empty() ? math.doubt : threshold;
}

void Regions::reject(const Step& step, const std::string& why) {
  if (rejected.empty())
    rejected = step.text() + ": " + why;
  constexpr int64_t small = 4;
  if (step.batch == 1 && step.past <= small && step.tokens <= small)
    doubt("the first model does not accept a step of " + step.text() + ": " + why);
}

/// Inputs with the same contents in all steps have one class.
void Regions::indexInputs() {
  for (const auto& input : feeding.after().model.graph().inputs()) {
    const ir::Value* twin = feeding.before().model.graph().findValue(input->name());
    bool isSame = twin && twin->isGraphInput();
    for (const Step& step : steps) {
      if (!isSame)
        break;
      const Ref a = feeding.beforeInput(*twin, step, math);
      const Ref b = feeding.afterInput(*input, step, math);
      isSame = a && b && a->shape == b->shape && a->kind == b->kind && a->integers == b->integers &&
               a->known == b->known &&
               std::equal(a->reals.begin(), a->reals.end(), b->reals.begin(), b->reals.end(),
                          [](const Exact& x, const Exact& y) { return x.isEqual(y); });
    }
    if (!isSame)
      classesAfter.setInput(*input,
                            classOf("input of the second model", {}, {nameHash(input->name())}));
  }
}

Evaluation& Regions::hollowEvaluation(size_t step) {
  StepState& state = states[step];
  if (!state.hollow) {
    Evaluation::Hooks hooks;
    hooks.input = [this, step](const ir::Value& input) {
      return hollowed(feeding.beforeInput(input, steps[step], math));
    };
    hooks.given = [](const ir::Value& value) -> Ref {
      if (!isWeight(value))
        return nullptr;
      const auto data = value.constantRef();
      return hollowTensor(Extents(data->shape().begin(), data->shape().end()), false,
                          data->elementType());
    };
    hooks.evaluated = [this, step](const ir::Value& value, Ref contents) -> Ref {
      auto known = compared.find(classesBefore.of(value));
      if (!contents->isReal() || known == compared.end())
        return contents;
      return hollowTensor(contents->shape, known->second[step] != nullptr, contents->type);
    };
    hooks.unruled = [this, step](const ir::Value& value) { return declared(step, value); };
    state.hollow = std::make_unique<Evaluation>(feeding.before().model, rules, math, hooks);
  }
  return *state.hollow;
}

bool Regions::acceptsStep(size_t step) {
  Evaluation::Hooks hooks;
  hooks.input = [&](const ir::Value& input) {
    return hollowed(feeding.beforeInput(input, steps[step], math));
  };
  hooks.unruled = [&](const ir::Value& value) { return declared(step, value); };
  Evaluation whole(feeding.before().model, rules, math, hooks);
  for (const ir::Value* output : feeding.before().model.graph().outputs())
    if (!whole.evaluate(*output) && whole.isInvalid())
      return false;
  return true;
}

Ref Regions::declared(size_t step, const ir::Value& value) {
  if (!value.type().hasRank() || !ir::isFloatingPoint(value.type().elementType()))
    return nullptr;
  Extents shape;
  for (const ir::Dim& dim : value.type().shape()) {
    auto extent = feeding.extentOf(dim, steps[step]);
    if (!extent)
      return nullptr;
    shape.push_back(*extent);
  }
  math.assumptions.insert("results of operators without a rule are numbers, in the shapes that the "
                          "first model declares");
  return hollowTensor(shape, false, value.type().elementType());
}

Ref Regions::hollowOf(size_t step, const ir::Value& value) {
  if (const Ref contents = hollowEvaluation(step).evaluate(value))
    return contents;
  const Ref contents = declared(step, value);
  if (contents && value.producer())
    doubts.try_emplace(&value, value.producer()->describe() +
                                   " is not evaluated: its result is taken for numbers in the "
                                   "shape that the first model declares");
  return contents;
}

Ref Regions::fresh(size_t step, const ValueClass& value, const Ref& pattern) {
  auto result = std::make_shared<Tensor>();
  result->shape = pattern->shape;
  result->type = pattern->type;
  const uint64_t name = value.bits[0] ^ mixBits(value.bits[1] + step);
  const auto count = static_cast<uint64_t>(result->count());
  result->reals.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    const bool keeps =
        !pattern->isHollow && (!pattern->reals[i].isNumber() || pattern->reals[i].isZero());
    result->reals.push_back(keeps ? pattern->reals[i] : math.field.arbitrary(name + i));
  }
  return result;
}

Ref Regions::leaf(size_t step, const ValueClass& value, const ir::Value& representative) {
  auto& leaves = states[step].leaves;
  if (auto known = leaves.find(value); known != leaves.end())
    return known->second;
  auto remember = [&](Ref contents) { return leaves[value] = std::move(contents); };
  if (isWeight(representative)) {
    const auto data = representative.constantRef();
    if (elementCount(data->shape()) < 0)
      return nullptr; // too large to be evaluated
    return remember(fresh(0, value,
                          hollowTensor(Extents(data->shape().begin(), data->shape().end()), false,
                                       data->elementType())));
  }
  if (!representative.producer() || representative.constantRef())
    return nullptr;
  const Ref hollow = hollowOf(step, representative);
  if (!hollow || !hollow->isReal() || !ir::isFloatingPoint(hollow->type))
    return nullptr;
  if (auto known = compared.find(value); known != compared.end())
    return remember(fresh(step, value, known->second[step] ? known->second[step] : hollow));
  if (!hollow->isSpecial)
    return remember(fresh(step, value, hollow));
  // Some elements may be infinite, or hidden: those stay what they are.
  if (depth >= deepestChain)
    return nullptr;
  ++depth;
  Evaluation::Hooks hooks;
  hooks.input = [&](const ir::Value& input) {
    return feeding.beforeInput(input, steps[step], math);
  };
  hooks.given = [&](const ir::Value& operand) -> Ref {
    return &operand == &representative ? nullptr : leaf(step, classesBefore.of(operand), operand);
  };
  Evaluation evaluation(feeding.before().model, rules, math, hooks);
  const Ref exact = evaluation.evaluate(representative);
  --depth;
  if (!exact || !exact->isReal())
    return nullptr;
  return remember(fresh(step, value, exact));
}

Ref Regions::given(size_t step, bool isAfter, const ir::Value& value, Frontier frontier) {
  if (frontier == Frontier::Inputs)
    return nullptr;
  if (frontier != Frontier::Shared && !dependsOnInput.count(&value))
    return nullptr;
  const ValueClass own = isAfter ? classesAfter.of(value) : classesBefore.of(value);
  if (frontier == Frontier::Compared && !compared.count(own))
    return nullptr;
  auto representative = representatives.find(own);
  if (representative == representatives.end() || (!isAfter && !ofAfter.count(own)))
    return nullptr;
  // A value and its arrangement are not arbitrary numbers at once.
  if ((frontier == Frontier::Computed || frontier == Frontier::Compared) &&
      arrangesOperand(*representative->second))
    return nullptr;
  if (notStops.count(own))
    return nullptr;
  const Ref contents = leaf(step, own, *representative->second);
  if (contents && !isWeight(*representative->second))
    (isAfter ? stopsAfter : stopsBefore).insert(own);
  if (contents && !isWeight(*representative->second))
    if (auto why = doubts.find(representative->second); why != doubts.end())
      doubt(why->second);
  return contents;
}

Regions::Answer Regions::compare(const Question& question, Frontier frontier,
                                 Obligation& obligation) {
  notStops.clear();
  return compareAt(question, frontier, obligation);
}

Regions::Answer Regions::compareMatched(const Question& question, Frontier frontier, Answer first,
                                        unsigned rounds, Obligation& obligation) {
  for (unsigned round = 0; first == Answer::Different; ++round) {
    std::set<ValueClass> onlyOne;
    std::set_symmetric_difference(stopsBefore.begin(), stopsBefore.end(), stopsAfter.begin(),
                                  stopsAfter.end(), std::inserter(onlyOne, onlyOne.end()));
    if (onlyOne.empty())
      break;
    if (round == rounds) {
      obligation.reason = "the models share too many values to compare them";
      return Answer::Undecided;
    }
    notStops.insert(onlyOne.begin(), onlyOne.end());
    first = compareAt(question, frontier, obligation);
  }
  return first;
}

Regions::Answer Regions::compareAt(const Question& question, Frontier frontier,
                                   Obligation& obligation) {
  stopsBefore.clear();
  stopsAfter.clear();
  lastPatterns.assign(steps.size(), nullptr);
  obligation.steps = obligation.elements = obligation.hidden = 0;
  obligation.reason.clear();
  obligation.place.clear();
  obligation.beforeElement.clear();
  obligation.afterElement.clear();
  nodesBefore.clear();
  nodesAfter.clear();
  Answer answer = Answer::Equal;
  gap.clear();
  math.thresholds.clear();
  for (size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    math.thresholds.enter({step.batch, step.past, step.tokens, step.spare, otherExtent(step)},
                          step.padding > 0);
    // Without a frontier, whole models are evaluated, only to show that a difference is real.
    if (frontier == Frontier::Inputs && i >= mostWholeSteps) {
      obligation.reason = "whole models are not evaluated in every step";
      return Answer::Undecided;
    }
    Evaluation::Hooks hooks;
    std::string notFed; // the reason that an input has no contents
    auto fed = [&](bool isAfter, const ir::Value& input) {
      if (std::string why = feeding.gapOfInput(isAfter, input); !why.empty())
        doubt(why);
      const Ref contents =
          isAfter ? feeding.afterInput(input, step, math) : feeding.beforeInput(input, step, math);
      if (!contents)
        notFed = feeding.failure();
      return contents;
    };
    // A step that the second manifest excludes may differ, and is then a gap.
    auto isExcluded = [&](const std::string& how) {
      if (!step.excludedBy.empty())
        doubt("the second model's manifest excludes " + step.text() + " by " + step.excludedBy +
              how);
      return !step.excludedBy.empty();
    };
    hooks.input = [&](const ir::Value& input) { return fed(false, input); };
    hooks.given = [&](const ir::Value& value) { return given(i, false, value, frontier); };
    Evaluation before(feeding.before().model, rules, math, hooks);
    hooks.input = [&](const ir::Value& input) { return fed(true, input); };
    hooks.given = [&](const ir::Value& value) { return given(i, true, value, frontier); };
    Evaluation after(feeding.after().model, rules, math, hooks);
    const Ref a = before.evaluate(*question.before);
    if (!a) {
      // The first model does not accept every step.
      if (before.isInvalid()) {
        reject(step, before.failure());
        continue;
      }
      obligation.reason = notFed.empty() ? before.failure() : notFed;
      return Answer::Undecided;
    }
    const Ref b = after.evaluate(*question.after);
    if (nodesAfter.size() < after.evaluatedNodes().size())
      nodesAfter = after.evaluatedNodes();
    if (nodesBefore.size() < before.evaluatedNodes().size())
      nodesBefore = before.evaluatedNodes();
    obligation.nodesBefore = std::max(obligation.nodesBefore, before.evaluatedNodes().size());
    obligation.nodesAfter = std::max(obligation.nodesAfter, after.evaluatedNodes().size());
    if (!b) {
      if (isExcluded(", where it is not decided"))
        continue;
      obligation.reason = notFed.empty() ? after.failure() : notFed;
      if (after.isInvalid() && !acceptsStep(i)) {
        reject(step, after.failure());
        if (!firstDoubt.empty())
          doubt(firstDoubt);
        obligation.reason.clear();
        continue;
      }
      if (!after.isInvalid())
        return Answer::Undecided;
      obligation.counterexample = steps[i];
      return Answer::Different;
    }
    const Obligation earlier = obligation;
    const Answer one = question.pair
                           ? compareRows(question, steps[i], a, b, obligation)
                           : compareElements(question, steps[i], a, b, obligation, lastPatterns[i]);
    if (one != Answer::Equal && isExcluded(", where it differs")) {
      obligation = earlier;
      continue;
    }
    if (one == Answer::Different) {
      obligation.counterexample = steps[i];
      return one;
    }
    if (one == Answer::Undecided)
      answer = one;
    ++obligation.steps;
  }
  if (answer == Answer::Equal && obligation.elements == 0) {
    obligation.reason = "no step compares an element";
    return Answer::Undecided;
  }
  return answer;
}

Regions::Answer Regions::compareRows(const Question& question, const Step& step, const Ref& before,
                                     const Ref& after, Obligation& obligation) {
  auto a = feeding.beforeRows(*question.pair, before, step);
  auto b = feeding.afterRows(*question.pair, after, step);
  if (!a || !b) {
    obligation.reason =
        "a cache has too few rows: " + shapeText(before) + " and " + shapeText(after);
    return Answer::Different;
  }
  Ref unused;
  if (a->first >= 0 && b->first >= 0) {
    const auto axis = static_cast<unsigned>(question.pair->after->sequenceAxis);
    const int64_t first = std::max(a->first, b->first);
    const int64_t lastA = a->first + a->rows->shape[axis], lastB = b->first + b->rows->shape[axis];
    if (lastA != lastB || lastA != step.total()) {
      obligation.reason =
          "caches end at rows " + std::to_string(lastA) + " and " + std::to_string(lastB);
      return Answer::Different;
    }
    a->rows = rowsOf(a->rows, axis, first - a->first, lastA - a->first);
    b->rows = rowsOf(b->rows, axis, first - b->first, lastB - b->first);
  }
  return compareElements(question, step, a->rows, b->rows, obligation, unused);
}

Regions::Answer Regions::compareElements(const Question& question, const Step& step, Ref before,
                                         Ref after, Obligation& obligation, Ref& pattern) {
  if (before->shape != after->shape) {
    obligation.reason = "shapes are " + shapeText(before) + " and " + shapeText(after);
    return Answer::Different;
  }
  if (before->isInteger() && after->isInteger()) {
    obligation.elements += before->integers.size();
    auto differs =
        std::mismatch(before->integers.begin(), before->integers.end(), after->integers.begin());
    if (differs.first == before->integers.end())
      return Answer::Equal;
    obligation.reason = "integers differ";
    obligation.beforeElement = std::to_string(*differs.first);
    obligation.afterElement = std::to_string(*differs.second);
    return Answer::Different;
  }
  before = math.constants.real(before);
  after = math.constants.real(after);
  const bool allowsHidden = feeding.after().manifest.hiddenRowsUndefined && step.padding > 0;
  bool isUndecided = false, isPlain = true;
  auto kept = std::make_shared<Tensor>(*before);
  size_t at = 0;
  Answer answer = Answer::Equal;
  forEachPlace(before->shape, [&](llvm::ArrayRef<int64_t> place) {
    const Exact& a = before->reals[at];
    const Exact& b = after->reals[at];
    Exact& keep = kept->reals[at++];
    isPlain &= a.isNumber();
    if (a.status == Status::Unspecified || a.status == Status::NotANumber ||
        (allowsHidden && b.status == Status::Unspecified)) {
      ++obligation.hidden;
      keep = {0, 0, Status::Unspecified, false};
      isPlain = false;
      return;
    }
    if (a.status == Status::Undecided || b.status == Status::Undecided) {
      isUndecided = true;
      return;
    }
    ++obligation.elements;
    if (a.isEqual(b) || answer == Answer::Different)
      return;
    answer = Answer::Different;
    obligation.reason = "elements differ";
    obligation.place = placeText(place);
    obligation.beforeElement = elementText(a);
    obligation.afterElement = elementText(b);
  });
  if (answer == Answer::Different)
    return answer;
  if (!isPlain && question.before)
    pattern = kept;
  if (isUndecided) {
    obligation.reason = "an exponential of an exponential is not represented";
    return Answer::Undecided;
  }
  return Answer::Equal;
}

void Regions::merge(const ir::Value& before, const ir::Value& after) {
  const ValueClass own = classesBefore.of(before);
  compared[own] = lastPatterns;
  for (StepState& state : states)
    state.leaves.erase(own);
  classesAfter.set(after, own);
  ofAfter.insert(own);
}

} // namespace kvopt::check
