// Rules are sound: a graph computes the same before and after each rule, over variations of the
// graphs that test the rules, and of those in instances/. Near misses are among them: a rule that
// matches one of them because a condition is wrong computes something else.
#include "ir/shapes/shape_inference.h"
#include "ir/text/printer.h"
#include "ir/text/reader.h"
#include "ir/verify/verifier.h"
#include "passes/pattern/rule_driver.h"
#include "tests/equivalence/rules/compared_run.h"
#include "tests/equivalence/rules/graph_variation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace pattern;

namespace {

/// A difference that is not a wrong number. `text` is a part of it.
struct Accepted {
  std::string_view rule;
  std::string_view text;
  std::string_view reason;
  bool onlyEmpty = false; ///< accepted only at sizes of which one is 0
};
constexpr Accepted accepted[] = {
    {"raise-spelled-append", "does not fit",
     "the operator refuses rows beyond the buffer, which a scatter of a mask leaves out"},
    {"select-row-to-scatter", "is out of range",
     "the operator refuses a position beyond the rows, which no row of a selection equals"},
    {"einsum-to-matmul", "inner extents",
     "the product refuses two extents of one letter, of which Einsum repeats the one that is 1"},
    {"raise-group-query-attention", "shapes [0] and",
     "positions are added to the lengths of rows, of which an empty batch has none", true},
    {"solve-reshaped-extent", "other extents",
     "the number of elements does not determine an extent of an empty tensor", true},
};

/// A graph of the tests of rules.
struct RuleGraph {
  std::string file; ///< name without folder
  std::string text;

  /// Whether the graph is a test of the rule.
  bool isOf(llvm::StringRef rule) const {
    std::string stem = rule.str();
    std::replace(stem.begin(), stem.end(), '-', '_');
    return file.compare(0, stem.size(), stem) == 0;
  }

  /// Rules that its test applies together with `rule`: some rules match only what others write.
  std::vector<const RuleRegistry::Entry*> othersThan(llvm::StringRef rule,
                                                     const RuleRegistry& rules) const {
    std::vector<const RuleRegistry::Entry*> others;
    const llvm::StringRef list =
        llvm::StringRef(text).split("apply-rules{rules=").second.split('}').first;
    llvm::SmallVector<llvm::StringRef, 4> names;
    list.split(names, '+');
    for (llvm::StringRef name : names)
      if (const RuleRegistry::Entry* entry = rules.find(name); entry && name != rule)
        others.push_back(entry);
    return others;
  }
};

std::vector<RuleGraph> ruleGraphs() {
  std::vector<RuleGraph> graphs;
  for (const char* folder : {"/tests/passes/rules", "/tests/equivalence/rules/instances"})
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(std::string(KVOPT_SOURCE_DIR) + folder))
      if (entry.path().extension() == ".onnxtxt") {
        std::ifstream stream(entry.path());
        std::ostringstream text;
        text << stream.rdbuf();
        graphs.push_back({entry.path().filename().string(), text.str()});
      }
  std::sort(graphs.begin(), graphs.end(),
            [](const RuleGraph& a, const RuleGraph& b) { return a.file < b.file; });
  return graphs;
}

std::set<std::string> symbolsOf(const Graph& graph) {
  std::set<std::string> symbols;
  for (const std::unique_ptr<Value>& input : graph.inputs())
    if (input->type().hasRank())
      for (const Dim& dim : input->type().shape())
        for (std::string& symbol : dim.symbols())
          symbols.insert(std::move(symbol));
  return symbols;
}

constexpr int64_t different[] = {2, 3, 5, 4, 7, 6, 8, 9};

/// Sizes of graphs that declare one extent as the sum of another and one token.
std::vector<SymbolValues> sizesOfOneToken(const Graph& graph) {
  const std::set<std::string> symbols = symbolsOf(graph);
  std::vector<SymbolValues> sizes;
  for (const std::string& total : symbols)
    for (const std::string& past : symbols)
      if (total != past) {
        SymbolValues values;
        size_t index = 0;
        for (const std::string& symbol : symbols)
          values[symbol] = different[index++ % std::size(different)];
        values[total] = values[past] + 1;
        sizes.push_back(std::move(values));
      }
  return sizes;
}

