// What the gate refuses of models that are read without error otherwise.
#include "ir/verify/model_gate.h"
#include "tests/ir/onnx/onnx_fixture.h"
#include "tests/ir/text/text_fixture.h"

namespace kvopt {
using namespace ir;

namespace {

/// What the gate says about the text; "" where it admits the model.
std::string gate(const std::string& text) {
  auto model = readOrFail(text);
  if (!model)
    return "not read";
  llvm::Error error = admit(*model);
  return error ? takeDiagnostic(std::move(error)).str() : "";
}

std::string withBody(const std::string& body, const std::string& opsets = R"("" : 18)") {
  return "<ir_version: 8, opset_import: [" + opsets +
         "]>\ng (float[N, 4] x, float[N, 4] z, bool c, int64 n) => (y)\n{\n" + body + "\n}\n";
}

void expectRefused(const std::string& text, const std::string& part) {
  const std::string said = gate(text);
  EXPECT_NE(said.find(part), std::string::npos) << "'" << said << "' of\n" << text;
}

TEST(ModelGateTest, AdmitsWhatFitsItsDefinitions) {
  EXPECT_EQ(gate(withBody("y = Relu(x)")), "");
  EXPECT_EQ(gate(withBody("y = Min(x, z)")), "");
  EXPECT_EQ(gate(withBody("y = Clip(x, , z)")), "");
  EXPECT_EQ(gate(withBody("y = Relu(x)", R"("ai.onnx" : 18)")), "");
  EXPECT_EQ(gate(withBody("y = ai.onnx.Relu(x)")), "");
}

TEST(ModelGateTest, AdmitsOperatorsWithoutADefinition) {
  EXPECT_EQ(gate(withBody("y = Grumble(x)")), "");
  EXPECT_EQ(gate(withBody("y = com.example.Relu()", R"("com.example" : 1)")), "");
}

TEST(ModelGateTest, AdmitsOperandsThatOperatorsOfOnnxRuntimeHaveGained) {
  const std::string opsets = R"("" : 18, "com.microsoft" : 1)";
  EXPECT_EQ(gate(withBody("y = com.microsoft.FastGelu(x, z, z)", opsets)), "");
  EXPECT_EQ(gate(withBody("y, more = com.microsoft.FastGelu(x, z)", opsets)), "");
  expectRefused(withBody("y = com.microsoft.FastGelu()", opsets), "has 0 operands, needs 1");
}

TEST(ModelGateTest, CountsOperands) {
  expectRefused(withBody("y = Gather(x)"), "has 1 operands, needs 2");
  expectRefused(withBody("y = Relu(x, z)"), "has 2 operands, takes at most 1");
  expectRefused(withBody("y = Add(, x)"), "operand 'A' is missing");
}

TEST(ModelGateTest, VariadicOperandsAreOneAtLeastAndPresent) {
  for (const char* op : {"Min", "Max", "Concat <axis = 0>", "Einsum <equation = \"a->a\">"}) {
    expectRefused(withBody(formatted("y = {}()", op)), "has 0 operands, needs 1");
    expectRefused(withBody(formatted("y = {}(x, , z)", op)), "is missing");
  }
}

TEST(ModelGateTest, ChecksAttributes) {
  expectRefused(withBody("y = Concat(x, z)"), "attribute 'axis' is missing");
  expectRefused(withBody("y = Softmax <axis = 1.5>(x)"), "is of kind");
}

TEST(ModelGateTest, ChecksOperatorSets) {
  expectRefused(withBody("y = Relu(x)", R"("" : 0)"), "version 0 of operator set 'ai.onnx'");
  expectRefused(withBody("y = Relu(x)", R"("" : 18, "com.microsoft" : -1)"),
                "version -1 of operator set 'com.microsoft'");
  expectRefused(withBody("y = Relu(x)", R"("" : 18, "ai.onnx" : 17)"), "imported twice");
  expectRefused(withBody("y = Relu(x)", R"("com.microsoft" : 1)"), "no version");
  expectRefused(withBody("y = Relu(x)", formatted(R"("" : {})", newestOnnxOpset + 1)),
                "the newest that kvopt knows");
  EXPECT_EQ(gate(withBody("y = Relu(x)", formatted(R"("" : {})", newestOnnxOpset))), "");
}

TEST(ModelGateTest, ChecksSubgraphs) {
  expectRefused(withBody("y = If <then_branch = t () => (a) { a = Relu(x) }, "
                         "else_branch = e (float[N] q) => (b) { b = Relu(x) }>(c)"),
                "'else_branch' has 1 inputs, needs 0");
  expectRefused(withBody("y = If <then_branch = t () => (a) { a = Relu(x) }, "
                         "else_branch = e () => () { }>(c)"),
                "'else_branch' has 0 outputs, needs 1");
  expectRefused(withBody("y = Loop <body = b (int64 i, bool co) => (cn, v) "
                         "{ cn = Identity(co) v = Relu(x) }>(n, c, x)"),
                "'body' has 2 inputs, needs 3");
  expectRefused(withBody("y = If <then_branch = t () => (a) { a = Gather(x) }, "
                         "else_branch = e () => (b) { b = Relu(x) }>(c)"),
                "has 1 operands, needs 2");
}

TEST(ModelGateTest, ChecksFunctions) {
  const std::string call = withBody("y = own.f(x)", R"("" : 18, "own" : 1)");
  expectRefused(call + R"(<domain: "own", opset_import: ["" : 18, "own" : 1]>
f (a) => (b) { b = own.f(a) })",
                "function 'f' of domain 'own' calls itself");
  expectRefused(call + R"(<domain: "own", opset_import: ["" : 18, "own" : 1]>
f (a) => (b) { b = own.h(a) }
<domain: "own", opset_import: ["" : 18, "own" : 1]>
h (a) => (b) { b = own.f(a) })",
                "calls itself");
  expectRefused(call + R"(<domain: "own", opset_import: ["" : 18]>
f (a) => (b) { b = Gather(a) })",
                "in function 'f'");
  expectRefused(call + R"(<domain: "own", opset_import: ["" : 0]>
f (a) => (b) { b = Relu(a) })",
                "version 0");
  expectRefused(withBody("y = Relu(x)") + R"(<domain: "ai.onnx", opset_import: ["" : 18]>
Relu (a) => (b) { b = Neg(a) })",
                "function 'Relu' redefines an operator of ONNX");
  EXPECT_EQ(gate(call + R"(<domain: "own", opset_import: ["" : 18]>
f <k> (a) => (b) { b = Softmax <axis: int = @k>(a) })"),
            "");
}

