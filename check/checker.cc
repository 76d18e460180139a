// Pairs outputs and candidates, and walks through the second model once.
#include "check/checker.h"

#include "check/regions/regions.h"
#include "check/regions/scope.h"
#include "check/regions/size_argument.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

#include <algorithm>

namespace kvopt::check {
namespace {

/// Largest number of values of the first model that one value is compared with.
constexpr size_t mostCandidates = 3;
/// Number of different pairs in a row after which only outputs are compared: what depends on a
/// difference is different, too.
constexpr size_t mostInARow = 32;
/// Numbers of times that a region grows: for a value on the way, and for an output.
constexpr unsigned fewRounds = 2, mostRounds = 8;

class Checker {
public:
  Checker(DrivenModel before, DrivenModel after, unsigned seed, int64_t mostWork)
      : rules(allRules()), feeding(before, after),
        scope(scopeOf(before, after, report.notChecked, covered)),
        regions(feeding, rules, scope, seed, mostWork) {
    report.seed = seed;
    report.modulusP = regions.field().modulusP();
    report.modulusQ = regions.field().modulusQ();
    report.scope = scope;
  }

  CheckReport run() {
    pairOutputs();
    noteOtherFiles();
    collectCandidates();
    for (const ir::Node& node : after().nodes()) {
      ++report.nodesAfter;
      visit(node);
    }
    for (const Output& output : outputs)
      if (!output.after->producer())
        decide(output);
    report.nodesBefore = before().nodes().size();
    if (!regions.rejectedStep().empty())
      report.notChecked.push_back("steps that the first model does not accept, such as " +
                                  regions.rejectedStep());
    report.regionsEvaluated = regions.evaluatedCount();
    report.assumptions.assign(regions.assumptions().begin(), regions.assumptions().end());
    return std::move(report);
  }

private:
  using ValuePair = std::pair<const ir::Value*, const ir::Value*>;
  struct Output {
    const ir::Value* before = nullptr;
    const ir::Value* after = nullptr;
    const Feeding::Pair* pair = nullptr;
    std::string obstacle;
    bool hasOtherName = false; ///< the first model returns another value by this name
  };

  const ir::Graph& before() const { return feeding.before().model.graph(); }
  const ir::Graph& after() const { return feeding.after().model.graph(); }

  static llvm::StringMap<const ir::Value*> outputsOf(const ir::Graph& graph) {
    llvm::StringMap<const ir::Value*> found;
    for (const ir::Value* output : graph.outputs())
      found.try_emplace(output->name(), output);
    return found;
  }

  /// Pairs an output of the second model, of a cache with `pair`. The first model's one, or null.
  const ir::Value* pairOutput(const ir::Value& output, const Feeding::Pair* pair,
                              const llvm::StringMap<const ir::Value*>& named) {
    Output found;
    found.after = &output;
    found.pair = pair;
    if (!pair)
      found.before = named.lookup(output.name());
    else if (pair->before)
      found.before = named.lookup(pair->before->present);
    if (pair)
      found.obstacle = pair->obstacle;
    if (const ir::Value* other = named.lookup(output.name());
        pair && found.before && other && other != found.before)
      found.hasOtherName = true;
    if (pair && found.obstacle.empty() && !found.before)
      found.obstacle = "the first model does not return this cache";
    if (!pair && !found.before) {
      report.notChecked.push_back("the output '" + output.name().str() +
                                  "', which the first model does not have");
      return nullptr;
    }
    outputsAt[&output].push_back(outputs.size());
    outputs.push_back(found);
    return found.before;
  }

