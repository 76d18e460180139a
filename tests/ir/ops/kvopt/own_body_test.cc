// Which functions are bodies that kvopt has written, and for which calls.
#include "ir/ops/kvopt/own_body.h"

#include "ir/ops/kvopt/attention_tile_body.h"
#include "ir/ops/kvopt/cache_function_body.h"
#include "ir/ops/kvopt/quantized_function_body.h"
#include "ir/verify/model_gate.h"
#include "tests/ir/text/text_fixture.h"

#include "llvm/ADT/STLExtras.h"

#include <filesystem>
#include <fstream>
#include <sstream>

namespace kvopt {
using namespace ir;

namespace {

/// Every body of one opset and element type, in forms that differ from each other.
std::vector<std::string> bodies(int64_t opset, ElementType element) {
  std::vector<std::string> texts;
  std::vector<CacheLayout> layouts;
  for (const auto& [rank, axis] : {std::pair(4, 0), std::pair(4, 1), std::pair(4, 2),
                                   std::pair(4, 3), std::pair(3, 1), std::pair(3, 2)})
    layouts.push_back(*CacheLayout::bySequenceAxis(static_cast<size_t>(rank), axis));
  for (bool sinks : {false, true}) {
    BodyForm form{opset, element, sinks};
    BodyForm lengths = form, four = form, int8 = form;
    lengths.lengths = int8.int8Caches = true;
    four.code = &fourBitRows;
    for (const BodyForm& each : {form, lengths})
      texts.push_back(sdpaFunctionText(each));
    for (const BodyForm& each : {form, four})
      texts.push_back(quantizedSdpaFunctionText(each));
    for (size_t i = 0; i < layouts.size(); ++i) {
      const CacheLayout& key = layouts[i];
      const CacheLayout& value = layouts[(i + 1) % layouts.size()];
      texts.push_back(cacheFunctionText({}, int8, {key, value}));
      for (CacheOperator op : CacheOperator::all()) {
        const CacheBody caches{key, value, op.isInBlocks() ? size_t{3} : 0};
        texts.push_back(cacheFunctionText(op, form, caches));
        const bool mayHaveFourBits = op.hasCodes() && !op.isInBlocks();
        op.code = &fourBitRows;
        if (mayHaveFourBits)
          texts.push_back(cacheFunctionText(op, form, caches));
      }
    }
  }
  texts.push_back(appendRowsFunctionText(opset, element));
  if (element != ElementType::BFloat16)
    texts.push_back(attentionTileFunctionText(opset, element));
  texts.push_back(quantizeRowsFunctionText(opset));
  return texts;
}

/// What is said of the function without calls; "" where it is accepted.
std::string refusalOf(const Function& function) {
  llvm::Error error = checkOwnBody(function, {});
  return error ? takeDiagnostic(std::move(error)).str() : "";
}

class OwnBodyTest : public ::testing::Test {
protected:
  Function& read(const std::string& text) {
    model = std::make_unique<Model>(textRegistry());
    return *llvm::cantFail(readFunctionText(text, *model));
  }
  std::unique_ptr<Model> model;
};

TEST_F(OwnBodyTest, EveryOperatorOfKvoptHasTheRule) {
  size_t operators = 0;
  for (const OpDef* definition : textRegistry().all())
    if (definition->name.domain() == kvoptDomain) {
      EXPECT_TRUE(definition->checkBody) << definition->name.str();
      ++operators;
    }
  EXPECT_GE(operators, 14u);
}

TEST_F(OwnBodyTest, AcceptsEveryBodyThatIsWritten) {
  for (const auto& [opset, element] :
       {std::pair(int64_t{13}, ElementType::Float16), std::pair(int64_t{18}, ElementType::Float),
        std::pair(newestOnnxOpset, ElementType::BFloat16)})
    for (const std::string& text : bodies(opset, element))
      ASSERT_EQ(refusalOf(read(text)), "") << text;
}

TEST_F(OwnBodyTest, AcceptsBodiesOfEarlierVersions) {
  const std::string folder = std::string(KVOPT_SOURCE_DIR) + "/tests/ir/ops/kvopt/earlier_bodies";
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    EXPECT_EQ(refusalOf(read(text.str())), "") << entry.path();
    ++files;
  }
  EXPECT_EQ(files, 10u);
}

/// Whether an output of the function depends on the value.
bool isLive(const Value& value) {
  llvm::SmallVector<const Value*, 32> pending{&value};
  llvm::DenseSet<const Value*> seen;
  while (!pending.empty()) {
    const Value* each = pending.pop_back_val();
    if (!seen.insert(each).second)
      continue;
    if (each->isGraphOutput())
      return true;
    for (const Use& use : each->uses())
      for (const Value& result : use.user().results())
        pending.push_back(&result);
  }
  return false;
}

TEST_F(OwnBodyTest, RefusesABodyWithANodeMore) {
  for (const std::string& text :
       {cacheFunctionText({}, {}), attentionTileFunctionText(17, ElementType::Float16)}) {
    const size_t nodes = read(text).body.nodes().size();
    size_t changed = 0;
    for (size_t i = 0; i < nodes; ++i) {
      Function& function = read(text);
      Node& node = *std::next(function.body.nodes().begin(), static_cast<std::ptrdiff_t>(i));
      if (!isLive(node.result()))
        continue;
      auto after = std::next(node.getIterator());
      Node* before = after == function.body.nodes().end() ? nullptr : &*after;
      Node& negated = function.body.createFresh("Neg", {&node.result()}, 1, before);
      llvm::SmallVector<Use*, 8> uses;
      for (Use& use : node.result().uses())
        if (&use.user() != &negated)
          uses.push_back(&use);
      for (Use* use : uses)
        use->user().setOperand(use->operandIndex(), &negated.result());
      for (unsigned slot = 0; slot < function.body.outputs().size(); ++slot)
        if (function.body.outputs()[slot] == &node.result())
          function.body.setOutput(slot, negated.result());
      EXPECT_NE(refusalOf(function), "") << node.describe() << " in\n" << text;
      ++changed;
    }
    EXPECT_GT(changed, nodes / 2);
  }
}

TEST_F(OwnBodyTest, RefusesOtherAttributesOpsetsAndInputs) {
  const std::string text = cacheFunctionText({}, {});
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"value_float = @scale", "value_float = 0.5"},
           {"to = 9", "to = 6"},
           {"keepdims = 0", "keepdims = 1"},
           {"[\"\" : 17]", "[\"\" : 12]"},
           {"[\"\" : 17]", "[\"\" : 18]"},
           {"<scale, causal", "<scale: float = 2.0, causal"},
           {"mask)", "mask, more)"},
           {"(output, present_key", "(output_as_float, present_key"}}) {
    std::string changed = text;
    ASSERT_NE(changed.find(from), std::string::npos) << from;
    changed.replace(changed.find(from), from.size(), to);
    const std::string said = refusalOf(read(changed));
    EXPECT_NE(said.find("function 'InPlaceKvSdpa' of domain 'ai.kvopt'"), std::string::npos)
        << to << ": " << said;
    EXPECT_NE(said.find("hint: "), std::string::npos) << said;
  }
}