/// Sizes at which instances run: all different, one token, no past, all equal, batches of one.
std::vector<SymbolValues> sizesFor(const Graph& graph) {
  constexpr int64_t others[] = {1, 2, 0};
  const std::set<std::string> symbols = symbolsOf(graph);
  std::vector<SymbolValues> sizes;
  const auto add = [&](auto sizeOf) {
    SymbolValues values;
    size_t index = 0;
    for (const std::string& symbol : symbols)
      values[symbol] = sizeOf(index++);
    sizes.push_back(std::move(values));
  };
  add([&](size_t index) { return different[index % std::size(different)]; });
  for (int64_t same : {int64_t{1}, int64_t{3}})
    add([&](size_t) { return same; });
  // One symbol at a time is small.
  for (size_t small = 0; small < symbols.size(); ++small)
    for (int64_t size : others)
      add([&](size_t index) {
        return index == small ? size : different[index % std::size(different)];
      });
  return sizes;
}

/// Bound of the number of terms of the longest sum. Symbols are at most 16.
double mostTerms(const Graph& graph) {
  double longest = 16;
  for (const Node& node : graph.nodes())
    for (const Value& result : node.results())
      if (result.type().hasRank())
        for (const Dim& dim : result.type().shape())
          longest = std::max(longest, static_cast<double>(dim.value().value_or(0)));
  return longest;
}

/// Counts of one rule.
struct RuleRuns {
  size_t applied = 0; ///< graphs to which the rule was applied
  size_t compared = 0;
  size_t failed = 0;
  std::string example; ///< of a failure
  size_t accepted = 0;
  std::string notRun; ///< reason that an instance was not run
};

class RuleSoundness : public testing::TestWithParam<std::string> {
protected:
  /// The varied graph; null if it is not valid. Variation 0 is the graph itself, 1 has commuted
  /// operands, 2 and 3 have other element types, and others have one change or random ones.
  std::unique_ptr<Model> varied(const RuleRegistry::Entry& rule, const RuleGraph& graph,
                                unsigned variation) const {
    // Variations 2 and 3 have another element type; constants that need float32 make them invalid.
    std::string text = graph.text;
    for (size_t at = text.find("float["); variation / 2 == 1 && at != std::string::npos;
         at = text.find("float[", at + 8))
      text.replace(at, 6, variation == 2 ? "float16[" : "double[");
    auto model = readText(text, toolkit.ops, graph.file);
    if (!model) {
      llvm::consumeError(model.takeError());
      return nullptr;
    }
    // Passes import the domains of operators that rules create.
    (*model)->opsets.try_emplace(kvoptDomain, 1);
    (*model)->opsets.try_emplace("com.microsoft", 1);
    if (variation == 1)
      GraphVariation::commute((*model)->graph());
    if (variation > 3) {
      // Declared types of results may no longer be right.
      for (Node& node : (*model)->graph().nodes())
        for (Value& result : node.results())
          result.setType(TensorType());
      GraphVariation((*model)->graph(), variation * 7919).vary(variation - 4);
    }
    llvm::Error error = verify(**model);
    if (!error)
      error = inferShapes((*model)->graph());
    if (!error && graph.isOf(rule.rule->name()))
      if (const auto others = graph.othersThan(rule.rule->name(), toolkit.rules); !others.empty()) {
        Journal journal;
        if (auto result = applyRulesWithSubgraphs((*model)->graph(), others, journal); !result)
          error = result.takeError();
        else
          error = inferShapes((*model)->graph());
      }
    const bool isValid = !error;
    llvm::consumeError(std::move(error));
    return isValid ? std::move(*model) : nullptr;
  }

  /// Applies the rule to a graph and compares both at several sizes.
  void check(const RuleRegistry::Entry& entry, const RuleGraph& graph, unsigned variation,
             RuleRuns& runs) const {
    auto after = varied(entry, graph, variation);
    if (!after)
      return;
    Journal journal;
    auto result = applyRulesWithSubgraphs(after->graph(), {&entry}, journal);
    if (!result) {
      // A rule that undoes itself on a varied graph is reported by the driver.
      llvm::consumeError(result.takeError());
      return;
    }
    if (!result->changed())
      return;
    const auto before = varied(entry, graph, variation);
    ++runs.applied;
    llvm::consumeError(inferShapes(after->graph()));
    const size_t comparedBefore = runs.compared;
    const auto compareAll = [&](const std::vector<SymbolValues>& sizes) {
      for (size_t size = 0; size < sizes.size(); ++size)
        for (int64_t most : {int64_t{1}, int64_t{3}})
          compare(entry, graph, *before, *after, sizes[size], most,
                  static_cast<unsigned>(size) + variation, runs);
    };
    compareAll(sizesFor(before->graph()));
    if (runs.compared == comparedBefore)
      compareAll(sizesOfOneToken(before->graph()));
  }

