// What the reader makes of each construct of the syntax, and what it refuses.
#include "ir/text/lexer.h"
#include "ir/text/reader.h"

#include "tests/ir/text/text_fixture.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>

namespace kvopt {
using namespace ir;

namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

/// A model around nodes that read x and y and define z.
std::string around(const std::string& nodes) {
  return "<ir_version: 8, opset_import: [\"\" : 17, \"com.microsoft\" : 1]>\n"
         "g (float[N] x, float[N] y) => (float[N] z) {\n" +
         nodes + "\n}";
}

std::vector<std::string> operandNames(const Node& node) {
  std::vector<std::string> names;
  for (const Use& use : node.operands())
    names.push_back(use.value() ? use.value()->name().str() : "-");
  return names;
}

/// The contents of the only initializer, an error's text where the model is refused.
template <typename T> std::vector<T> initializerOf(const std::string& declaration) {
  auto model = readOrFail("g () => () <" + declaration + "> {}");
  if (!model || model->graph().initializers().size() != 1)
    return {};
  auto bytes = model->graph().initializers()[0]->initializer()->bytes();
  if (!bytes) {
    ADD_FAILURE() << takeDiagnostic(bytes.takeError()).str();
    return {};
  }
  std::vector<T> values(bytes->size() / sizeof(T));
  if (!values.empty())
    std::memcpy(values.data(), bytes->data(), bytes->size());
  return values;
}

std::string tensorRefusal(const std::string& declaration) {
  return textRefusal("g () => () <" + declaration + "> {}");
}

TEST(TextReader, ReadsTheHeader) {
  auto model = readOrFail(R"(<
    ir_version: 9, opset_import: ["" : 18, "ai.kvopt" : 1], producer_name: "maker",
    producer_version: "1.2", domain: "org.example", model_version: 7, doc_string: "a \"doc\"",
    metadata_props: ["k": "v", "empty": ""]>
    g () => () {})");
  ASSERT_TRUE(model);
  EXPECT_EQ(model->irVersion, 9);
  EXPECT_EQ(model->opsets, (OpsetImports{{"", 18}, {"ai.kvopt", 1}}));
  EXPECT_EQ(model->producerName, "maker");
  EXPECT_EQ(model->producerVersion, "1.2");
  EXPECT_EQ(model->domain, "org.example");
  EXPECT_EQ(model->modelVersion, 7);
  EXPECT_EQ(model->docString, "a \"doc\"");
  EXPECT_EQ(model->metadata, (Metadata{{"k", "v"}, {"empty", ""}}));
}

TEST(TextReader, ReadsTypesOfEveryForm) {
  auto model = readOrFail(R"(g (float a, float16[] b, int64[N, 2, ?, "past + 1"] c, d,
                                undefined[3] e, dtype_99[2] "float") => () {})");
  ASSERT_TRUE(model);
  auto inputs = model->graph().inputs();
  ASSERT_EQ(inputs.size(), 6u);
  EXPECT_EQ(inputs[0]->type(), TensorType(ElementType::Float, Shape()));
  EXPECT_EQ(inputs[1]->type(), TensorType(ElementType::Float16));
  Shape shape{Dim::symbol("N"), Dim::fixed(2), Dim::unknown(), Dim::symbol("past") + Dim::fixed(1)};
  EXPECT_EQ(inputs[2]->type(), TensorType(ElementType::Int64, shape));
  EXPECT_EQ(inputs[3]->type(), TensorType());
  EXPECT_EQ(inputs[4]->type(), TensorType(ElementType::Undefined, {Dim::fixed(3)}));
  EXPECT_EQ(inputs[5]->type(), TensorType(static_cast<ElementType>(99), {Dim::fixed(2)}));
  EXPECT_EQ(inputs[5]->name(), "float");
}

