// Each rule reads all operands and attributes of its operator, or refuses a node that has them.
#include "check/caches/feeding.h"
#include "check/evaluation/operator_contract.h"
#include "check/regions/comparison.h"
#include "tests/check/checked_models.h"

#include "llvm/ADT/StringExtras.h"

#include <set>

namespace kvopt::check {
namespace {

/// A node that its rule evaluates: attributes, and a list of operands that are separated by ';'.
/// An operand is `r 2 3` (numbers of that shape), `i 2 : 0 1` (integers), `b : 1` (a truth), or
/// empty.
struct Sample {
  const char* op;
  const char* attributes;
  const char* operands;
};

constexpr Sample samples[] = {
    {"Add", "", "r 2 3;r 2 3"},
    {"Sub", "", "r 2 3;r 3"},
    {"Mul", "", "r 2 3;r 2 3"},
    {"Div", "", "r 2 3;r 2 3"},
    {"Mod", "", "i 2 : -7 9;i : 4"},
    {"Neg", "", "r 2"},
    {"Reciprocal", "", "r 2"},
    {"Sum", "", "r 2;r 2;r 2"},
    {"Max", "", "r 2;r 2;r 2"},
    {"Min", "", "r 2;r 2;r 2"},
    {"Clip", "", "r 2;r;r"},
    {"Exp", "", "r 2"},
    {"Pow", "", "r 2;r"},
    {"Sqrt", "", "r 2"},
    {"Sin", "", "r 2"},
    {"Cos", "", "r 2"},
    {"Tanh", "", "r 2"},
    {"Erf", "", "r 2"},
    {"Log", "", "r 2"},
    {"Abs", "", "r 2"},
    {"Floor", "", "r 2"},
    {"Ceil", "", "r 2"},
    {"Round", "", "r 2"},
    {"Sign", "", "r 2"},
    {"Relu", "", "r 2"},
    {"Sigmoid", "", "r 2"},
    {"Gelu", "", "r 2"},
    {"Softplus", "", "r 2"},
    {"Elu", "", "r 2"},
    {"HardSigmoid", "", "r 2"},
    {"HardSwish", "", "r 2"},
    {"LeakyRelu", "", "r 2"},
    {"Mish", "", "r 2"},
    {"com.microsoft.Gelu", "", "r 2"},
    {"com.microsoft.FastGelu", "", "r 2;r 2"},
    {"com.microsoft.QuickGelu", "", "r 2"},
    {"com.microsoft.BiasGelu", "", "r 2;r 2"},
    {"com.microsoft.MatMulNBits", "K = 4, N = 3, block_size = 16", "r 2 4;r 3;r 3;r 3;r 4;r 3"},
    {"Where", "", "b 2 : 1 0;r 2;r 2"},
    {"IsNaN", "", "r 2"},
    {"IsInf", "", "x 2"},
    {"Equal", "", "i 2 : 1 2;i 2 : 1 3"},
    {"Not", "", "b : 1"},
    {"Cast", "to = 7", "r 2"},
    {"CastLike", "", "r 2;i : 1"},
    {"Less", "", "i 2 : 1 2;i 2 : 1 3"},
    {"LessOrEqual", "", "i 2 : 1 2;i 2 : 1 3"},
    {"Greater", "", "i 2 : 1 2;i 2 : 1 3"},
    {"GreaterOrEqual", "", "i 2 : 1 2;i 2 : 1 3"},
    {"And", "", "b : 1;b : 1"},
    {"Or", "", "b : 1;b : 1"},
    {"Xor", "", "b : 1;b : 1"},
    {"BitwiseAnd", "", "i : 6;i : 3"},
    {"BitwiseOr", "", "i : 6;i : 3"},
    {"BitwiseXor", "", "i : 6;i : 3"},
    {"MatMul", "", "r 2 3;r 3 2"},
    {"Gemm", "alpha = 2.0, beta = 3.0", "r 2 2;r 2 2;r 2"},
    {"com.microsoft.FusedMatMul", "alpha = 2.0", "r 2 2;r 2 2"},
    {"Einsum", "equation = \"ij,jk->ik\"", "r 2 3;r 3 2"},
    {"Conv", "", "r 1 2 5;r 2 2 3;r 2"},
    {"Shape", "", "r 2 3"},
    {"Size", "", "r 2 3"},
    {"ConstantOfShape", "", "i 2 : 2 3"},
    {"Range", "", "i : 1;i : 7;i : 2"},
    {"Gather", "", "r 3 3;i 2 : 0 2"},
    {"GatherElements", "", "r 2 2;i 2 2 : 0 1 1 1"},
    {"GatherND", "", "r 2 2 2;i 2 1 : 1 0"},
    {"ScatterND", "", "r 3 2;i 1 1 : 1;r 1 2"},
    {"ScatterElements", "", "r 2 2;i 1 2 : 0 1;r 1 2"},
    {"TensorScatter", "", "r 1 1 4 2;r 1 1 1 2;i 1 : 2"},
    {"CumSum", "", "i 2 2 : 1 2 3 4;i : 0"},
    {"OneHot", "", "i 2 : 0 2;i : 3;r 2"},
    {"Identity", "", "r 2"},
    {"Dropout", "", "r 2;r;b : 0"},
    {"Reshape", "", "r 2 3;i 2 : 3 2"},
    {"Flatten", "", "r 2 3 2"},
    {"Transpose", "", "r 2 3"},
    {"Unsqueeze", "", "r 2 3;i 1 : 0"},
    {"Squeeze", "", "r 1 2 1;i 1 : 0"},
    {"Expand", "", "r 2 1;i 2 : 2 3"},
    {"Tile", "", "r 2 1;i 2 : 2 3"},
    {"Concat", "axis = 0", "r 2 2;r 2 2;r 2 2"},
    {"Slice", "", "r 4 4;i 1 : 0;i 1 : 3;i 1 : 1;i 1 : 2"},
    {"Split", "", "r 4 2;i 2 : 1 3"},
    {"Trilu", "", "r 3 3;i : 1"},
    {"Pad", "", "r 2 2;i 2 : 1 1;r;i 1 : 0"},
    {"ReduceSum", "", "r 2 3;i 1 : 1"},
    {"ReduceMean", "", "r 2 3;i 1 : 1"},
    {"ReduceMax", "", "r 2 3;i 1 : 1"},
    {"ReduceMin", "", "r 2 3;i 1 : 1"},
    {"ReduceProd", "", "i 2 3 : 1 2 3 4 5 6;i 1 : 1"},
    {"ReduceSumSquare", "", "r 2 3;i 1 : 1"},
    {"ReduceL2", "", "r 2 3;i 1 : 1"},
    {"Softmax", "", "r 2 3"},
    {"LogSoftmax", "", "r 2 3"},
    {"LayerNormalization", "", "r 2 3;r 3;r 3"},
    {"RMSNormalization", "", "r 2 3;r 3"},
    {"SimplifiedLayerNormalization", "", "r 2 3;r 3"},
    {"com.microsoft.SimplifiedLayerNormalization", "", "r 2 3;r 3"},
    {"com.microsoft.SkipSimplifiedLayerNormalization", "", "r 1 2 3;r 1 2 3;r 3;r 3"},
    {"com.microsoft.SkipLayerNormalization", "", "r 1 2 3;r 1 2 3;r 3;r 3;r 3"},
    {"Attention", "", "r 1 1 2 4;r 1 1 2 4;r 1 1 2 4;r 2 5;r 1 1 3 4;r 1 1 3 4"},
    {"RotaryEmbedding", "", "r 1 1 2 4;r 3 2;r 3 2;i 1 2 : 1 2"},
    {"com.microsoft.RotaryEmbedding", "", "r 1 1 2 4;i 1 2 : 1 2;r 3 2;r 3 2"},
    {"com.microsoft.GroupQueryAttention", "num_heads = 2, kv_num_heads = 1, do_rotary = 1",
     "r 1 2 8;r 1 2 4;r 1 2 4;r 1 1 3 4;r 1 1 3 4;i 1 : 4;i : 5;r 8 2;r 8 2;i 1 2 : 3 4;r 1 2 2 5"},
    {"com.microsoft.MultiHeadAttention", "num_heads = 1",
     "r 1 2 4;r 1 2 4;r 1 2 4;;;r 1 1 2 5;r 1 1 3 4;r 1 1 3 4"},
    {"com.microsoft.PagedAttention", "num_heads = 1, kv_num_heads = 1, do_rotary = 1",
     "r 2 4;r 2 4;r 2 4;r 2 4 1 4;r 2 4 1 4;i 2 : 0 2;i 1 : 1;i 1 2 : 0 1;r 8 2;r 8 2"},
};

/// Attributes with other values, of attributes that a rule reads in some forms only.
constexpr Sample withoutOperands[] = {
    {"Constant", "value_int = 3", ""},
};

Ref operandOf(llvm::StringRef text, uint64_t name, const Field& field) {
  auto [head, contents] = text.split(':');
  llvm::SmallVector<llvm::StringRef, 8> words;
  head.trim().split(words, ' ');
  Extents shape;
  for (llvm::StringRef word : llvm::ArrayRef<llvm::StringRef>(words).drop_front())
    shape.push_back(std::stoll(word.str()));
  if (words[0] == "r")
    return arbitraryTensor(field, name, shape);
  if (words[0] == "x") { // infinities of both signs
    auto result = std::make_shared<Tensor>();
    result->shape = shape;
    result->reals = {{0, 0, Status::MinusInfinity}, {0, 0, Status::PlusInfinity}};
    return result;
  }
  std::vector<int64_t> integers;
  llvm::SmallVector<llvm::StringRef, 8> numbers;
  contents.trim().split(numbers, ' ');
  for (llvm::StringRef number : numbers)
    integers.push_back(std::stoll(number.str()));
  return integerTensor(shape, integers,
                       words[0] == "b" ? ir::ElementType::Bool : ir::ElementType::Int64);
}

/// What a rule makes of a node.
struct Evaluated {
  bool isRefused = false;
  Results results;
};

/// A sample as a node.
class SampleNode {
public:
  SampleNode(const Sample& sample, const std::string& attributes, Arithmetic& shared)
      : math(shared) {
    llvm::SmallVector<llvm::StringRef, 12> texts;
    llvm::StringRef(sample.operands).split(texts, ';');
    if (llvm::StringRef(sample.operands).empty())
      texts.clear();
    std::string inputs, names;
    for (size_t i = 0; i < texts.size(); ++i) {
      const std::string name = "a" + std::to_string(i);
      values.push_back(texts[i].empty() ? nullptr : operandOf(texts[i], i + 1, math.field));
      names += (i ? ", " : "") + (texts[i].empty() ? std::string("\"\"") : name);
      inputs += texts[i].empty() ? "" : (inputs.empty() ? "float " : ", float ") + name;
    }
    const std::string written = attributes.empty() ? "" : "<" + attributes + "> ";
    model = read("<ir_version: 10, opset_import: [\"\" : 24, \"com.microsoft\" : 1]>\ng (" +
                 inputs + ") => (o)\n{\n  o = " + std::string(sample.op) + " " + written + "(" +
                 names + ")\n}\n");
  }

