// Every table that says what an operator computes says the same as its kernel: definitions (in
// meaning/operators), shape rules with
// fixed extents ("shape") and with symbols ("symbols"), rules of the checker on known numbers
// ("check"), on elements of its fields ("fields") and on shapes alone ("hollow"), and evaluation at
// small sizes of numbers ("numbers") and of unknown elements ("forms").
//
// Instances are random. By hand, the environment says how many, which ones, and what is printed:
//   KVOPT_DIFFERENTIAL_COUNT=5000 KVOPT_DIFFERENTIAL_SEED=7 KVOPT_DIFFERENTIAL_ONLY=Slice,Pad
//   KVOPT_DIFFERENTIAL_MATRIX=1     prints how many instances are equal in each table
//   KVOPT_DIFFERENTIAL_REASONS=1    prints why tables do not know an instance, too
//   KVOPT_DIFFERENTIAL_WRITE=1      writes answers.txt anew
//
// A new operator is an entry of one of the families; a new table is an adapter in tables.cc.
// answers.txt has the number of instances that each table knows, so that none is lost silently.
#include "check/arithmetic/call.h"
#include "runtime/exec/kernel.h"
#include "support/diagnostic.h"
#include "support/format.h"
#include "tests/differential/operators.h"
#include "tests/differential/tables.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <set>

namespace kvopt::differential {
namespace {

std::string settingOf(const char* name, const char* otherwise) {
  const char* written = std::getenv(name);
  return written ? written : otherwise;
}

uint64_t numberOf(const char* name, uint64_t otherwise) {
  return std::stoull(settingOf(name, std::to_string(otherwise).c_str()));
}

constexpr uint64_t usualCount = 600, usualSeed = 1;

std::vector<Operator> allOperators() {
  std::vector<Operator> all;
  for (llvm::ArrayRef<Operator> family :
       {elementwiseOperators(), activationOperators(), movementOperators(), rangeOperators(),
        indexOperators(), reductionOperators(), productOperators(), layerOperators()})
    all.insert(all.end(), family.begin(), family.end());
  return all;
}

/// Verdicts of one table on the instances of one operator.
struct Cell {
  unsigned equal = 0, different = 0, notThere = 0;
  std::map<std::string, unsigned> reasons;
};

/// Verdicts of all tables, after the kernel's, on the instances of one operator.
using Row = std::map<std::string, Cell>;

class Comparison {
public:
  explicit Comparison(const Operator& compared) : op(compared) {}

  void add(uint64_t seed) {
    Dice dice(seed);
    const Instance instance = op.make(op.name, dice);
    std::vector<Numbers> expected;
    if (auto results = kernelResults(instance)) {
      expected = std::move(*results);
    } else {
      const std::string why = takeDiagnostic(results.takeError()).str();
      EXPECT_NE(why.find("the runtime has no kernel"), std::string::npos)
          << why << "\n  seed " << seed << ", " << textOf(instance);
      note("kernel", Verdict::notThere(why), instance, seed);
    }
    if (!expected.empty())
      note("kernel", Verdict::of(""), instance, seed);
    else
      expected = evaluatedResults(instance);
    if (expected.empty())
      expected = checkedResults(instance);
    const bool isItself = expected.empty();
    if (isItself)
      expected = definedResults(instance);
    if (expected.empty())
      return;
    for (const Table& table : tables()) {
      Dice own(seed + 1);
      if (!isItself || table.compare != compareDefinitions)
        note(table.name, table.compare(instance, expected, own), instance, seed);
    }
  }

  const Row& row() const { return cells; }

private:
  void note(const char* table, const Verdict& verdict, const Instance& instance, uint64_t seed) {
    Cell& cell = cells[table];
    switch (verdict.kind) {
    case Verdict::Kind::Equal:
      ++cell.equal;
      return;
    case Verdict::Kind::NotThere:
      ++cell.notThere;
      ++cell.reasons[verdict.text.substr(0, verdict.text.find('\n'))];
      return;
    case Verdict::Kind::Different:
      constexpr unsigned mostShown = 2;
      if (cell.different++ < mostShown)
        ADD_FAILURE() << table << ": " << verdict.text << "\n  seed " << seed << ", "
                      << textOf(instance);
    }
  }

