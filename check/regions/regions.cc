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
    : models(inputs, table, std::move(scope), seed, mostWork),
      latents(inputs, table, models.classesBefore, models.classesAfter, models.math) {}

void Regions::reject(const Step& step, const std::string& why) {
  if (rejected.empty())
    rejected = step.text() + ": " + why;
  constexpr int64_t small = 4;
  if (step.batch == 1 && step.past <= small && step.tokens <= small)
    doubt("the first model does not accept a step of " + step.text() + ": " + why);
}

Ref Regions::given(size_t step, bool isAfter, const ir::Value& value, Frontier frontier) {
  const auto stop = models.stops.at(isAfter, value, frontier);
  if (!stop)
    return nullptr;
  const Ref contents = models.leaves.contents(step, *stop);
  if (!contents || stop->representative->constantRef())
    return contents;
  outcome.stops[isAfter].insert(stop->value);
  if (const std::string why = models.leaves.doubtOf(*stop->representative); !why.empty())
    doubt(why);
  return contents;
}

Answer Regions::compare(const Question& question, Frontier frontier, Obligation& obligation) {
  models.stops.includeAll();
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
    models.stops.exclude(onlyOne);
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
      outcome.gap = models.leaves.gapOf(models.stops.again(value, frontier));
    }
}

Answer Regions::compareAt(const Question& question, Frontier frontier, Obligation& obligation) {
  std::optional<Region> region;
  const bool isLatent = question.pair && question.pair->content == RowContent::Latent;
  if (frontier != Frontier::Inputs && !isLatent) {
    auto stopsAt = [&](bool isAfter, const ir::Value& value) {
      return models.stops.at(isAfter, value, frontier);
    };
    RegionWalk walk({models.feeding, models.shapes, models.leaves, models.classesBefore,
                     models.classesAfter, models.digests},
                    stopsAt);
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
    if (outcome.answer == Answer::Equal && !outcome.gap.empty() && models.math.readsSizes)
      evaluateBySizes(question, frontier, obligation);
    outcome.isExhausted = models.math.isExhausted();
    if (region)
      answers.emplace(region->key, recorded(*region, obligation));
  }
  if (outcome.answer == Answer::Equal)
    addGapOfStops(frontier);
  return outcome.answer;
}

void Regions::assumeInputs(const Question& question) {
  for (const bool isAfter : {false, true}) {
    const DrivenModel& side = isAfter ? models.feeding.after() : models.feeding.before();
    for (const auto& input : side.model.graph().inputs()) {
      const std::string assumed = models.feeding.assumptionOfInput(isAfter, *input);
      auto isInput = [&](const ir::Value& value) { return &value == input.get(); };
      if (!assumed.empty() && (isInput(isAfter ? *question.after : *question.before) ||
                               readContents(outcome.nodes[isAfter], isInput)))
        models.math.assumptions.insert(assumed);
    }
  }
}

/// Evaluates a region again whose numbers may be equal by the sizes of the scope only. Where the
/// numbers are equal as functions of sizes, too, this answer is the better one.
void Regions::evaluateBySizes(const Question& question, Frontier frontier, Evidence& evidence) {
  Outcome first = std::move(outcome);
  Evidence other;
  models.math.isBySizes = true;
  const Answer answer = evaluate(question, frontier, other);
  models.math.isBySizes = false;
  if (answer != Answer::Equal || !outcome.gap.empty()) {
    outcome = std::move(first);
    return;
  }
  outcome.answer = answer;
  evidence = other;
}

void Regions::begin() {
  outcome = {};
  models.math.readsSizes = false;
  models.math.thresholds.clear();
  models.math.tableReads.clear();
  models.math.constants.forgetUses();
  models.math.beginWork();
}

std::optional<Answer> Regions::evaluateHastily(const Question& question, Frontier frontier,
                                               Evidence& evidence) {
  begin();
  models.leaves.release();
  Evidence early;
  Ref pattern;
  const StepAnswer answer = evaluateOrders(lastDifferent, question, frontier, early, pattern);
  if (answer != StepAnswer::Different && answer != StepAnswer::Undecided)
    return std::nullopt;
  evidence = early;
  if (answer == StepAnswer::Undecided)
    return Answer::Undecided;
  evidence.counterexample = models.steps[lastDifferent];
  return Answer::Different;
}