/// What the gate says of a call of the body; `operands` follow the past's length.
std::string gateOf(const std::string& body, const std::string& element, const std::string& cache,
                   const std::string& attributes, const std::string& operands = ", mask") {
  const std::string text =
      "<ir_version: 8, opset_import: [\"\" : 17, \"ai.kvopt\" : 1]>\n"
      "g (" +
      element + "[1, 2, 3, 4] q, " + cache + " k, " + cache + " v, " + element +
      "[1, 2, 3, 4] n, int64[1] length, float[1] mask, float[2] sinks) => (o, pk, pv)\n{\n"
      "  o, pk, pv = ai.kvopt.InPlaceKvSdpa <scale = 0.5, causal = 1, window = 0, softcap = 0.0, "
      "mask_boolean = 0" +
      attributes + "> (q, n, n, k, v, length" + operands + ")\n}\n" + body;
  auto model = readOrFail(text);
  if (!model)
    return "not read";
  llvm::Error error = admit(*model);
  return error ? takeDiagnostic(std::move(error)).str() : "";
}

TEST_F(OwnBodyTest, CallsFitTheBody) {
  const std::string body = cacheFunctionText({}, {});
  const std::string rows = "float[1, 2, 8, 4]";
  EXPECT_EQ(gateOf(body, "float", rows, ""), "");
  EXPECT_EQ(gateOf(body, "float", rows, "", ""), "") << "an engine reports what the body lacks";
  for (const std::string& said :
       {gateOf(body, "float16", "float16[1, 2, 8, 4]", ""),
        gateOf(body, "float", "float[1, 8, 2, 4]", ", key_axis = 1"),
        gateOf(body, "float", "float[2, 8, 4]", ""), gateOf(body, "float", "int8[1, 2, 8, 4]", ""),
        gateOf(body, "float", rows, "", ", mask, sinks")}) {
    EXPECT_NE(said.find("does not compute what the operator does"), std::string::npos) << said;
    EXPECT_NE(said.find("node 'o' (ai.kvopt::InPlaceKvSdpa)"), std::string::npos) << said;
  }
  const BodyForm withSinks{17, ElementType::Float, true};
  EXPECT_EQ(gateOf(cacheFunctionText({}, withSinks), "float", rows, "", ", mask, sinks"), "");
}

TEST_F(OwnBodyTest, FunctionsOfOtherOperatorsAreAnyones) {
  for (const char* function : {"<domain: \"ai.kvopt\", opset_import: [\"\" : 17]>\n"
                               "Twice (x) => (y) { y = Add (x, x) }",
                               "<domain: \"com.example\", opset_import: [\"\" : 17]>\n"
                               "Sdpa (x) => (y) { y = Add (x, x) }"}) {
    auto read = readOrFail(std::string("<ir_version: 8, opset_import: [\"\" : 17]>\n"
                                       "g (float[2] x) => (y) { y = Neg (x) }\n") +
                           function);
    ASSERT_TRUE(read);
    EXPECT_FALSE(llvm::errorToBool(admit(*read))) << function;
  }
  // Nothing calls it, but what kvopt writes may.
  auto read = readOrFail("<ir_version: 8, opset_import: [\"\" : 17]>\n"
                         "g (float[2] x) => (y) { y = Neg (x) }\n"
                         "<domain: \"ai.kvopt\", opset_import: [\"\" : 17]>\n"
                         "Sdpa (x) => (y) { y = Add (x, x) }");
  ASSERT_TRUE(read);
  EXPECT_TRUE(llvm::errorToBool(admit(*read)));
  EXPECT_FALSE(llvm::errorToBool(admit(*read, ModelLimits::none()))) << "a copy may be changed";
}

} // namespace
} // namespace kvopt
