// Evaluation of regions, and answers that equal regions share.
#include "check/regions/regions.h"

#include "check/regions/scope.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <iterator>

namespace kvopt::check {
namespace {

/// Number of steps in which whole models are evaluated.
constexpr size_t mostWholeSteps = 24;

} // namespace

Regions::Regions(Feeding& inputs, const RuleTable& table, std::vector<Step> scope, unsigned seed,
                 int64_t mostWork)
    : feeding(inputs), rules(table), steps(std::move(scope)), math(seed),
      classesBefore(inputs.before().model, digests), classesAfter(inputs.after().model, digests),
      shapes(inputs, table, classesBefore, digests, steps, math, forms),
      leaves(inputs, table, classesBefore, digests, shapes, steps, math, forms),
      stops(classesBefore, classesAfter, shapes, leaves),
      latents(inputs, table, classesBefore, classesAfter, math) {
  math.mostWork = mostWork;
  math.codeSteps = &feeding.cacheContents().pairs().codeSteps();
  if (const auto limit = lengthLimit(feeding.before(), feeding.after())) {
    math.thresholds.limitLengths();
    math.assumptions.insert("sequences have at most " + std::to_string(*limit) +
                            " tokens, for which the caches have room");
  }
  digests.readCopies(feeding.before().model, feeding.after().model);
  indexInputs();
  classesBefore.hashAll();
  classesAfter.hashAll();
  for (const auto& input : feeding.before().model.graph().inputs())
    if (std::string why = feeding.gapOfInput(false, *input); !why.empty())
      leaves.setDoubt(*input, why);
  collectDoubts(feeding.before().model.graph());
  stops.index(feeding.before().model, feeding.after().model);
}

/// Whether the first model has neither a rule nor a function for an operator.
bool Regions::isUnruled(const ir::Node& node) const {
  return !node.is("If") && !feeding.before().model.findFunction(node.op()) &&
         !rules.count(node.op().str());
}

void Regions::collectDoubts(const ir::Graph& graph) {
  llvm::DenseMap<const ir::Function*, bool> functions; // whether a node of their body is unruled
  auto hasUnruled = [&](const ir::Node& node) {
    const ir::Function* function = feeding.before().model.findFunction(node.op());
    if (!function)
      return isUnruled(node);
    auto [at, isNew] = functions.try_emplace(function, false);
    if (isNew)
      at->second = llvm::any_of(function->body.nodes(),
                                [&](const ir::Node& inner) { return isUnruled(inner); });
    return at->second;
  };
  for (const ir::Node& node : graph.nodes()) {
    std::string why;
    auto take = [&](const ir::Value* value) {
      if (why.empty() && value)
        why = leaves.doubtOf(*value);
    };
    if (hasUnruled(node)) {
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
        leaves.setDoubt(result, why);
  }
}

void Regions::reject(const Step& step, const std::string& why) {
  if (rejected.empty())
    rejected = step.text() + ": " + why;
  constexpr int64_t small = 4;
  if (step.batch == 1 && step.past <= small && step.tokens <= small)
    doubt("the first model does not accept a step of " + step.text() + ": " + why);
}

bool Regions::isSameInput(const ir::Value& before, const ir::Value& after) {
  const CacheInput* first = feeding.cacheInput(false, before);
  const CacheInput* second = feeding.cacheInput(true, after);
  if (first || second) // both have one name, so that rows that no token wrote are the same numbers
    return first && second && second->history && first->history->past == second->history->past &&
           (!second->pair || second->pair->content == RowContent::Numbers) &&
           shapes.placesOf(*first) == shapes.placesOf(*second) &&
           !llvm::is_contained(*shapes.placesOf(*first), nullptr);
  return llvm::all_of(steps, [&](const Step& step) {
    const Ref a = feeding.beforeInput(before, step, math);
    const Ref b = feeding.afterInput(after, step, math);
    return a && b && a->shape == b->shape && a->kind == b->kind && a->integers == b->integers &&
           a->known == b->known &&
           std::equal(a->reals.begin(), a->reals.end(), b->reals.begin(), b->reals.end(),
                      [](const Exact& x, const Exact& y) { return x.isEqual(y); });
  });
}

/// Inputs with the same contents in all steps have one class.
void Regions::indexInputs() {
  for (const auto& input : feeding.after().model.graph().inputs()) {
    const ir::Value* twin = feeding.before().model.graph().findValue(input->name());
    if (!twin || !twin->isGraphInput() || !isSameInput(*twin, *input))
      classesAfter.setInput(*input,
                            classOf("input of the second model", {}, {nameHash(input->name())}));
  }
}

Ref Regions::given(size_t step, bool isAfter, const ir::Value& value, Frontier frontier) {
  const auto stop = stops.at(isAfter, value, frontier);
  if (!stop)
    return nullptr;
  const Ref contents = leaves.contents(step, *stop);
  if (!contents || stop->representative->constantRef())
    return contents;
  outcome.stops[isAfter].insert(stop->value);
  if (const std::string why = leaves.doubtOf(*stop->representative); !why.empty())
    doubt(why);
  return contents;
}

Answer Regions::compare(const Question& question, Frontier frontier, Obligation& obligation) {
  stops.includeAll();
  return compareAt(question, frontier, obligation);
}

Answer Regions::compareMatched(const Question& question, Frontier frontier, Answer first,
                               unsigned rounds, Obligation& obligation) {
  for (unsigned round = 0; first == Answer::Different; ++round) {
    std::set<ValueClass> onlyOne;
    const auto& [before, after] = outcome.stops;
    std::set_symmetric_difference(before.begin(), before.end(), after.begin(), after.end(),
                                  std::inserter(onlyOne, onlyOne.end()));
    if (onlyOne.empty())
      break;
    if (round == rounds) {
      obligation.reason = "the models share too many values to compare them";
      return Answer::Undecided;
    }
    stops.exclude(onlyOne);
    first = compareAt(question, frontier, obligation);
  }
  return first;
}

/// The last comparison, as an answer for all equal regions.
Regions::Known Regions::recorded(const Region& region, const Obligation& obligation) const {
  Known known{obligation, outcome, {}};
  known.evidence.evaluatedAs = obligation.after;
  known.outcome.nodes = {};
  known.outcome.stops = {};
  for (const bool isAfter : {false, true})
    for (size_t i = 0; i < region.stops.size(); ++i)
      if (outcome.stops[isAfter].count(region.stops[i]))
        known.stops[isAfter].push_back(i);
  return known;
}

/// Makes the answer of an equal region that of the last comparison.
void Regions::repeat(const Known& known, const Region& region, Obligation& obligation) {
  static_cast<Evidence&>(obligation) = known.evidence;
  if (obligation.evaluatedAs == obligation.after)
    obligation.evaluatedAs.clear();
  outcome = known.outcome;
  outcome.nodes = region.nodes;
  for (const bool isAfter : {false, true})
    for (size_t i : known.stops[isAfter])
      outcome.stops[isAfter].insert(region.stops[i]);
}

void Regions::addGapOfStops(Frontier frontier) {
  for (const std::set<ValueClass>& ofModel : outcome.stops)
    for (const ValueClass& value : ofModel) {
      if (!outcome.gap.empty())
        return;
      outcome.gap = leaves.gapOf(stops.again(value, frontier));
    }
}

Answer Regions::compareAt(const Question& question, Frontier frontier, Obligation& obligation) {
  std::optional<Region> region;
  const bool isLatent = question.pair && question.pair->content == RowContent::Latent;
  if (frontier != Frontier::Inputs && !isLatent) {
    auto stopsAt = [&](bool isAfter, const ir::Value& value) {
      return stops.at(isAfter, value, frontier);
    };
    RegionWalk walk({feeding, shapes, leaves, classesBefore, classesAfter, digests}, stopsAt);
    region = walk.walk(*question.before, *question.after,
                       {question.pair ? question.pair->form + 1 : 0, question.isHasty});
  }
  const auto known = region ? answers.find(region->key) : answers.end();
  if (known != answers.end()) {
    repeat(known->second, *region, obligation);
  } else {
    ++evaluations;
    static_cast<Evidence&>(obligation) = {};
    outcome.answer = evaluate(question, frontier, obligation);
    outcome.isExhausted = math.isExhausted();
    if (region)
      answers.emplace(region->key, recorded(*region, obligation));
  }
  if (outcome.answer == Answer::Equal)
    addGapOfStops(frontier);
  return outcome.answer;
}

void Regions::begin() {
  outcome = {};
  math.thresholds.clear();
  math.work = 0;
}

std::optional<Answer> Regions::evaluateHastily(const Question& question, Frontier frontier,
                                               Evidence& evidence) {
  begin();
  leaves.release();
  Evidence early;
  Ref pattern;
  const StepAnswer answer = evaluateOrders(lastDifferent, question, frontier, early, pattern);
  if (answer != StepAnswer::Different && answer != StepAnswer::Undecided)
    return std::nullopt;
  evidence = early;
  if (answer == StepAnswer::Undecided)
    return Answer::Undecided;
  evidence.counterexample = steps[lastDifferent];
  return Answer::Different;
}

Answer Regions::evaluate(const Question& question, Frontier frontier, Evidence& evidence) {
  if (question.isHasty && lastDifferent > 0)
    if (const auto answer = evaluateHastily(question, frontier, evidence))
      return *answer;
  begin();
  Form patterns(steps.size());
  Answer answer = Answer::Equal;
  for (size_t i = 0; i < steps.size(); ++i) {
    // Without a frontier, whole models are evaluated, only to show that a difference is real.
    if (frontier == Frontier::Inputs && i >= mostWholeSteps) {
      evidence.reason = "whole models are not evaluated in every step";
      return Answer::Undecided;
    }
    leaves.release();
    switch (evaluateOrders(i, question, frontier, evidence, patterns[i])) {
    case StepAnswer::LeftOut:
      continue;
    case StepAnswer::Failed:
      return Answer::Undecided;
    case StepAnswer::Different:
      evidence.counterexample = steps[i];
      lastDifferent = i;
      return Answer::Different;
    case StepAnswer::Undecided:
      answer = Answer::Undecided;
      break;
    case StepAnswer::Equal:
      break;
    }
    ++evidence.steps;
  }
  if (answer == Answer::Equal && evidence.elements == 0) {
    evidence.reason =
        steps.empty() ? "no step fits the sizes in both manifests" : "no step compares an element";
    return Answer::Undecided;
  }
  for (Ref& pattern : patterns)
    pattern = patternOf(pattern);
  outcome.patterns = forms.form(patterns);
  if (outcome.gap.empty())
    outcome.gap = math.thresholds.gap();
  return answer;
}

/// A predicate of reals is one bit, which is the same for different numbers in every second case.
/// A step with such predicates is therefore evaluated for many independent orders.
Regions::StepAnswer Regions::evaluateOrders(size_t at, const Question& question, Frontier frontier,
                                            Evidence& evidence, Ref& pattern) {
  math.usesOrder = false;
  StepAnswer answer = evaluateStep(at, question, frontier, evidence, pattern);
  if (!math.usesOrder)
    return answer;
  for (math.order = 1; answer == StepAnswer::Equal && math.order < Arithmetic::orders;
       ++math.order) {
    Evidence other = evidence;
    Ref ofOrder;
    answer = evaluateStep(at, question, frontier, other, ofOrder);
    outcome.hasOrderedPatterns |=
        forms.tensor(patternOf(pattern)) != forms.tensor(patternOf(ofOrder));
    if (answer != StepAnswer::Equal)
      evidence = other;
  }
  math.order = 0;
  return answer;
}

Ref Regions::latentRows(size_t at, const CachePair& pair, const Ref& latent, Frontier frontier) {
  return latents.rowsOf(
      pair, latent, steps[at],
      [&](const ir::Value& constant) { return given(at, false, constant, frontier); },
      [&](const ValueClass& value) { return stops.isOfBefore(value); });
}

Ref Regions::inputOf(size_t at, bool isAfter, const ir::Value& input, Frontier frontier,
                     std::string& failure) {
  const Step& step = steps[at];
  const Ref contents =
      isAfter ? feeding.afterInput(input, step, math) : feeding.beforeInput(input, step, math);
  if (!contents)
    failure = feeding.failure();
  CacheContents& caches = feeding.cacheContents();
  const CachePair* latent = isAfter ? nullptr : caches.pairs().replacing(input.name());
  if (!contents || !latent || step.past == 0)
    return contents;
  const Ref rows = caches.numbersOf(*latent->after, step, math.field);
  const Ref computed = rows ? latentRows(at, *latent, rows, frontier) : nullptr;
  if (computed && computed->shape == contents->shape)
    return computed;
  failure = computed ? "the first model computes rows of another shape" : latents.failure();
  unknownRows.insert(&input);
  return contents;
}

Answer Regions::compareCaches(size_t at, const Question& question, Frontier frontier,
                              const Ref& before, const Ref& after, bool allowsHidden,
                              Evidence& evidence) {
  const CachePair& pair = *question.pair;
  if (pair.content != RowContent::Latent)
    return compareRows(feeding, pair, steps[at], before, after, allowsHidden, math, evidence);
  CacheContents& caches = feeding.cacheContents();
  const auto first = caches.beforeRows(pair, before, steps[at], math);
  const auto second = caches.afterRows(pair, after, steps[at]);
  const Ref rows =
      first && second ? latentRows(at, pair, math.constants.real(second->rows), frontier) : nullptr;
  if (!rows) {
    evidence.reason = first && second ? latents.failure() : "a cache has too few rows";
    return first && !second ? Answer::Different : Answer::Undecided;
  }
  Ref unused;
  return compareElements(first->rows, rows, allowsHidden, math, evidence, unused);
}

Regions::StepAnswer Regions::evaluateStep(size_t at, const Question& question, Frontier frontier,
                                          Evidence& evidence, Ref& pattern) {
  const Step& step = steps[at];
  enter(math.thresholds, step);
  math.floors.clear();
  unknownRows.clear();
  std::string notFed; // the reason that an input has no contents
  auto hooksOf = [&](bool isAfter) {
    Evaluation::Hooks hooks;
    hooks.input = [this, at, &notFed, isAfter, frontier](const ir::Value& input) {
      if (std::string why = feeding.gapOfInput(isAfter, input); !why.empty())
        doubt(why);
      return inputOf(at, isAfter, input, frontier, notFed);
    };
    hooks.isRead = [this, isAfter](const ir::Value& value) {
      return classes(isAfter).isRead(value);
    };
    hooks.given = [this, at, isAfter, frontier](const ir::Value& value) {
      return given(at, isAfter, value, frontier);
    };
    return hooks;
  };
  // A step that the second manifest excludes may differ, and is then a gap.
  auto isExcluded = [&](const std::string& how) {
    if (!step.excludedBy.empty())
      doubt("the second model's manifest excludes " + step.text() + " by " + step.excludedBy + how);
    return !step.excludedBy.empty();
  };
  Evaluation before(feeding.before().model, rules, math, hooksOf(false));
  Evaluation after(feeding.after().model, rules, math, hooksOf(true));
  const Ref a = before.evaluate(*question.before);
  if (!a) {
    // The first model does not accept every step.
    if (before.isInvalid()) {
      reject(step, before.failure());
      return StepAnswer::LeftOut;
    }
    evidence.reason = notFed.empty() ? before.failure() : notFed;
    return StepAnswer::Failed;
  }
  // Rows of a replaced cache that could not be computed; its shape is known.
  auto isUnknown = [&](const ir::Value& value) { return unknownRows.count(&value) != 0; };
  if (isUnknown(*question.before) ||
      (!unknownRows.empty() && readContents(before.evaluatedNodes(), isUnknown))) {
    evidence.reason = notFed;
    return StepAnswer::Failed;
  }
  const Ref b = after.evaluate(*question.after);
  if (feeding.readsCodes(after.evaluatedNodes()))
    doubt(roundingGap);
  for (const bool isAfter : {false, true}) {
    const std::vector<const ir::Node*>& nodes = (isAfter ? after : before).evaluatedNodes();
    if (outcome.nodes[isAfter].size() < nodes.size())
      outcome.nodes[isAfter] = nodes;
  }
  evidence.nodesBefore = outcome.nodes[false].size();
  evidence.nodesAfter = outcome.nodes[true].size();
  if (!b) {
    if (isExcluded(", where it is not decided"))
      return StepAnswer::LeftOut;
    if (after.isInvalid() && !shapes.accepts(at)) {
      reject(step, after.failure());
      if (!firstDoubt.empty())
        doubt(firstDoubt);
      return StepAnswer::LeftOut;
    }
    evidence.reason = notFed.empty() ? after.failure() : notFed;
    return after.isInvalid() ? StepAnswer::Different : StepAnswer::Failed;
  }
  const bool allowsHidden = feeding.after().manifest.hiddenRowsUndefined && step.padding > 0;
  const Evidence earlier = evidence;
  const Answer answer = question.pair
                            ? compareCaches(at, question, frontier, a, b, allowsHidden, evidence)
                            : compareElements(a, b, allowsHidden, math, evidence, pattern);
  if (answer != Answer::Equal && isExcluded(", where it differs")) {
    evidence = earlier;
    return StepAnswer::LeftOut;
  }
  return answer == Answer::Equal       ? StepAnswer::Equal
         : answer == Answer::Different ? StepAnswer::Different
                                       : StepAnswer::Undecided;
}

void Regions::merge(const ir::Value& before, const ir::Value& after) {
  const ValueClass own = classesBefore.of(before);
  leaves.setCompared(own, outcome.patterns);
  classesAfter.set(after, own);
  stops.noteAfter(own);
}

} // namespace kvopt::check