  const Operator& op;
  Row cells;
};

/// A line of answers.txt: how many instances the kernel and each table know.
std::string answersOf(const char* op, const Row& row) {
  std::string line = std::string(op) + ":";
  auto add = [&](const char* table) {
    const auto found = row.find(table);
    if (found != row.end() && found->second.equal + found->second.different != 0)
      line += formatted(" {} {}", table, found->second.equal + found->second.different);
  };
  add("kernel");
  for (const Table& table : tables())
    add(table.name);
  return line;
}

void print(const std::map<std::string, Row>& matrix, bool withReasons) {
  std::cout << formatted("{:<20}{:>16}", "equal/different/no", "kernel");
  for (const Table& table : tables())
    std::cout << formatted("{:>16}", table.name);
  std::cout << '\n';
  for (const auto& entry : matrix) {
    const Row& row = entry.second;
    std::cout << formatted("{:<20}", entry.first);
    auto text = [&](const char* table) {
      const auto found = row.find(table);
      const Cell cell = found == row.end() ? Cell() : found->second;
      return formatted("{}/{}/{}", cell.equal, cell.different, cell.notThere);
    };
    std::cout << formatted("{:>16}", text("kernel"));
    for (const Table& table : tables())
      std::cout << formatted("{:>16}", text(table.name));
    std::cout << '\n';
    for (const auto& [table, cell] : row)
      for (const auto& [reason, count] : cell.reasons)
        if (withReasons)
          std::cout << "    " << table << ", " << count << " times: " << reason << '\n';
  }
}

constexpr const char* answersFile = KVOPT_SOURCE_DIR "/tests/differential/answers.txt";

/// The lines of answers.txt, by operator.
std::map<std::string, std::string> recordedAnswers() {
  std::ifstream file(answersFile);
  std::map<std::string, std::string> answers;
  for (std::string line; std::getline(file, line);)
    answers[line.substr(0, line.find(':'))] = line;
  return answers;
}

TEST(Differential, EveryTableSaysWhatTheKernelComputes) {
  const uint64_t count = numberOf("KVOPT_DIFFERENTIAL_COUNT", usualCount);
  const uint64_t seed = numberOf("KVOPT_DIFFERENTIAL_SEED", usualSeed);
  const std::string only = "," + settingOf("KVOPT_DIFFERENTIAL_ONLY", "") + ",";
  const bool isUsual = count == usualCount && seed == usualSeed;
  const bool writes = !settingOf("KVOPT_DIFFERENTIAL_WRITE", "").empty();
  std::map<std::string, std::string> recorded = recordedAnswers(), answers = recorded;
  std::map<std::string, Row> matrix;
  for (const Operator& op : allOperators()) {
    if (only != ",," && only.find("," + std::string(op.name) + ",") == std::string::npos)
      continue;
    Comparison comparison(op);
    uint64_t first = seed;
    for (const char* letter = op.name; *letter; ++letter)
      first = first * 1000003 + static_cast<unsigned char>(*letter);
    for (uint64_t i = 0; i < count; ++i)
      comparison.add(first + 16 * i);
    answers[op.name] = answersOf(op.name, comparison.row());
    if (isUsual && !writes) {
      EXPECT_EQ(recorded[op.name], answers[op.name])
          << "a line of tests/differential/answers.txt; KVOPT_DIFFERENTIAL_WRITE=1 writes it";
    }
    matrix[op.name] = comparison.row();
  }
  if (isUsual && writes) {
    std::ofstream file(answersFile);
    for (const auto& entry : answers)
      file << entry.second << '\n';
  }
  const bool withReasons = !settingOf("KVOPT_DIFFERENTIAL_REASONS", "").empty();
  if (HasFailure() || withReasons || !settingOf("KVOPT_DIFFERENTIAL_MATRIX", "").empty())
    print(matrix, withReasons);
}

/// Operators that have a kernel or a rule, but no instances: nothing computes their numbers
/// (functions without a kernel), they are no function of operands (constants, graphs in
/// attributes), or tests of their own compare them (attention, recurrences, products of codes).
const std::set<std::string> leftOut = {
    "Attention", "CausalConvWithState", "Constant", "Elu",  "HardSigmoid",   "HardSwish", "If",
    "LeakyRelu", "LinearAttention",     "Loop",     "Mish", "QLinearMatMul", "Scan"};

TEST(Differential, EveryOperatorOfOnnxIsCompared) {
  std::set<std::string> compared = leftOut;
  for (const Operator& op : allOperators())
    EXPECT_TRUE(compared.insert(op.name).second) << op.name << " is listed twice";
  runtime::KernelRegistry kernels;
  registerAll(kernels);
  for (const runtime::Kernel* kernel : kernels.all())
    EXPECT_TRUE(!kernel->op.isOnnx() || compared.count(kernel->op.str())) << kernel->op.str();
  for (const auto& rule : check::allRules())
    EXPECT_TRUE(rule.getKey().contains("::") || compared.count(rule.getKey().str()))
        << rule.getKey().str();
}

} // namespace
} // namespace kvopt::differential
