// The checker calls no two random graphs equal that compute different numbers in its scope.
//
//   KVOPT_PAIRS_SEED=N    the first seed
//   KVOPT_PAIRS_COUNT=N   number of pairs
//   KVOPT_PAIRS_SAVE=DIR  folder for the models of pairs that are called equal and differ
#include "check/checker.h"
#include "ir/onnx/export.h"
#include "ir/text/printer.h"
#include "ir/verify/verifier.h"
#include "passes/pattern/rule_driver.h"
#include "tests/equivalence/pairs/float_trace.h"
#include "tests/equivalence/pairs/pair_run.h"
#include "tests/equivalence/pairs/random_graph.h"
#include "tests/equivalence/pairs/random_rewrite.h"
#include "tests/equivalence/rules/graph_variation.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <sstream>

namespace kvopt::pairs {
namespace {

constexpr uint64_t pairsByDefault = 400;

uint64_t numberIn(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

/// Counts of pairs.
struct Counts {
  std::array<uint64_t, 5> verdicts{}; ///< by check::Verdict
  uint64_t respelled = 0;             ///< pairs that compute the same
  uint64_t respelledDifferent = 0;    ///< those of them that the checker calls different
  uint64_t run = 0;                   ///< pairs called equal that ran in a step
  uint64_t steps = 0;                 ///< steps in which they ran
  uint64_t rounded = 0;               ///< pairs that differ for some random numbers only
  uint64_t ofFloats = 0;              ///< pairs that differ only where floats decide
  uint64_t otherTypes = 0;            ///< pairs with outputs of other element types
  uint64_t refused = 0;               ///< pairs whose second model the runtime accepts in no step
  uint64_t wrong = 0;                 ///< pairs called equal that differ

  std::string text() const {
    std::ostringstream out;
    for (size_t i = 0; i < verdicts.size(); ++i)
      out << (i ? ", " : "") << verdicts[i] << ' ' << check::verdictWord(check::Verdict(i));
    out << "; " << respelled << " only respelled, " << respelledDifferent
        << " of them called different; " << run << " called equal and run in " << steps
        << " steps; " << rounded << " differ by rounding, " << ofFloats << " where floats decide, "
        << otherTypes << " have outputs of other types, " << refused << " do not run; " << wrong
        << " wrong";
    return out.str();
  }
};

class RandomPairs : public testing::Test {
protected:
  /// Makes the second model of a pair from a copy of the first; whether it computes the same by
  /// construction, or nullopt if it is not valid.
  std::optional<bool> rewrite(ir::Model& model, uint64_t seed) {
    Dice dice(seed ^ 0x5eed);
    bool computesTheSame = true;
    ir::Graph& graph = model.graph();
    if (dice.oneIn(4))
      normalize(graph);
    RandomRewrite rewrite(graph, dice);
    for (size_t changes = dice.below(4); changes > 0; --changes)
      rewrite.respell();
    switch (dice.below(4)) {
    case 0:
      break;
    case 1:
      GraphVariation(graph, static_cast<unsigned>(seed)).vary(1);
      computesTheSame = false;
      break;
    default:
      for (size_t changes = 1 + dice.below(2); changes > 0; --changes)
        computesTheSame &= !rewrite.change();
    }
    graph.eraseDeadNodes();
    for (ir::Node& node : graph.nodes())
      for (ir::Value& result : node.results())
        result.setType(ir::TensorType());
    llvm::Error error = ir::inferShapes(graph);
    if (!error)
      error = ir::verify(model);
    bool isValid = !error;
    llvm::consumeError(std::move(error));
    for (const ir::Value* output : graph.outputs())
      isValid = isValid && output->type().hasRank();
    return isValid ? std::optional(computesTheSame) : std::nullopt;
  }

  void normalize(ir::Graph& graph) {
    std::vector<const pattern::RuleRegistry::Entry*> rules;
    for (const pattern::RuleRegistry::Entry& entry : toolkit.rules.all())
      if (entry.rule->group() == pattern::RuleGroup::Normalize)
        rules.push_back(&entry);
    pattern::Journal journal;
    if (auto result = pattern::applyRulesWithSubgraphs(graph, rules, journal); !result)
      llvm::consumeError(result.takeError());
    llvm::consumeError(ir::inferShapes(graph));
  }

  /// The checker is about numbers: it does not compare the types in which they are returned.
  static bool haveSameTypes(const ir::Model& before, const ir::Model& after) {
    for (const ir::Value* output : before.graph().outputs())
      if (const ir::Value* other = after.graph().findValue(output->name()))
        if (other->type().elementType() != output->type().elementType())
          return false;
    return true;
  }

  void judge(uint64_t seed, Counts& counts) {
    const auto before = randomModel(seed, toolkit.ops);
    const auto after = randomModel(seed, toolkit.ops);
    const auto computesTheSame = rewrite(*after, seed);
    if (!computesTheSame)
      return;
    const check::CheckReport report =
        check::checkModels({*before, manifest}, {*after, manifest}, static_cast<unsigned>(seed));
    const check::Verdict verdict = report.verdict();
    ++counts.verdicts[size_t(verdict)];
    counts.respelled += *computesTheSame;
    counts.respelledDifferent += *computesTheSame && verdict == check::Verdict::Different;
    if (verdict > check::Verdict::Tested)
      return;
    if (!haveSameTypes(*before, *after)) {
      ++counts.otherTypes;
      return;
    }
    PairRun run(*before, *after, manifest, toolkit);
    if (!run.canRun())
      return;
    std::string difference;
    bool isOfFloats = false;
    for (const check::Step& step : report.scope) {
      difference = run.difference(step, static_cast<unsigned>(seed));
      if (difference.empty())
        continue;
      difference = step.text() + ": " + difference;
      if (!isCertain(run, step, static_cast<unsigned>(seed))) {
        ++counts.rounded;
        return;
      }
      if (!isDecidedByFloats(seed, run, step))
        break;
      difference.clear();
      isOfFloats = true;
    }
    counts.ofFloats += isOfFloats && difference.empty();
    counts.run += run.runs > 0;
    counts.steps += run.runs;
    // Operands of unequal types: an engine refuses such a model as a whole.
    if (run.failures == run.runs)
      counts.refused += run.runs > 0;
    else if (difference.empty() && run.failures > 0)
      difference = "some steps: the second model fails: " + run.failure;
    if (difference.empty())
      return;
    ++counts.wrong;
    save(*before, seed, "before");
    save(*after, seed, "after");
    ADD_FAILURE() << "seed " << seed << " is " << check::verdictWord(verdict) << ", but in "
                  << difference << "\n"
                  << ir::printText(before->graph()) << ir::printText(after->graph());
  }

  /// Writes a model of a pair to the folder that is asked for.
  void save(const ir::Model& model, uint64_t seed, llvm::StringRef side) {
    if (const char* folder = std::getenv("KVOPT_PAIRS_SAVE"))
      llvm::consumeError(ir::exportModel(model, std::string(folder) + "/" + std::to_string(seed) +
                                                    "-" + side.str() + ".onnx"));
  }

  /// Whether most other numbers show a difference in the step, too.
  static bool isCertain(PairRun& run, const check::Step& step, unsigned seed) {
    constexpr unsigned others = 4;
    unsigned differ = 0;
    for (unsigned i = 1; i <= others; ++i)
      differ += !run.difference(step, seed + 7919 * i).empty();
    return 2 * differ >= others;
  }

  /// Whether comparisons within rounding, or the range of floats, decide what one of the models
  /// computes in a step.
  bool isDecidedByFloats(uint64_t seed, PairRun& run, const check::Step& step) {
    const auto before = randomModel(seed, toolkit.ops);
    const auto after = randomModel(seed, toolkit.ops);
    rewrite(*after, seed);
    const auto inputs = run.inputs(step, static_cast<unsigned>(seed), 0);
    return FloatTrace(*before, toolkit).isDecidedByFloats(inputs->views) ||
           FloatTrace(*after, toolkit).isDecidedByFloats(inputs->views);
  }

  driver::Toolkit toolkit;
  const ir::Manifest manifest = decoderManifest();
};

TEST_F(RandomPairs, EqualOnesComputeTheSame) {
  const uint64_t seed = numberIn("KVOPT_PAIRS_SEED", 1);
  const uint64_t count = numberIn("KVOPT_PAIRS_COUNT", pairsByDefault);
  const auto start = std::chrono::steady_clock::now();
  Counts counts;
  for (uint64_t i = 0; i < count; ++i)
    judge(seed + i, counts);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::cout << count << " pairs in " << seconds.count() << " s: " << counts.text() << '\n';
  EXPECT_EQ(counts.wrong, 0u);
  EXPECT_LT(counts.respelledDifferent, count / 20);
  EXPECT_GT(counts.run, count / 8);
  EXPECT_GT(counts.verdicts[size_t(check::Verdict::Different)], count / 8);
}

} // namespace
} // namespace kvopt::pairs