TEST(TextReader, ReadsNodes) {
  auto model = readOrFail(around(R"(
    // a comment
    [first] a = Add (x, y)  # another
    ["/model/second"] b, , "d.0" = com.microsoft.SkipLayerNormalization <epsilon = 1e-5> (a, , x)
    c = "odd-domain"."Odd Op":variant (, b)
    = Print ("")
    z = Clip (c, "", "d.0") <kept = 1>)"));
  ASSERT_TRUE(model);
  std::vector<const Node*> nodes;
  for (const Node& node : model->graph().nodes())
    nodes.push_back(&node);
  ASSERT_EQ(nodes.size(), 5u);
  EXPECT_EQ(nodes[0]->op(), OpName("Add"));
  EXPECT_EQ(nodes[0]->name(), "first");
  EXPECT_NE(nodes[0]->definition(), nullptr);
  EXPECT_EQ(nodes[1]->op(), OpName("com.microsoft", "SkipLayerNormalization"));
  EXPECT_EQ(nodes[1]->name(), "/model/second");
  ASSERT_EQ(nodes[1]->results().size(), 3u);
  EXPECT_TRUE(nodes[1]->result(1).isAbsent());
  EXPECT_EQ(nodes[1]->result(2).name(), "d.0");
  EXPECT_THAT(operandNames(*nodes[1]), ElementsAre("a", "-", "x"));
  EXPECT_EQ(nodes[2]->op(), OpName("odd-domain", "Odd Op"));
  EXPECT_EQ(nodes[2]->overload(), "variant");
  EXPECT_THAT(operandNames(*nodes[2]), ElementsAre("-", "b"));
  EXPECT_TRUE(nodes[3]->results().empty());
  EXPECT_THAT(operandNames(*nodes[3]), ElementsAre("-"));
  EXPECT_THAT(operandNames(*nodes[4]), ElementsAre("c", "-", "d.0"));
  EXPECT_EQ(nodes[4]->intAttr("kept", 0), 1);
}

TEST(TextReader, ReadsAttributes) {
  auto model = readOrFail(around(R"(z = my.Op <i = -3, f = 2.5, s = "a\\b\"c", t = int64[2] {1, 2},
      named = float {1.5}, is = [1, 2], fs = [1.0, -inf, nan], ss = ["p", "q"],
      ts = [float {1}, int32[1] {2}], none: ints = [], typed: floats = [1, 2.5], whole: float = 4,
      special = inf, metadata_props: ["from": "rule"], metadata_props = 5> (x))"));
  ASSERT_TRUE(model);
  const Node& node = model->graph().nodes().front();
  EXPECT_EQ(node.intAttr("i", 0), -3);
  EXPECT_EQ(node.floatAttr("f", 0), 2.5F);
  EXPECT_EQ(node.stringAttr("s", ""), "a\\b\"c");
  EXPECT_EQ(integerValues(*node.attribute("t")->tensorValue()),
            (llvm::SmallVector<int64_t, 8>{1, 2}));
  EXPECT_EQ(scalarValue(*node.attribute("named")->tensorValue()), 1.5);
  EXPECT_THAT(node.attribute("is")->ints(), ElementsAre(1, 2));
  ASSERT_EQ(node.attribute("fs")->floats().size(), 3u);
  EXPECT_EQ(node.attribute("fs")->floats()[1], -INFINITY);
  EXPECT_TRUE(std::isnan(node.attribute("fs")->floats()[2]));
  EXPECT_THAT(node.attribute("ss")->strings(), ElementsAre("p", "q"));
  ASSERT_EQ(node.attribute("ts")->tensors().size(), 2u);
  EXPECT_EQ(node.attribute("ts")->tensors()[1]->elementType(), ElementType::Int32);
  EXPECT_EQ(node.attribute("none")->kind(), AttributeKind::Ints);
  EXPECT_TRUE(node.attribute("none")->ints().empty());
  EXPECT_THAT(node.attribute("typed")->floats(), ElementsAre(1.0F, 2.5F));
  EXPECT_EQ(node.floatAttr("whole", 0), 4.0F);
  EXPECT_EQ(node.floatAttr("special", 0), INFINITY);
  EXPECT_EQ(node.metadata(), (Metadata{{"from", "rule"}}));
  EXPECT_EQ(node.intAttr("metadata_props", 0), 5);
}

TEST(TextReader, MakesIntegersFloatsWhereTheDefinitionWantsThem) {
  OpRegistry registry;
  define(registry, "Scale", 1).in("x").out("y").attr("by", 1.0F);
  std::string text = "<opset_import: [\"\" : 17]> g (float x) => (y) { y = Scale <by = 3> (x) }";
  auto model = readText(text, registry);
  ASSERT_TRUE(static_cast<bool>(model));
  const Node& node = (*model)->graph().nodes().front();
  EXPECT_EQ(node.attribute("by")->kind(), AttributeKind::Float);
  EXPECT_EQ(node.floatAttr("by", 0), 3.0F);
}

TEST(TextReader, ReadsTensors) {
  EXPECT_THAT(initializerOf<float>("float[2, 2] w = {1, -2.5, 1e-3, inf}"),
              ElementsAre(1.0F, -2.5F, 1e-3F, INFINITY));
  EXPECT_THAT(initializerOf<double>("double w = {0.1}"), ElementsAre(0.1));
  EXPECT_THAT(initializerOf<uint16_t>("float16[3] w = {1, 0.1, -inf}"),
              ElementsAre(0x3C00, 0x2E66, 0xFC00));
  EXPECT_THAT(initializerOf<uint16_t>("bfloat16[2] w = {1, 0.1}"), ElementsAre(0x3F80, 0x3DCD));
  EXPECT_THAT(initializerOf<int8_t>("int8[2] w = {-128, 127}"), ElementsAre(-128, 127));
  EXPECT_THAT(initializerOf<uint64_t>("uint64[1] w = {18446744073709551615}"),
              ElementsAre(UINT64_MAX));
  EXPECT_THAT(initializerOf<int64_t>("int64[1] w = {-9223372036854775808}"),
              ElementsAre(INT64_MIN));
  EXPECT_THAT(initializerOf<uint8_t>("bool[4] w = {0, 1, true, false}"), ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(initializerOf<uint8_t>("int4[3] w = {-1, 7, -8}"), ElementsAre(0x7F, 0x08));
  EXPECT_THAT(initializerOf<uint8_t>("uint4[2] w = {1, 15}"), ElementsAre(0xF1));
  EXPECT_THAT(initializerOf<uint8_t>("float8e4m3fn[1] w = {56}"), ElementsAre(56));
  EXPECT_THAT(initializerOf<float>("complex64[2] w = {1, 2, 3, 4}"), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(initializerOf<float>("float[0] w = {}"), ElementsAre());
}

/// 1 + 2^-11 + 2^-40 lies above the tie between two halves; by way of a float it would be one.
TEST(TextReader, RoundsOnce) {
  EXPECT_THAT(initializerOf<uint16_t>("float16[1] w = {1.0004882812509094947}"),
              ElementsAre(0x3C01));
}

TEST(TextReader, ReadsDefaultsOfInputs) {
  auto model = readOrFail("g (float[2] x = {1, 2}, int64[N] y) => () <int64[1] y = {3}> {}");
  ASSERT_TRUE(model);
  ASSERT_EQ(model->graph().inputs().size(), 2u);
  EXPECT_TRUE(model->graph().initializers().empty());
  EXPECT_EQ(model->graph().inputs()[0]->initializer()->elementCount(), 2);
  EXPECT_EQ(scalarValue(*model->graph().inputs()[1]->initializer()), 3.0);
  EXPECT_EQ(model->graph().inputs()[1]->type().dim(0), Dim::symbol("N"));
}

TEST(TextReader, ReadsTypesOfIntermediateValues) {
  auto model = readOrFail("g (float[N] x) => (y) <float[N, 3] a> { a = Foo (x) y = Bar (a) }");
  ASSERT_TRUE(model);
  EXPECT_EQ(model->graph().findValue("a")->type().dim(1), Dim::fixed(3));
}

TEST(TextReader, ReadsSubgraphsThatCaptureOuterValues) {
  auto model = readOrFail(R"(g (bool c, float[N] x) => (float[N] y) {
    doubled = Add (x, x)
    y = If <then_branch = yes () => (float[N] t) { t = Mul (doubled, x) },
            else_branch = "no" () => (doubled) {}> (c)
  })");
  ASSERT_TRUE(model);
  Node& branch = model->graph().nodes().back();
  const Graph& yes = *branch.attribute("then_branch")->graphs().front();
  EXPECT_EQ(yes.parentNode(), &branch);
  EXPECT_EQ(yes.nodes().front().operand(0), model->graph().findValue("doubled"));
  const Graph& no = *branch.attribute("else_branch")->graphs().front();
  EXPECT_EQ(no.outputs().front(), model->graph().findValue("doubled"));
  EXPECT_EQ(capturedValues(branch).size(), 2u);
}

TEST(TextReader, ABranchMayUseTheNameOfItsNodesResult) {
  auto model = readOrFail(R"(g (bool c, float x) => (y) {
    y = If <then_branch = a () => (y) { y = Neg (x) }, else_branch = b () => (y) { y = Abs (x) }> (c)
  })");
  ASSERT_TRUE(model);
  EXPECT_EQ(model->graph().findValue("y")->producer(), &model->graph().nodes().back());
}

TEST(TextReader, ReadsFunctions) {
  auto model = readOrFail(R"(<opset_import: ["" : 17, "ai.kvopt" : 1]>
    g (float x) => (y) { y = ai.kvopt.Twice:wide <by = 2.0> (x) }
    <domain: "ai.kvopt", overload: "wide", opset_import: ["" : 17], doc_string: "doc">
    Twice <by, bias: float = 0.5, modes: ints = []> (a, float[N] b) => (c)
    {
      k = Constant <value_float: float = @by> ()
      l = Constant <value_float = @bias> ()
      c = Mul (a, k)
    }
    <domain: "other", opset_import: ["" : 17]> Twice (a) => (a) {})");
  ASSERT_TRUE(model);
  ASSERT_EQ(model->functions.size(), 2u);
  const Function& function = *model->functions[0];
  EXPECT_EQ(function.domain, "ai.kvopt");
  EXPECT_EQ(function.name, "Twice");
  EXPECT_EQ(function.overload, "wide");
  EXPECT_EQ(function.docString, "doc");
  EXPECT_EQ(function.opsets, (OpsetImports{{"", 17}}));
  EXPECT_THAT(function.attributes, ElementsAre("by"));
  ASSERT_EQ(function.defaults.size(), 2u);
  EXPECT_EQ(function.defaults[0].name, "bias");
  EXPECT_EQ(function.defaults[0].value.floatValue(), 0.5F);
  EXPECT_EQ(function.defaults[1].value.kind(), AttributeKind::Ints);
  EXPECT_EQ(function.body.inputs()[1]->type().dim(0), Dim::symbol("N"));
  auto node = function.body.nodes().begin();
  EXPECT_EQ(node->attribute("value_float")->referencedName(), "by");
  EXPECT_EQ(node->attribute("value_float")->kind(), AttributeKind::Float);
  ++node;
  EXPECT_EQ(node->attribute("value_float")->kind(), AttributeKind::Float);
}

TEST(TextReader, ReadsOneFunctionIntoAModel) {
  Model model(textRegistry());
  auto function = readFunctionText(
      "<domain: \"d\", opset_import: [\"\" : 17]> F <k> (x) => (y) { y = Neg (x) }", model);
  ASSERT_TRUE(static_cast<bool>(function)) << takeDiagnostic(function.takeError()).str();
  EXPECT_EQ(model.findFunction(OpName("d", "F")), *function);
  EXPECT_TRUE(model.isEdited());

  auto twice = readFunctionText("<domain: \"d\"> F () => () {}", model);
  ASSERT_FALSE(static_cast<bool>(twice));
  EXPECT_THAT(takeDiagnostic(twice.takeError()).str(),
              HasSubstr("<function>:1:15: function 'F' is defined twice"));
  auto trailing = readFunctionText("<domain: \"d\"> G () => () {} x", model);
  ASSERT_FALSE(static_cast<bool>(trailing));
  llvm::consumeError(trailing.takeError());
  EXPECT_EQ(model.functions.size(), 1u);
}

TEST(TextReader, ErrorsNameFileLineAndColumn) {
  EXPECT_THAT(textRefusal("g () => ()\n{\n  y = Neg (x)\n}"),
              StartsWith("m.onnxtxt:3:12: nothing above defines 'x'"));
  EXPECT_THAT(textRefusal("g (float x)\n => () { x = Neg (x) }"),
              StartsWith("m.onnxtxt:2:10: 'x' is defined twice"));
  EXPECT_THAT(textRefusal("g (float x, float x) => () {}"),
              StartsWith("m.onnxtxt:1:19: 'x' is defined twice"));
  EXPECT_THAT(textRefusal("g (float x) => () { a, a = Split (x) }"),
              StartsWith("m.onnxtxt:1:24: 'a' is defined twice"));
  EXPECT_THAT(textRefusal("g (float x) => (z) {}"),
              StartsWith("m.onnxtxt:1:17: nothing above defines 'z'"));
  EXPECT_THAT(textRefusal("g () => () {} }"), HasSubstr(":1:15: expected a function's name"));
}

TEST(TextReader, RefusesNamesOutOfScope) {
  EXPECT_THAT(textRefusal("g (float x) => () { y = Add (x, y) }"),
              HasSubstr(":1:33: nothing above defines 'y'"));
  EXPECT_THAT(textRefusal("g (bool c) => () { y = If <b = s () => (y) {}> (c) }"),
              HasSubstr("nothing above defines 'y'"));
  EXPECT_THAT(textRefusal("g (bool c, float x) => () { y = If <b = s (float x) => () {}> (c) }"),
              HasSubstr("'x' hides a value of an enclosing graph"));
  EXPECT_THAT(textRefusal("g (bool c) => (t) { y = If <b = s () => () { t = F () }> (c) }"),
              HasSubstr("nothing above defines 't'"));
  EXPECT_THAT(textRefusal("g () => () <float[2] t> {}"), HasSubstr("nothing defines it"));
  EXPECT_THAT(textRefusal("g (float x) => () <float[2] x> {}"), HasSubstr("has two types"));
  EXPECT_THAT(textRefusal("g (\"\") => () {}"), HasSubstr("a value without a name"));
}

TEST(TextReader, RefusesBadTensors) {
  EXPECT_THAT(tensorRefusal("float[3] w = {1, 2}"), HasSubstr("2 elements for a shape that has 3"));
  EXPECT_THAT(tensorRefusal("float[1] w = {1, 2}"), HasSubstr("more than the 1 elements"));
  EXPECT_THAT(tensorRefusal("float[N] w = {1}"), HasSubstr("extents must be numbers"));
  EXPECT_THAT(tensorRefusal("float[] w = {1}"), HasSubstr("extents must be numbers"));
  EXPECT_THAT(tensorRefusal("int8[1] w = {128}"), HasSubstr("`128` does not fit in int8"));
  EXPECT_THAT(tensorRefusal("uint8[1] w = {-1}"), HasSubstr("does not fit in uint8"));
  EXPECT_THAT(tensorRefusal("bool[1] w = {2}"), HasSubstr("does not fit in bool"));
  EXPECT_THAT(tensorRefusal("int64[1] w = {1.5}"), HasSubstr("expected an integer for int64"));
  EXPECT_THAT(tensorRefusal("int64[1] w = {99999999999999999999}"), HasSubstr("does not fit"));
  EXPECT_THAT(tensorRefusal("float[1] w = {1e39}"), HasSubstr("too large for float"));
  EXPECT_THAT(tensorRefusal("float16[1] w = {65520}"), HasSubstr("too large for float16"));
  EXPECT_THAT(tensorRefusal("float[1] w = {…}"), HasSubstr("left out when the text was printed"));
  EXPECT_THAT(tensorRefusal("float[1] w = [\"location\": \"w.bin\"]"), HasSubstr("external data"));
  EXPECT_THAT(tensorRefusal("string[1] w = {1}"), HasSubstr("expected a quoted string"));
  EXPECT_THAT(textRefusal("g (float[N] x) => () <int64[1] x = {1}> {}"),
              HasSubstr("input 'x' is of type float, its default of int64"));
}

TEST(TextReader, RefusesBadAttributes) {
  auto refusal = [](const std::string& attributes) {
    return textRefusal("g (float x) => () { y = F <" + attributes + "> (x) }");
  };
  EXPECT_THAT(refusal("a = 1, a = 2"), HasSubstr(":1:35: attribute 'a' is given twice"));
  EXPECT_THAT(refusal("a = []"), HasSubstr("an empty list must state its kind"));
  EXPECT_THAT(refusal("a = [1, 2.5]"), HasSubstr("a list of ints with an element that is float"));
  EXPECT_THAT(refusal("a: strings = [1]"), HasSubstr("declared strings and its value is ints"));
  EXPECT_THAT(refusal("a: tensors = [1]"), HasSubstr("declared tensors and its value is ints"));
  EXPECT_THAT(refusal("a: int = 1.5"), HasSubstr("declared int and its value is float"));
  EXPECT_THAT(refusal("a: number = 1"), HasSubstr("`number` is not a kind of attribute"));
  EXPECT_THAT(refusal("a = @b"), HasSubstr("reference outside a function's body"));
  EXPECT_THAT(refusal("a = 9223372036854775808"), HasSubstr("does not fit in 64 bits"));
  EXPECT_THAT(refusal("a = 1e39"), HasSubstr("too large for a float"));
  EXPECT_THAT(refusal("a = {…}"), HasSubstr("expected an attribute's value"));
  EXPECT_THAT(refusal("a = seq(float)"), HasSubstr("`seq` types cannot be read"));
  EXPECT_THAT(textRefusal("g (float x) => () { y = F <a = 1> (x) <b = 2> }"),
              HasSubstr("before and after"));
  EXPECT_THAT(textRefusal("g () => () {} <domain: \"d\"> F <k> () => () { a = G <k = @l> () }"),
              HasSubstr("the function has no attribute 'l'"));
}

TEST(TextReader, RefusesBadHeaders) {
  EXPECT_THAT(textRefusal("<version: 8> g () => () {}"),
              HasSubstr(":1:2: this header has no key `version`; hint: known: opset_import"));
  EXPECT_THAT(textRefusal("<domain: \"a\", domain: \"b\"> g () => () {}"),
              HasSubstr("given twice"));
  EXPECT_THAT(textRefusal("<opset_import: [\"\" : 1, \"\" : 2]> g () => () {}"),
              HasSubstr("imported twice"));
  EXPECT_THAT(textRefusal("<ir_version: 1.5> g () => () {}"), HasSubstr("expected a number"));
}

TEST(TextReaderHostile, RefusesBrokenTokens) {
  EXPECT_THAT(textRefusal(""), HasSubstr(":1:1: expected a graph's name, found the end"));
  EXPECT_THAT(textRefusal("\"g"), HasSubstr("a string without a closing quote"));
  EXPECT_THAT(textRefusal("\"g\\"), HasSubstr("a string without a closing quote"));
  EXPECT_THAT(textRefusal("g () => () { a = F <x = \"y"), HasSubstr(":1:25: a string without"));
  EXPECT_THAT(textRefusal("g () => () { a = F <x = -> () }"), HasSubstr("a sign without a number"));
  EXPECT_THAT(textRefusal("g () => () { a = F <x = 1e> () }"), HasSubstr("exponent has no digits"));
  EXPECT_THAT(textRefusal("g () => () { a = F <x = 12ab> () }"), HasSubstr("runs into a name"));
  EXPECT_THAT(textRefusal("g () => () { $ }"), HasSubstr("a character that has no meaning"));
  EXPECT_THAT(textRefusal(llvm::StringRef("g () => () {\0}", 14)), HasSubstr("no meaning"));
  EXPECT_THAT(textRefusal("g () => () { "), HasSubstr("found the end of the text"));
}

TEST(TextReaderHostile, RefusesHugeExtentsWithoutAllocating) {
  EXPECT_THAT(tensorRefusal("float[9223372036854775807, 2] w = {1}"), HasSubstr("64 bits"));
  EXPECT_THAT(tensorRefusal("float[4000000000000000000] w = {1}"),
              HasSubstr("more than the text holds"));
  EXPECT_THAT(tensorRefusal("string[1000000000] w = {\"a\"}"),
              HasSubstr("more than the text holds"));
  EXPECT_THAT(tensorRefusal("float[-1] w = {}"), HasSubstr("a negative extent"));
  EXPECT_THAT(tensorRefusal("float[\"-1\"] w = {}"), HasSubstr("a negative extent"));
  EXPECT_THAT(tensorRefusal("float[99999999999999999999] w = {}"), HasSubstr("64 bits"));
}

std::string nested(unsigned depth) {
  std::string open, close;
  for (unsigned i = 0; i < depth; ++i) {
    open += "y = If <b = g () => () {";
    close += "}> ()";
  }
  return "g () => () {" + open + close + "}";
}

TEST(TextReaderHostile, LimitsNesting) {
  EXPECT_TRUE(readOrFail(nested(63)));
  EXPECT_THAT(textRefusal(nested(64)), HasSubstr("nested more than 64 deep"));
  EXPECT_THAT(textRefusal(nested(100000)), HasSubstr("nested more than 64 deep"));
  std::string lists = "g () => () { y = F <a = " + std::string(1000000, '[') + "> () }";
  EXPECT_THAT(textRefusal(lists), HasSubstr("expected an attribute's value, found `[`"));
  std::string dims = "g (float[\"" + std::string(4000, '(') + "\"] x) => () {}";
  EXPECT_TRUE(readOrFail(dims)); // a symbol with an odd name
}

/// Every prefix of a text that uses all of the syntax is refused or read, and nothing else happens.
TEST(TextReaderHostile, EveryPrefixIsRefusedInOrder) {
  std::string text = R"(<ir_version: 8, opset_import: ["" : 17], metadata_props: ["a": "b"]>
g (float[N, 2] x = {}, bool c) => (float z) <float[2] w = {1, -2e3}, string[1] s = {"q\"r"}>
{ [l] y, "" = d.F:o <i = [1], t = float {1}, r: ints = [], metadata_props: ["k": "v"]> (x, , w)
  z = If <b = h () => (q) { q = Neg (y) }> (c) }
<domain: "d"> F <k, l: int = 1> (x) => (x) { a = G <k: int = @k> (x) })";
  text.replace(text.find(" = {}"), 5, "");
  ASSERT_TRUE(readOrFail(text));
  unsigned accepted = 0;
  for (size_t length = 0; length < text.size(); ++length) {
    auto model = readText(llvm::StringRef(text).take_front(length), textRegistry());
    if (model)
      ++accepted;
    else
      EXPECT_FALSE(takeDiagnostic(model.takeError()).message.empty());
  }
  EXPECT_EQ(accepted, 2u); // the model without its function, without and with the line break
}

TEST(TextReader, EscapesRoundTrip) {
  for (const std::string& text :
       {std::string("a\0b", 3), std::string("\x1b[2J\a\r\n\t\x7f"),
        std::string("\u009b\u202e\u200b"), std::string("\xff\xc0\xaf\xed\xa0\x80"),
        std::string("\\x1b \\u{41} \\\" \""), std::string("{\n  \"k\": [\n  ]\n}"),
        std::string("\n"), std::string("é😀")}) {
    auto model =
        readOrFail("<ir_version: 8, doc_string: " + quotedText(text) + ">\ng (float x) => (x) {}");
    ASSERT_TRUE(model);
    EXPECT_EQ(model->docString, text);
  }
  EXPECT_EQ(quotedText("a\nkvopt: OK"), "\"a\\x0akvopt: OK\"");
  EXPECT_EQ(quotedText("\x1b\u202e\\"), "\"\\x1b\\u{202e}\\\\\"");
}

} // namespace
} // namespace kvopt