/// Functions f0 … f<levels>, each of which calls the one before ten times.
std::string nestedFunctions(int levels) {
  std::string text = withBody(formatted("y = own.f{}(x)", levels), R"("" : 18, "own" : 1)");
  for (int level = 0; level <= levels; ++level) {
    text += formatted("<domain: \"own\", opset_import: [\"\" : 18, \"own\" : 1]>\n"
                      "f{} (a) => (b) {{\n",
                      level);
    for (int call = 0; call < 10; ++call)
      text += formatted("  {} = {}({})\n", call == 9 ? "b" : formatted("v{}", call),
                        level == 0 ? "Relu" : formatted("own.f{}", level - 1),
                        call == 0 ? "a" : formatted("v{}", call - 1));
    text += "}\n";
  }
  return text;
}

TEST(ModelGateTest, LimitsWhatFunctionsExpandTo) {
  EXPECT_EQ(gate(nestedFunctions(2)), "");
  expectRefused(nestedFunctions(5), "calls of 'f5' give 1111110 of them; the limit is 200000; "
                                    "hint: --max-nodes raises the limit");
  // The count neither takes exponential time nor overflows.
  expectRefused(nestedFunctions(60), "more than 2^64");
  auto model = readOrFail(nestedFunctions(2));
  ASSERT_TRUE(model);
  EXPECT_FALSE(llvm::errorToBool(admit(*model, {1111})));
  EXPECT_TRUE(llvm::errorToBool(admit(*model, {1110})));
}

/// A chain of calls that is as deep as the file has functions.
TEST(ModelGateTest, DeepCallsDoNotOverflowTheStack) {
  std::string text = withBody("y = own.f0(x)", R"("" : 18, "own" : 1)");
  constexpr int depth = 3000;
  for (int i = 0; i < depth; ++i)
    text += formatted("<domain: \"own\", opset_import: [\"\" : 18, \"own\" : 1]>\n"
                      "f{} (a) => (b) {{ b = {}(a) }}\n",
                      i, i + 1 == depth ? "Relu" : formatted("own.f{}", i + 1));
  EXPECT_EQ(gate(text), "");
}

TEST(ModelGateTest, ExtentsFitIntoMemory) {
  for (const char* type : {"float[4611686018427387904]", "float[N, 140737488355328, 2]",
                           "float[2097152, 2097152, 2097152]", "float[0, 4611686018427387904]"})
    expectRefused(formatted("<ir_version: 8, opset_import: [\"\" : 18]>\n"
                            "g ({} x) => (y) {{ y = Relu(x) }}",
                            type),
                  "value 'x': a tensor of type");
  EXPECT_EQ(gate("<ir_version: 8, opset_import: [\"\" : 18]>\n"
                 "g (float[B, 32, 1048576, 128] x) => (y) { y = Relu(x) }"),
            "");
}

/// Importing passes through the gate.
TEST(ModelGateTest, ReferencesToAttributesAreForFunctions) {
  onnx::ModelProto message = smallModel();
  onnx::AttributeProto& attribute = *message.mutable_graph()->mutable_node(0)->add_attribute();
  attribute.set_name("own");
  attribute.set_ref_attr_name("alpha");
  attribute.set_type(onnx::AttributeProto::INT);
  auto model = importText(message.SerializeAsString(), textRegistry());
  ASSERT_FALSE(model);
  EXPECT_NE(takeDiagnostic(model.takeError()).str().find("outside of a function"),
            std::string::npos);
}

TEST(ModelGateTest, ImportRefuses) {
  onnx::ModelProto message = smallModel();
  addNode(*message.mutable_graph(), "Min", {}, {"nothing"});
  auto model = importText(message.SerializeAsString(), textRegistry());
  ASSERT_FALSE(model);
  EXPECT_EQ(takeDiagnostic(model.takeError()).str(),
            "node 'node_nothing' (Min): has 0 operands, needs 1");
}

TEST(ModelGateTest, RefusesABufferThatIsOverwrittenTwice) {
  const auto attention = [](const std::string& past) {
    return "<ir_version: 8, opset_import: [\"\" : 18, \"ai.kvopt\" : 1]>\n"
           "g (float[1, 2, 3, 4] q, float[1, 2, 8, 4] k, float[1, 2, 8, 4] v, int64[1] n, "
           "int64[4] s) => (o, a, b)\n{\n  w = Reshape (k, s)\n"
           "  o, a, b = ai.kvopt.InPlaceKvSdpa <scale = 1.0> (q, q, q, k, " +
           past + ", n)\n}\n";
  };
  EXPECT_EQ(gate(attention("v")), "");
  for (const char* past : {"k", "w"})
    expectRefused(attention(past), "'k' is two operands that the operator overwrites");
}

} // namespace
} // namespace kvopt