  /// Pairs outputs by name, and caches as the manifest says.
  void pairOutputs() {
    const auto named = outputsOf(before());
    llvm::StringMap<llvm::SmallVector<const Feeding::Pair*, 2>> pairs;
    for (const Feeding::Pair& pair : feeding.pairs())
      pairs[pair.after->present].push_back(&pair);
    llvm::DenseSet<const ir::Value*> paired;
    for (const ir::Value* output : after().outputs()) {
      const auto known = pairs.find(output->name());
      if (known == pairs.end()) {
        paired.insert(pairOutput(*output, nullptr, named));
        continue;
      }
      for (const Feeding::Pair* pair : known->second)
        paired.insert(pairOutput(*output, pair, named));
    }
    llvm::StringSet<> replaced; // outputs that other caches of the second model continue
    for (const ir::ManifestCache& cache : feeding.after().manifest.caches) {
      if (cache.part)
        replaced.insert(cache.part->present);
      for (const ir::ManifestReplacement& replacement : cache.replaces)
        replaced.insert(replacement.present);
    }
    for (const ir::Value* output : before().outputs()) {
      if (paired.count(output) || replaced.count(output->name()))
        continue;
      Obligation missing;
      missing.before = missing.after = output->name().str();
      missing.isOutput = true;
      missing.verdict = Verdict::Different;
      missing.reason = "the second model does not have this output";
      report.obligations.push_back(std::move(missing));
    }
  }

  /// Files that belong to the second model are not decided: only the whole model is evaluated.
  void noteOtherFiles() {
    const ir::Manifest& manifest = feeding.after().manifest;
    const std::pair<bool, const char*> files[] = {
        {!manifest.variants.empty(), "the variants"},
        {manifest.tiles.has_value(), "the parts and tiles"},
        {!manifest.firstStep.empty(), "the model of the first step"}};
    for (const auto& [isWritten, name] : files)
      if (isWritten) {
        Obligation obligation;
        obligation.after = name;
        obligation.isOutput = true;
        obligation.reason = "a check looks at the file of the whole model only";
        report.obligations.push_back(std::move(obligation));
      }
  }

  /// Pairs of values that are equal if the models are: values of the same name, and operands of
  /// equal operators. Lengths are among them, so that what follows from them is the same. A pair is
  /// only a place to compare; nothing follows from it. Likely pairs come first.
  void collectCandidates() {
    std::vector<ValuePair> pending, crossed;
    for (const ir::Node& node : after().nodes())
      for (const ir::Value& result : node.results())
        if (!result.isAbsent())
          if (const ir::Value* twin = before().findValue(result.name()))
            if (twin->producer() && !isAligned(*twin, result)) {
              note(*twin, result);
              pending.push_back({twin, &result});
            }
    for (const Output& output : outputs)
      if (!output.pair && output.before)
        pending.push_back({output.before, output.after});
    llvm::DenseSet<ValuePair> seen;
    while (!pending.empty() || !crossed.empty()) {
      std::vector<ValuePair>& next = pending.empty() ? crossed : pending;
      auto [a, b] = next.back();
      next.pop_back();
      if (!a || !b || !seen.insert({a, b}).second || isAligned(*a, *b))
        continue;
      note(*a, *b);
      const ir::Node* first = a->producer();
      const ir::Node* second = b->producer();
      if (!first || !second || first->operands().size() != second->operands().size() ||
          !(regions.classes(false).operatorOf(*first) == regions.classes(true).operatorOf(*second)))
        continue;
      for (unsigned i = 0; i < first->operands().size(); ++i)
        pending.push_back({first->operand(i), second->operand(i)});
      if (isCommutative(*first) && first->operands().size() == 2)
        for (unsigned i : {0u, 1u})
          crossed.push_back({first->operand(i), second->operand(1 - i)});
    }
  }

  bool isAligned(const ir::Value& first, const ir::Value& second) {
    return regions.classes(false).of(first) == regions.classes(true).of(second);
  }

  void note(const ir::Value& first, const ir::Value& second) {
    // Caches of another form have their rows in other places.
    if (auto at = outputsAt.find(&second); at != outputsAt.end())
      for (size_t i : at->second)
        if (outputs[i].pair && !isSameForm(*outputs[i].pair))
          return;
    auto& known = candidates[&second];
    if (known.size() < mostCandidates && !llvm::is_contained(known, &first))
      known.push_back(&first);
  }