  void compare(const RuleRegistry::Entry& entry, const RuleGraph& graph, const Model& before,
               const Model& after, const SymbolValues& symbols, int64_t mostInteger, unsigned seed,
               RuleRuns& runs) const {
    RandomInputs inputs;
    if (!RandomInputs::make(before.graph(), symbols, mostInteger, seed, inputs))
      return;
    Diagnostic why;
    const auto wanted = outputsOf(before, inputs, toolkit, why);
    if (!wanted) {
      runs.notRun = why.str();
      return;
    }
    const auto found = outputsOf(after, inputs, toolkit, why);
    std::string difference;
    bool hasNan = false;
    if (!found) {
      // The runtime need not have kernels for every operator and type that passes know.
      if (why.kind == Diagnostic::Kind::Unsupported) {
        runs.notRun = why.str();
        return;
      }
      difference = "fails: " + why.str();
    } else {
      for (size_t i = 0; i < wanted->size() && difference.empty(); ++i) {
        difference =
            differenceOf((*wanted)[i].view, (*found)[i].view, mostTerms(before.graph()), hasNan);
        if (!difference.empty())
          difference = after.graph().outputs()[i]->name().str() + ": " + difference;
      }
    }
    const bool isEmpty = std::any_of(symbols.begin(), symbols.end(),
                                     [](const auto& symbol) { return symbol.second == 0; });
    for (const Accepted& each : accepted)
      if (each.rule == std::string_view(entry.rule->name()) && (isEmpty || !each.onlyEmpty) &&
          difference.find(each.text) != std::string::npos) {
        ++runs.accepted;
        return;
      }
    ++runs.compared;
    if (difference.empty())
      return;
    if (runs.failed++ == 0) {
      std::ostringstream text;
      text << entry.rule->name().str() << ", " << graph.file << ": " << difference << "\nsizes:";
      for (const auto& symbol : symbols)
        text << " " << symbol.first().str() << "=" << symbol.second;
      text << "\nbefore:\n"
           << printText(before.graph()) << "\nafter:\n"
           << printText(after.graph());
      runs.example = text.str();
    }
  }

  Toolkit toolkit;
};

constexpr unsigned ownVariations = 48;

std::vector<std::string> ruleNames() {
  RuleRegistry rules;
  pattern::registerAll(rules);
  std::vector<std::string> names;
  for (const RuleRegistry::Entry& entry : rules.all())
    names.push_back(entry.rule->name().str());
  return names;
}

TEST_P(RuleSoundness, GraphsComputeTheSameBeforeAndAfter) {
  const std::string& name = GetParam();
  const RuleRegistry::Entry* entry = toolkit.rules.find(name);
  ASSERT_TRUE(entry);
  const std::vector<RuleGraph> graphs = ruleGraphs();
  ASSERT_GT(graphs.size(), 60u);
  RuleRuns runs;
  for (const RuleGraph& graph : graphs)
    for (unsigned variation = 0; variation < (graph.isOf(name) ? ownVariations : 1); ++variation)
      check(*entry, graph, variation, runs);
  std::cout << name << ": applied to " << runs.applied << " graphs, " << runs.compared
            << " runs compared, " << runs.accepted << " differences accepted\n";
  EXPECT_EQ(runs.failed, 0u) << runs.failed << " of " << runs.compared
                             << " runs differ; first: " << runs.example;
  EXPECT_GT(runs.compared, 20u) << name << ": " << runs.notRun;
}

INSTANTIATE_TEST_SUITE_P(Rules, RuleSoundness, testing::ValuesIn(ruleNames()),
                         [](const auto& parameter) {
                           std::string name = parameter.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

} // namespace
} // namespace kvopt