Answer Regions::evaluate(const Question& question, Frontier frontier, Evidence& evidence) {
  if (question.isHasty && lastDifferent > 0)
    if (const auto answer = evaluateHastily(question, frontier, evidence))
      return *answer;
  begin();
  Form patterns(models.steps.size());
  Answer answer = Answer::Equal;
  for (size_t i = 0; i < models.steps.size(); ++i) {
    // Without a frontier, whole models are evaluated, only to show that a difference is real.
    if (frontier == Frontier::Inputs && i >= mostWholeSteps) {
      evidence.reason = "whole models are not evaluated in every step";
      return Answer::Undecided;
    }
    models.leaves.release();
    switch (evaluateOrders(i, question, frontier, evidence, patterns[i])) {
    case StepAnswer::LeftOut:
      continue;
    case StepAnswer::Failed:
      return Answer::Undecided;
    case StepAnswer::Different:
      evidence.counterexample = models.steps[i];
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
    evidence.reason = models.steps.empty() ? "no step fits the sizes in both manifests"
                                           : "no step compares an element";
    return Answer::Undecided;
  }
  if (answer == Answer::Equal) {
    assumeInputs(question);
    models.math.constants.noteMerged(models.math);
  }
  for (Ref& pattern : patterns)
    pattern = patternOf(pattern);
  outcome.patterns = models.forms.form(patterns);
  if (outcome.gap.empty())
    outcome.gap = models.math.thresholds.gap();
  if (outcome.gap.empty())
    outcome.gap = models.math.tableReads.gap();
  return answer;
}

/// A predicate of reals is one bit, which is the same for different numbers in every second case.
/// A step with such predicates is therefore evaluated for many independent orders.
Regions::StepAnswer Regions::evaluateOrders(size_t at, const Question& question, Frontier frontier,
                                            Evidence& evidence, Ref& pattern) {
  models.math.usesOrder = false;
  StepAnswer answer = evaluateStep(at, question, frontier, evidence, pattern);
  if (!models.math.usesOrder)
    return answer;
  for (models.math.order = 1; answer == StepAnswer::Equal && models.math.order < Arithmetic::orders;
       ++models.math.order) {
    Evidence other = evidence;
    Ref ofOrder;
    answer = evaluateStep(at, question, frontier, other, ofOrder);
    outcome.hasOrderedPatterns |=
        models.forms.tensor(patternOf(pattern)) != models.forms.tensor(patternOf(ofOrder));
    if (answer != StepAnswer::Equal)
      evidence = other;
  }
  models.math.order = 0;
  return answer;
}

Ref Regions::latentRows(size_t at, const CachePair& pair, const Ref& latent, Frontier frontier) {
  return latents.rowsOf(
      pair, latent, models.steps[at],
      [&](const ir::Value& constant) { return given(at, false, constant, frontier); },
      [&](const ValueClass& value) { return models.stops.isOfBefore(value); });
}

Ref Regions::inputOf(size_t at, bool isAfter, const ir::Value& input, Frontier frontier,
                     std::string& failure) {
  const Step& step = models.steps[at];
  const Ref contents = isAfter ? models.feeding.afterInput(input, step, models.math)
                               : models.feeding.beforeInput(input, step, models.math);
  if (!contents)
    failure = models.feeding.failure();
  CacheContents& caches = models.feeding.cacheContents();
  const CachePair* latent = isAfter ? nullptr : caches.pairs().replacing(input.name());
  if (!contents || !latent || step.past == 0)
    return contents;
  const Ref rows = caches.numbersOf(*latent->after, step, models.math.field);
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
    return compareRows(models.feeding, pair, models.steps[at], before, after, allowsHidden,
                       models.math, evidence);
  CacheContents& caches = models.feeding.cacheContents();
  const auto first = caches.beforeRows(pair, before, models.steps[at], models.math);
  const auto second = caches.afterRows(pair, after, models.steps[at]);
  const Ref rows = first && second
                       ? latentRows(at, pair, models.math.constants.real(second->rows), frontier)
                       : nullptr;
  if (!rows) {
    evidence.reason = first && second ? latents.failure() : "a cache has too few rows";
    return first && !second ? Answer::Different : Answer::Undecided;
  }
  Ref unused;
  return compareElements(first->rows, rows, allowsHidden, models.math, evidence, unused);
}

bool Regions::differsByUnwrittenRows(size_t at, const Question& question, Frontier frontier,
                                     const Ref& before, const Ref& after,
                                     llvm::function_ref<Ref()> beforeAgain) {
  CacheContents& caches = models.feeding.cacheContents();
  caches.fillUnwritten(1);
  const Ref again = beforeAgain();
  caches.fillUnwritten(0);
  if (!again || again->shape != before->shape || !before->isReal() || !again->isReal() ||
      again->reals.size() != before->reals.size())
    return false;
  auto kept = std::make_shared<Tensor>(*before);
  bool isRead = false;
  for (size_t i = 0; i < kept->reals.size(); ++i)
    if (!kept->reals[i].isEqual(again->reals[i])) {
      kept->reals[i] = {0, 0, Status::Unspecified, false};
      isRead = true;
    }
  if (!isRead)
    return false;
  const auto assumptions = models.math.assumptions;
  Evidence unused;
  Ref pattern;
  const Answer answer =
      question.pair
          ? compareCaches(at, question, frontier, kept, after, /*allowsHidden=*/false, unused)
          : compareElements(kept, after, /*allowsHidden=*/false, models.math, unused, pattern);
  models.math.assumptions = assumptions;
  return answer == Answer::Equal;
}

Regions::StepAnswer Regions::evaluateStep(size_t at, const Question& question, Frontier frontier,
                                          Evidence& evidence, Ref& pattern) {
  const Step& step = models.steps[at];
  enter(models.math.thresholds, step);
  models.math.floors.clear();
  unknownRows.clear();
  std::string notFed; // the reason that an input has no contents
  auto hooksOf = [&](bool isAfter) {
    Evaluation::Hooks hooks;
    hooks.input = [this, at, &notFed, isAfter, frontier](const ir::Value& input) {
      if (std::string why = models.feeding.gapOfInput(isAfter, input); !why.empty())
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
  Evaluation before(models.feeding.before().model, models.rules, models.math, hooksOf(false));
  Evaluation after(models.feeding.after().model, models.rules, models.math, hooksOf(true));
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
  if (models.feeding.readsCodes(after.evaluatedNodes()))
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
    if (after.isInvalid() && !models.shapes.accepts(at)) {
      reject(step, after.failure());
      if (!models.firstDoubt.empty())
        doubt(models.firstDoubt);
      return StepAnswer::LeftOut;
    }
    evidence.reason = notFed.empty() ? after.failure() : notFed;
    return after.isInvalid() ? StepAnswer::Different : StepAnswer::Failed;
  }
  const bool allowsHidden = models.feeding.after().manifest.hiddenRowsUndefined && step.padding > 0;
  const Evidence earlier = evidence;
  const Answer answer = question.pair
                            ? compareCaches(at, question, frontier, a, b, allowsHidden, evidence)
                            : compareElements(a, b, allowsHidden, models.math, evidence, pattern);
  if (answer != Answer::Equal && isExcluded(", where it differs")) {
    evidence = earlier;
    return StepAnswer::LeftOut;
  }
  auto beforeAgain = [&] {
    return Evaluation(models.feeding.before().model, models.rules, models.math, hooksOf(false))
        .evaluate(*question.before);
  };
  if (answer == Answer::Different &&
      differsByUnwrittenRows(at, question, frontier, a, b, beforeAgain)) {
    evidence = earlier;
    reject(step, "it reads rows that no token wrote");
    doubt("the first model reads rows that no token wrote in a step of " + step.text());
    return StepAnswer::LeftOut;
  }
  // Each token of a step without padding sees itself, so that each element is a number.
  if (evidence.hidden > earlier.hidden && step.padding == 0)
    doubt("elements that are not numbers in the first model are not compared in a step of " +
          step.text());
  return answer == Answer::Equal       ? StepAnswer::Equal
         : answer == Answer::Different ? StepAnswer::Different
                                       : StepAnswer::Undecided;
}

void Regions::merge(const ir::Value& before, const ir::Value& after) {
  const ValueClass own = models.classesBefore.of(before);
  models.leaves.setCompared(own, outcome.patterns);
  models.classesAfter.set(after, own);
  models.stops.noteAfter(own);
}

} // namespace kvopt::check