  void visit(const ir::Node& node) {
    regions.classes(true).hash(node);
    bool isAligned = true;
    for (const ir::Value& result : node.results()) {
      if (result.isAbsent())
        continue;
      if (!regions.shared().isOfBefore(regions.classes(true).of(result)))
        seek(result);
      const ValueClass own = regions.classes(true).of(result);
      regions.shared().noteAfter(own);
      isAligned &= regions.shared().isOfBefore(own);
      if (auto at = outputsAt.find(&result); at != outputsAt.end())
        for (size_t i : at->second)
          decide(outputs[i]);
    }
    report.nodesAligned += isAligned;
  }

  /// Compares a value with its candidates.
  void seek(const ir::Value& value) {
    auto known = candidates.find(&value);
    if (known == candidates.end() || differentInARow > mostInARow)
      return;
    for (const ir::Value* candidate : known->second) {
      Obligation obligation = describe(*candidate, value);
      for (Frontier frontier :
           {Frontier::Tables, Frontier::Shared, Frontier::Weights, Frontier::Activations,
            Frontier::ComputedTables, Frontier::Computed}) {
        const Regions::Question question{candidate, &value, nullptr, /*isHasty=*/true};
        Answer answer = regions.compare(question, frontier, obligation);
        if (frontier != Frontier::Weights && frontier != Frontier::Activations)
          answer = regions.compareMatched(question, frontier, answer, fewRounds, obligation);
        if (regions.last().isExhausted)
          break;
        // What follows from lengths can be compared without them.
        if (answer == Answer::Equal && !mayBeReal(value) && !sizeGap().empty())
          return;
        if (answer == Answer::Equal && regions.last().hasOrderedPatterns)
          continue; // tables that are computed need no order
        if (answer == Answer::Equal) {
          conclude(obligation);
          regions.merge(*candidate, value);
          report.obligations.push_back(std::move(obligation));
          return;
        }
        if (answer == Answer::Different && obligation.place.empty())
          break; // shapes do not depend on where the evaluation stops
        if (answer != Answer::Different || frontier != Frontier::Computed)
          continue;
        ++differentInARow;
        if (firstDifference.empty() && !obligation.place.empty())
          firstDifference = obligation.node;
      }
    }
  }

  Obligation describe(const ir::Value& first, const ir::Value& second) const {
    Obligation obligation;
    obligation.before = first.name().str();
    obligation.after = second.name().str();
    obligation.node = second.producer() ? second.producer()->describe() : "a graph input";
    return obligation;
  }

  static bool mayBeReal(const ir::Value& value) {
    const ir::ElementType type = value.type().elementType();
    return type == ir::ElementType::Undefined || ir::isFloatingPoint(type);
  }

  /// Why the last comparison does not cover all sizes; empty if it does.
  std::string sizeGap() {
    std::string gap = regions.last().gap;
    if (gap.empty())
      gap =
          sizeArgumentGap(feeding.before().model, regions.last().nodes[false], covered, operators);
    if (gap.empty())
      gap = sizeArgumentGap(feeding.after().model, regions.last().nodes[true], covered, operators);
    return gap;
  }

  /// Verdict of an equality that evaluation has shown.
  void conclude(Obligation& obligation) {
    differentInARow = 0;
    const std::string gap = sizeGap();
    if (!gap.empty() && firstGap.empty())
      firstGap = obligation.node + ": " + gap;
    obligation.verdict = std::max(gap.empty() ? Verdict::ProvedReduced : Verdict::Tested, weakest);
    weakest = obligation.verdict;
    obligation.reason = gap.empty() ? firstGap : gap;
  }

