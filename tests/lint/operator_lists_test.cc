// What operators do to elements is said by their definitions in ir/ops: no other file lists them.
#include "ir/op.h"
#include "tests/lint/source_files.h"

#include <regex>
#include <set>

namespace kvopt {
namespace {

/// A file that may list elementwise operators, in that many statements, with the reason.
struct ListException {
  std::string_view path;
  size_t lists;
  std::string_view reason;
};

constexpr ListException listExceptions[] = {
    {"check/alignment/classes.cc", 1, "names operators whose operands are in any order"},
    {"check/rules/functions.cc", 1, "has the rule of each operator"},
    {"check/rules/comparison.cc", 2, "has the rule of each operator"},
    {"check/regions/size_argument.cc", 1, "names operators that compare numbers"},
    {"passes/analysis/evaluation/affine_numbers.cc", 1, "computes each operator's bounds"},
    {"passes/analysis/evaluation/traced_operators.cc", 1, "computes each operator's terms"},
    {"passes/analysis/interface/input_readers.cc", 1, "reads the order that is compared"},
    {"passes/analysis/mask/mask_meaning.cc", 1, "prints each function of mask expressions"},
    {"passes/analysis/mask/mask_reader.cc", 1, "computes functions of single numbers"},
    {"passes/analysis/rotation/form_evaluator.cc", 1, "names what form_operators computes"},
    {"passes/analysis/rotation/form_operators.cc", 1, "computes each operator's forms"},
    {"passes/builders/mask_writer.cc", 2, "writes each function of mask expressions"},
    {"passes/opset/op_history.cc", 1, "lists versions of all operators"},
    {"passes/rules/normalize/fold_scalar_arithmetic.cc", 2, "computes each operator's number"},
    {"passes/rules/normalize/join_score_parts.cc", 1, "names the spellings that it joins"},
    {"runtime/kernels/products/gemm.cc", 1, "computes activations that an attribute names"},
};

/// The names of ONNX's and ONNX Runtime's elementwise operators, without domains.
std::set<std::string> elementwiseNames() {
  ir::OpRegistry registry;
  registerAll(registry);
  std::set<std::string> names = {"Cast", "Identity"};
  for (const ir::OpDef* definition : registry.all())
    if (definition->elementFunction)
      names.insert(definition->name.type().str());
  return names;
}

/// The text without comments.
std::string codeOf(const SourceFile& file) {
  std::string code;
  for (const std::string& line : file.lines())
    code += line.substr(0, line.find("//")) + "\n";
  return code;
}

/// The statements that name more than three elementwise operators, other than to create nodes.
std::vector<std::set<std::string>> listsIn(const std::string& code,
                                           const std::set<std::string>& operators) {
  static const std::regex name("(\\w+\\(\\s*)?\"(?:com\\.microsoft::)?([A-Za-z]+)\"");
  constexpr int mostNamed = 3;
  const std::set<std::string> creations = {"node(", "create(", "createFresh(", "op(",
                                           "commutative("};
  std::vector<std::set<std::string>> lists;
  std::istringstream stream(code);
  for (std::string statement; std::getline(stream, statement, ';');) {
    // The search is slow, and few statements have so many quotes.
    if (std::count(statement.begin(), statement.end(), '"') <= 2 * mostNamed)
      continue;
    std::set<std::string> named;
    for (std::sregex_iterator at(statement.begin(), statement.end(), name), end; at != end; ++at)
      if (operators.count((*at)[2]) != 0 && creations.count((*at)[1]) == 0)
        named.insert((*at)[2]);
    if (static_cast<int>(named.size()) > mostNamed)
      lists.push_back(std::move(named));
  }
  return lists;
}

/// How many lists the file may have.
size_t allowedIn(const SourceFile& file) {
  for (const ListException& exception : listExceptions)
    if (file.path == exception.path)
      return exception.lists;
  return 0;
}

TEST(OperatorLists, FindsLists) {
  const std::set<std::string> names = elementwiseNames();
  const auto count = [&](const char* code) { return listsIn(code, names).size(); };
  EXPECT_EQ(count(R"(return S(x).Cases("Add", "Sub", true).Cases("Mul", "Div", true);)"), 1u);
  EXPECT_EQ(count(R"(const char* all[] = {"Exp", "Log", "Sin", "Cos"}; f("Tan");)"), 1u);
  EXPECT_EQ(count(R"(return n.is("Add") || n.is("Sub") || n.is("Mul") || n.is("Div");)"), 1u);
  EXPECT_EQ(count(R"(return n.is("Add") || n.is("Sub") || n.is("Mul");)"), 0u);
  EXPECT_EQ(count(R"(f("MatMul", "Softmax", "Concat", "Gather", "Slice");)"), 0u);
  EXPECT_EQ(count(R"(build.node("Add", node("Sub", node("Mul", node("Div", x))));)"), 0u);
}

TEST(OperatorLists, OnlyDefinitionsSayWhatIsElementwise) {
  const std::set<std::string> names = elementwiseNames();
  ASSERT_GT(names.size(), 60u);
  size_t found = 0;
  for (const char* folder : {"support", "ir", "check", "passes", "runtime", "driver", "cli", "api"})
    for (const SourceFile& file : readFiles(folder, isSourcePath)) {
      if (file.isIn("ir/ops/"))
        continue;
      const auto lists = listsIn(codeOf(file), names);
      found += lists.size();
      std::string text;
      for (const std::set<std::string>& list : lists)
        for (const std::string& named : list)
          text += " " + named;
      EXPECT_EQ(lists.size(), allowedIn(file))
          << file.path << " lists elementwise operators:" << text
          << "\nAsk elementFunction() instead (ir/elementwise.h).";
    }
  for (const ListException& exception : listExceptions)
    found -= exception.lists;
  EXPECT_EQ(found, 0u) << "an exception is of a file that is not there";
}

} // namespace
} // namespace kvopt