  const ir::Node& node() const { return *model->graph().nodes().begin(); }

  Evaluated evaluate() {
    Call call(node(), nullptr, values, math);
    const RuleTable rules = allRules();
    Evaluated made;
    made.results = rules.lookup(node().op().str())(call);
    made.isRefused = made.results.empty() || !unreadPart(call).empty();
    failure = call.failure.empty() ? unreadPart(call) : call.failure;
    return made;
  }
  bool isNeutralOperand(unsigned operand) {
    return isNeutral(Call(node(), nullptr, values, math), operand);
  }
  bool isNeutralAttribute(llvm::StringRef name) {
    return isNeutral(Call(node(), nullptr, values, math), name);
  }

  std::unique_ptr<ir::Model> model;
  llvm::SmallVector<Ref, 16> values;
  std::string failure;

private:
  Arithmetic& math;
};

bool areSame(const Results& first, const Results& second, Arithmetic& math) {
  if (first.size() != second.size())
    return false;
  for (size_t i = 0; i < first.size(); ++i) {
    Evidence evidence;
    Ref pattern;
    if (!first[i] != !second[i])
      return false;
    if (first[i] &&
        compareElements(first[i], second[i], false, math, evidence, pattern) != Answer::Equal)
      return false;
  }
  return true;
}

/// Whether an operator does not depend on which numbers its operands are.
bool readsNoNumber(llvm::StringRef op) {
  static constexpr llvm::StringLiteral names[] = {"Shape", "Size", "IsNaN", "IsInf", "CastLike"};
  return llvm::is_contained(names, op);
}

/// Another value of an attribute, as text; empty if it has no default to differ from.
std::string otherValue(const ir::FormalAttribute& formal) {
  if (!formal.defaultValue)
    return "";
  switch (formal.kind) {
  case ir::AttributeKind::Int: {
    const int64_t value = formal.defaultValue->intValue();
    return std::to_string(value == -1 ? 2
                          : value < 0 ? value - 1
                          : value < 2 ? 1 - value
                                      : value + 1);
  }
  case ir::AttributeKind::Float:
    return std::to_string(formal.defaultValue->floatValue() + 0.5f);
  case ir::AttributeKind::String:
    return "\"another\"";
  default:
    return "";
  }
}

TEST(OperandReads, EachRuleHasASample) {
  std::set<std::string> missing;
  for (const auto& rule : allRules())
    missing.insert(rule.first().str());
  Arithmetic math(0);
  for (const Sample& sample : samples)
    missing.erase(SampleNode(sample, sample.attributes, math).node().op().str());
  for (const Sample& sample : withoutOperands)
    missing.erase(sample.op);
  EXPECT_EQ(llvm::join(missing, " "), "");
}

TEST(OperandReads, EachOperandCounts) {
  Arithmetic math(0);
  for (const Sample& sample : samples) {
    SampleNode whole(sample, sample.attributes, math);
    const Evaluated made = whole.evaluate();
    EXPECT_FALSE(made.isRefused) << sample.op << ": " << whole.failure;
    for (unsigned i = 0; !made.isRefused && i < whole.values.size(); ++i) {
      if (!whole.values[i] || !whole.values[i]->isReal() || whole.isNeutralOperand(i) ||
          readsNoNumber(whole.node().op().type()))
        continue;
      SampleNode other(sample, sample.attributes, math);
      other.values[i] = arbitraryTensor(math.field, 1000 + i, whole.values[i]->shape);
      const Evaluated changed = other.evaluate();
      EXPECT_TRUE(changed.isRefused || !areSame(made.results, changed.results, math))
          << sample.op << " does not depend on its operand " << i;
    }
  }
}

TEST(OperandReads, FurtherOperandsAreRefused) {
  Arithmetic math(0);
  for (const Sample& sample : samples) {
    SampleNode whole(sample, sample.attributes, math);
    const ir::OpDef* definition = whole.node().definition();
    if (!definition)
      continue;
    for (unsigned i = 0; i < definition->operands.size(); ++i) {
      if (i < whole.values.size() && whole.values[i])
        continue;
      SampleNode other(sample, sample.attributes, math);
      while (other.values.size() <= i)
        other.values.push_back(nullptr);
      other.values[i] = arbitraryTensor(math.field, 1000, {1});
      EXPECT_TRUE(other.evaluate().isRefused || other.isNeutralOperand(i))
          << sample.op << " takes the operand '" << definition->operands[i].name << "' unread";
    }
  }
}

TEST(OperandReads, EachAttributeCounts) {
  Arithmetic math(0);
  for (const Sample& sample : samples) {
    SampleNode whole(sample, sample.attributes, math);
    const Evaluated made = whole.evaluate();
    const ir::OpDef* definition = whole.node().definition();
    if (!definition || made.isRefused)
      continue;
    for (const ir::FormalAttribute& formal : definition->attributes) {
      const std::string value = otherValue(formal);
      if (value.empty() || whole.node().attribute(formal.name) ||
          whole.isNeutralAttribute(formal.name))
        continue;
      const std::string before = sample.attributes;
      const std::string written = formal.name + " = " + value;
      SampleNode other(sample, before.empty() ? written : before + ", " + written, math);
      const Evaluated changed = other.evaluate();
      EXPECT_TRUE(changed.isRefused || !areSame(made.results, changed.results, math))
          << sample.op << " does not depend on its attribute '" << formal.name << "'";
    }
  }
}

TEST(OperandReads, AnEvaluationRefusesWhatItsRuleDoesNotRead) {
  auto modelOf = [](const std::string& nodes) {
    return read("<ir_version: 8, opset_import: [\"\" : 24, \"com.microsoft\" : 1]>\n"
                "g (float[B, S, 4] inputs_embeds) => (result)\n"
                "<float[4] one = {1, 1, 1, 1}, float[4] bias = {1, 2, 3, 4}>\n{\n" +
                nodes + "}\n");
  };
  const ir::Manifest none;
  for (const char* nodes :
       {"result = com.microsoft.SkipSimplifiedLayerNormalization (inputs_embeds, inputs_embeds, "
        "one, \"\", bias)",
        "result = com.microsoft.BiasGelu <unknown = 3> (inputs_embeds, bias)"}) {
    const auto first =
        modelOf(std::string("x = Neg (inputs_embeds) ") + edited(nodes, "inputs_embeds", "x"));
    const auto second = modelOf("y = Neg (inputs_embeds) m = Neg (y) x = Neg (m) " +
                                edited(nodes, "inputs_embeds", "x"));
    ASSERT_TRUE(first && second);
    EXPECT_LE(checkModels({*first, none}, {*second, none}).verdict(), Verdict::ProvedReduced)
        << nodes;
    const auto other =
        modelOf("y = Neg (inputs_embeds) x = Add (y, bias) " + edited(nodes, "inputs_embeds", "x"));
    ASSERT_TRUE(other);
    EXPECT_GE(checkModels({*first, none}, {*other, none}).verdict(), Verdict::Different) << nodes;
  }
}

} // namespace
} // namespace kvopt::check