  void decide(const Output& output) {
    Obligation obligation;
    obligation.before = output.before ? output.before->name().str() : "";
    obligation.after = output.after->name().str();
    obligation.node =
        output.after->producer() ? output.after->producer()->describe() : "a graph input";
    obligation.isOutput = true;
    if (!output.obstacle.empty()) {
      obligation.reason = output.obstacle;
    } else if (!output.pair && haveOtherTypes(*output.before, *output.after)) {
      obligation.verdict = Verdict::Different;
      obligation.reason =
          "element types are " + typeText(*output.before) + " and " + typeText(*output.after);
    } else if ((!output.pair || isSameForm(*output.pair)) &&
               isAligned(*output.before, *output.after)) {
      obligation.verdict = weakest;
      obligation.reason = firstGap;
    } else {
      compareOutput(output, obligation);
    }
    if (output.hasOtherName && obligation.verdict <= Verdict::Tested) {
      obligation.verdict = Verdict::Skipped;
      obligation.reason = "the first model returns another value by this name";
    }
    report.obligations.push_back(std::move(obligation));
  }

  static std::string typeText(const ir::Value& value) {
    return ir::onnxName(value.type().elementType()).str();
  }

  static bool haveOtherTypes(const ir::Value& before, const ir::Value& after) {
    const ir::ElementType first = before.type().elementType(), second = after.type().elementType();
    constexpr auto unknown = ir::ElementType::Undefined;
    return first != unknown && second != unknown && first != second;
  }

  static bool isSameForm(const Feeding::Pair& pair) {
    return pair.before && pair.content == RowContent::Numbers &&
           pair.before->storage == pair.after->storage && !pair.after->part &&
           pair.after->permutation.empty();
  }

  /// Tries smaller and smaller frontiers. Any that shows equality is a proof; a difference is real
  /// if a frontier of proved values shows it, too.
  void compareOutput(const Output& output, Obligation& obligation) {
    bool isDifferent = false, isDecided = false;
    Obligation difference;
    for (Frontier frontier :
         {Frontier::Tables, Frontier::Shared, Frontier::Weights, Frontier::Activations,
          Frontier::ComputedTables, Frontier::Computed, Frontier::Compared, Frontier::Inputs}) {
      Obligation attempt = obligation;
      const Regions::Question question{output.before, output.after, output.pair};
      Answer answer = regions.compare(question, frontier, attempt);
      if (frontier == Frontier::ComputedTables || frontier == Frontier::Computed ||
          frontier == Frontier::Compared)
        answer = regions.compareMatched(question, frontier, answer, mostRounds, attempt);
      if (answer == Answer::Equal) {
        obligation = attempt;
        conclude(obligation);
        return;
      }
      if (answer == Answer::Different) {
        isDifferent = true;
        isDecided |= frontier == Frontier::Compared || frontier == Frontier::Inputs;
        difference = attempt;
      } else if (obligation.reason.empty()) {
        obligation.reason = attempt.reason;
      }
      if (regions.last().isExhausted)
        break;
    }
    if (isDifferent && isDecided) {
      obligation = difference;
      obligation.verdict = Verdict::Different;
      if (!firstDifference.empty())
        obligation.node = firstDifference;
    }
  }

  CheckReport report;
  RuleTable rules;
  Feeding feeding;
  std::set<int64_t> covered;
  meaning::OperatorFacts operators;
  std::vector<Step> scope;
  Regions regions;
  std::vector<Output> outputs;
  llvm::DenseMap<const ir::Value*, llvm::SmallVector<size_t, 1>> outputsAt; ///< places in `outputs`
  llvm::DenseMap<const ir::Value*, std::vector<const ir::Value*>> candidates;
  /// The weakest verdict of all regions so far, and the first reason that one is not proved.
  Verdict weakest = Verdict::Proved;
  std::string firstGap;
  std::string firstDifference;
  size_t differentInARow = 0; ///< pairs that were compared since the last equal one
};

} // namespace

CheckReport checkModels(DrivenModel before, DrivenModel after, unsigned seed, int64_t mostWork) {
  return Checker(before, after, seed, mostWork).run();
}

} // namespace kvopt::check
