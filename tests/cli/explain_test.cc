// kvopt explain: groups, reasons with their nodes, near misses, targets, rules, exit codes.
#include "tests/cli/decoder_text.h"

namespace kvopt {
using namespace cli;

namespace {

constexpr LayerSpelling plain = LayerSpelling::Plain;
constexpr LayerSpelling gated = LayerSpelling::Gated;
constexpr LayerSpelling escapes = LayerSpelling::Escapes;

TEST(ExplainTest, AMatchedModelIsOneGroupWithItsFacts) {
  nlohmann::json json = runJson({"explain", shippedModel("kjv")});
  EXPECT_EQ(json["schema"], "kvopt/explain/1");
  ASSERT_EQ(json["sites"].size(), 1u);
  const nlohmann::json& site = json["sites"][0];
  EXPECT_EQ(site["id"], "L0–L3");
  EXPECT_EQ(site["layers"], (std::vector<unsigned>{0, 1, 2, 3}));
  EXPECT_EQ(site["nodes"].size(), 4u);
  EXPECT_EQ(site["status"], "matched");
  EXPECT_EQ(site["kind"], "self");
  EXPECT_EQ(site["q_heads"], 4);
  EXPECT_EQ(site["kv_heads"], 2);
  EXPECT_EQ(site["key_axis"], 2);
  EXPECT_TRUE(site["rule"].is_string());
  EXPECT_TRUE(site["reason"].is_null());
  EXPECT_TRUE(json["gave_up"].empty());

  ProgramResult text = runProgram({"explain", shippedModel("kjv")});
  EXPECT_EQ(text.code, 0);
  EXPECT_NE(text.out.find("4 attention layers, 4 matched"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("L0–L3"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("GQA 4/2×32"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("axis 2"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("mask      additive float["), std::string::npos) << text.out;
  EXPECT_EQ(text.out.find("MISSED"), std::string::npos) << text.out;
}

TEST(ExplainTest, JsonKeysStandInOrder) {
  ProgramResult result = runProgram({"explain", shippedModel("kjv"), "--format", "json"});
  auto json = nlohmann::ordered_json::parse(result.out);
  std::vector<std::string> keys;
  for (const auto& item : json.items())
    keys.push_back(item.key());
  EXPECT_EQ(keys, (std::vector<std::string>{"schema", "model", "sites", "near_misses", "gave_up"}));
}

TEST(ExplainTest, AlternatingLayersAreTwoGroups) {
  TemporaryFolder folder;
  std::string model = writeDecoder(folder, "m", {plain, escapes, plain, escapes, plain, escapes});
  nlohmann::json json = runJson({"explain", model});
  ASSERT_EQ(json["sites"].size(), 2u);
  EXPECT_EQ(json["sites"][0]["id"], "L0–L4 by 2");
  EXPECT_EQ(json["sites"][0]["status"], "matched");
  EXPECT_EQ(json["sites"][1]["id"], "L1–L5 by 2");
  EXPECT_EQ(json["sites"][1]["status"], "missed");
  const nlohmann::json& reason = json["sites"][1]["reason"];
  EXPECT_EQ(reason["code"], "cache-escapes");
  EXPECT_EQ(reason["node"], "present_k_1");
  EXPECT_NE(reason["found"].get<std::string>().find("Abs"), std::string::npos) << reason;
  EXPECT_NE(reason["hint"], "");

  ProgramResult text = runProgram({"explain", model});
  EXPECT_EQ(text.code, 0);
  for (const char* part : {"6 attention layers, 3 matched", "L0–L4 by 2", "L1–L5 by 2", "MHA 4×16",
                           "[B,4,P,16] axis 2", "scale 0.25", "cache-escapes at 'present_k_1'",
                           "expected  ", "found     ", "hint: ", "--require any"})
    EXPECT_NE(text.out.find(part), std::string::npos) << part << " in\n" << text.out;
}

TEST(ExplainTest, AMissedSiteHasTheFurthestNearMissAtItsProduct) {
  TemporaryFolder folder;
  std::string model = writeDecoder(folder, "m", {plain, plain, plain, gated});
  nlohmann::json json = runJson({"explain", model});
  ASSERT_EQ(json["sites"].size(), 2u);
  EXPECT_EQ(json["sites"][0]["id"], "L0–L2");
  const nlohmann::json& missed = json["sites"][1];
  EXPECT_EQ(missed["id"], "L3");
  EXPECT_EQ(missed["status"], "missed");
  EXPECT_TRUE(missed["rule"].is_null());
  ASSERT_TRUE(missed["nearest"].is_object());
  EXPECT_EQ(missed["nearest"]["root"], "o_3");
  EXPECT_EQ(missed["reason"]["node"], "gated_3");
  EXPECT_NE(missed["reason"]["expected"], "");
  EXPECT_EQ(missed["reason"]["found"], "Sub");
  // The same near miss stands in the list, and nothing of the layers that matched.
  bool isListed = false;
  for (const nlohmann::json& miss : json["near_misses"]) {
    isListed |= miss["root"] == "o_3" && miss["rule"] == missed["nearest"]["rule"];
    for (const char* gone : {"o_0", "o_1", "o_2"})
      EXPECT_NE(miss["root"], gone);
  }
  EXPECT_TRUE(isListed) << json["near_misses"];
  // inspect gives the same reason.
  nlohmann::json inspected = runJson({"inspect", model});
  EXPECT_EQ(inspected["sites"][3]["reason"], missed["reason"]["code"]);
  EXPECT_NE(inspected["sites"][3]["detail"].get<std::string>().find("gated_3"), std::string::npos);
}

TEST(ExplainTest, ATargetSaysWhatItTakes) {
  TemporaryFolder folder;
  std::string model = writeDecoder(folder, "m", {plain, gated});
  nlohmann::json json = runJson({"explain", model, "--to", "kvopt"});
  ASSERT_EQ(json["sites"].size(), 2u);
  EXPECT_EQ(json["sites"][0]["target"]["name"], "kvopt");
  EXPECT_EQ(json["sites"][0]["target"]["takes"], true);
  EXPECT_TRUE(json["sites"][0]["target"]["reason"].is_null());
  EXPECT_EQ(json["sites"][1]["target"]["takes"], false);
  EXPECT_EQ(json["sites"][1]["target"]["reason"]["code"], json["sites"][1]["reason"]["code"]);
  ProgramResult text = runProgram({"explain", model, "--to", "kvopt"});
  EXPECT_NE(text.out.find("--to kvopt: taken"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("--to kvopt: refused, because it was missed"), std::string::npos)
      << text.out;
}

TEST(ExplainTest, ARuleSaysWhereItWasAppliedAndHowNearItCame) {
  TemporaryFolder folder;
  std::string model = writeDecoder(folder, "m", {plain, gated});
  nlohmann::json rule = runJson({"explain", model, "--rule", "raise-spelled-attention"})["rule"];
  EXPECT_EQ(rule["name"], "raise-spelled-attention");
  EXPECT_EQ(rule["group"], "raise");
  EXPECT_EQ(rule["applied"], (std::vector<std::string>{"o_0"}));
  bool found = false;
  for (const nlohmann::json& miss : rule["near_misses"]) {
    EXPECT_EQ(miss["rule"], "raise-spelled-attention");
    found |= miss["root"] == "o_1" && miss["found"] == "Sub";
  }
  EXPECT_TRUE(found) << rule;
  ProgramResult text = runProgram({"explain", model, "--rule", "raise-spelled-attention"});
  EXPECT_NE(text.out.find("rule raise-spelled-attention (raise): applied 1 times"),
            std::string::npos)
      << text.out;
  // A rule that raises nothing is listened to when it is asked for.
  rule = runJson({"explain", model, "--rule", "remove-identity"})["rule"];
  EXPECT_EQ(rule["group"], "normalize");
  EXPECT_TRUE(rule["applied"].empty());
}

TEST(ExplainTest, OneLayer) {
  TemporaryFolder folder;
  std::string model = writeDecoder(folder, "m", {plain, plain, gated});
  nlohmann::json json = runJson({"explain", model, "--layer", "1"});
  ASSERT_EQ(json["sites"].size(), 1u);
  EXPECT_EQ(json["sites"][0]["id"], "L1");
  ProgramResult none = runProgram({"explain", model, "--layer", "3"});
  EXPECT_EQ(none.code, 2);
  EXPECT_NE(none.err.find("no layer 3"), std::string::npos) << none.err;
}

TEST(ExplainTest, AnExhaustedBudgetIsShown) {
  TemporaryFolder folder;
  std::string model = writeDecoder(folder, "m", {plain});
  nlohmann::json json = runJson({"explain", model, "--step-budget", "3"});
  ASSERT_EQ(json["sites"].size(), 1u);
  EXPECT_EQ(json["sites"][0]["status"], "missed");
  EXPECT_EQ(json["sites"][0]["reason"]["code"], "step-budget");
  EXPECT_GE(json["gave_up"]["raise-attention"], 1);
  ProgramResult text = runProgram({"explain", model, "--step-budget", "3"});
  EXPECT_EQ(text.code, 0);
  EXPECT_NE(text.out.find("step-budget in raise-attention"), std::string::npos) << text.out;
}

TEST(ExplainTest, ADisabledRuleLeavesItsSitesMissed) {
  std::vector<std::string> arguments{"explain", shippedModel("gpt2-dynamo18-eager"), "--disable",
                                     "raise-attention"};
  nlohmann::json json = runJson(arguments);
  ASSERT_EQ(json["sites"].size(), 1u);
  EXPECT_EQ(json["sites"][0]["status"], "missed");
  EXPECT_TRUE(json["sites"][0]["nearest"].is_null());
  arguments.back() = "no-rule";
  EXPECT_EQ(runProgram(arguments).code, 2);
}

TEST(ExplainTest, WithoutAttentionItSaysSo) {
  TemporaryFolder folder;
  std::string text = folder.write("m.onnxtxt", R"(<ir_version: 8, opset_import: ["" : 17]>
g (float[N, 4] x, float[4, 8] w) => (float[N, 8] y)
{
  h = MatMul (x, w)
  y = Softmax (h)
}
)");
  ASSERT_EQ(runProgram({"opt", text, "--pipeline", "", "-o", folder.path("m.onnx")}).code, 0);
  EXPECT_TRUE(runJson({"explain", folder.path("m.onnx")})["sites"].empty());
  ProgramResult result = runProgram({"explain", folder.path("m.onnx")});
  EXPECT_EQ(result.code, 0);
  EXPECT_NE(result.out.find("nothing here weighs rows"), std::string::npos) << result.out;
}

TEST(ExplainTest, ASoftmaxInSeveralOperatorsIsASite) {
  TemporaryFolder folder;
  std::string text = folder.write("m.onnxtxt", R"(<ir_version: 8, opset_import: ["" : 17]>
g (float[B, 4, S, 16] q, float[B, 4, 16, T] kt, float[B, 4, T, 16] v, float[16, 16] w)
  => (float[B, 4, S, 16] o, float[B, 4, S, 16] scaled)
<int64[1] last = {-1}, float one = {1.0}, float two = {2.0}>
{
  s = MatMul (q, kt)
  e = Exp (s)
  sum = ReduceSum (e, last)
  guarded = Add (sum, two)
  p = Div (e, guarded)
  o = MatMul (p, v)
  half = Div (q, one)
  scaled = MatMul (half, w)
}
)");
  ASSERT_EQ(runProgram({"opt", text, "--pipeline", "", "-o", folder.path("m.onnx")}).code, 0);
  nlohmann::json json = runJson({"explain", folder.path("m.onnx")});
  ASSERT_EQ(json["sites"].size(), 1u);
  EXPECT_EQ(json["sites"][0]["status"], "missed");
  ASSERT_EQ(json["near_misses"].size(), 1u) << json["near_misses"];
  EXPECT_EQ(json["near_misses"][0]["root"], "o");
  ProgramResult result = runProgram({"explain", folder.path("m.onnx"), "-v"});
  EXPECT_NE(result.out.find("nearest   raise-spelled-attention at 'o'"), std::string::npos)
      << result.out;
  // How near rules came is for those who write them.
  result = runProgram({"explain", folder.path("m.onnx")});
  EXPECT_EQ(result.out.find("nearest"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("MISSED"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("hint: "), std::string::npos) << result.out;
}

/// Attention over `keys` and `values`, which `body` computes from caches and new rows k and v.
std::string stepText(const std::string& constants, const std::string& body,
                     const std::string& presents) {
  return R"(<ir_version: 8, opset_import: ["" : 18]>
g (float[B, S, 8] x, float[B, 2, P, 4] past_k, float[B, 2, P, 4] past_v)
  => (float[B, 2, S, 4] y, )" +
         presents + R"()
<int64[4] cut = {0, 0, 2, 4})" +
         constants + R"(>
{
  tanh = Tanh (x)
  sigmoid = Sigmoid (x)
  sine = Sin (x)
  cutK = Reshape (tanh, cut)
  cutV = Reshape (sigmoid, cut)
  cutQ = Reshape (sine, cut)
  k = Transpose <perm = [0, 2, 1, 3]> (cutK)
  v = Transpose <perm = [0, 2, 1, 3]> (cutV)
  q = Transpose <perm = [0, 2, 1, 3]> (cutQ)
)" + body +
         R"(  kt = Transpose <perm = [0, 1, 3, 2]> (keys)
  s = MatMul (q, kt)
  p = Softmax (s)
  y = MatMul (p, values)
}
)";
}

constexpr const char* grownPresents =
    "float[B, 2, \"P + S\", 4] present_k, float[B, 2, \"P + S\", 4] present_v";

std::string writeStep(const TemporaryFolder& folder, const std::string& constants,
                      const std::string& body) {
  const std::string text = folder.write("m.onnxtxt", stepText(constants, body, grownPresents));
  EXPECT_EQ(runProgram({"opt", text, "--pipeline", "", "-o", folder.path("m.onnx")}).code, 0);
  return folder.path("m.onnx");
}

TEST(ExplainTest, EvaluationSaysWhereRowsComeFrom) {
  nlohmann::json json = runJson({"explain", shippedModel("gpt2-dynamo18-eager")});
  const nlohmann::json& keys = json["sites"][0]["evaluated"]["keys"];
  EXPECT_EQ(keys["rows"], "append");
  EXPECT_EQ(keys["past"], "past_key_values.0.key");
  EXPECT_EQ(keys["present"], "present.0.key");
  EXPECT_EQ(keys["proof"], "proved");
  EXPECT_TRUE(keys["proof_ends_at"].is_null());
  ASSERT_GE(keys["seen"].size(), 4U);
  EXPECT_EQ(keys["seen"][0]["tokens"], 5);
  EXPECT_GT(keys["points"], keys["seen"].size());
  EXPECT_TRUE(json["sites"][0]["evaluated"]["missing"].is_null());
  ProgramResult text = runProgram({"explain", shippedModel("gpt2-dynamo18-eager")});
  for (const char* part :
       {"keys      row j of head h is row j of 'past_key_values.0.key', then new rows of '",
        "; 'present.0.key' is the same rows: append (seen at S=5 P=11, S=7 P=4, S=13 P=0 and ",
        "; proved)", "values    row j of head h is row j of 'past_key_values.0.value'"})
    EXPECT_NE(text.out.find(part), std::string::npos) << part << " in\n" << text.out;
}

TEST(ExplainTest, WhatIsTriedAndNotProvedSaysWhy) {
  TemporaryFolder folder;
  // Another order at 37 rows, which only a product of two lengths says.
  const std::string model = writeStep(folder, ", int64 two = {2}, int64 square = {1369}",
                                      R"(  both = Concat <axis = 2> (past_k, k)
  pastShape = Shape (past_k)
  rows = Gather (pastShape, two)
  squared = Mul (rows, rows)
  is = Equal (squared, square)
  other = Concat <axis = 2> (k, past_k)
  present_k = Where (is, other, both)
  present_v = Concat <axis = 2> (past_v, v)
  keys = Identity (present_k)
  values = Identity (present_v)
)");
  const nlohmann::json evaluated = runJson({"explain", model})["sites"][0]["evaluated"];
  EXPECT_EQ(evaluated["keys"]["rows"], "append");
  EXPECT_EQ(evaluated["keys"]["proof"], "observed");
  EXPECT_EQ(evaluated["keys"]["proof_ends_at"], "squared");
  EXPECT_EQ(evaluated["values"]["proof"], "proved");
  ProgramResult text = runProgram({"explain", model});
  EXPECT_NE(text.out.find("observed: 'squared' (Mul): P*P is a product of lengths"),
            std::string::npos)
      << text.out;
}

TEST(ExplainTest, WhatIsNoRowOfACacheIsSaid) {
  TemporaryFolder folder;
  const std::string model = writeStep(folder, "", R"(  present_k = Concat <axis = 2> (past_k, k)
  present_v = Concat <axis = 2> (past_v, v)
  keys = Tanh (present_k)
  values = Add (present_v, present_k)
)");
  ProgramResult text = runProgram({"explain", model});
  for (const char* part : {"keys      computed from rows of all tokens by 'keys' (Tanh)",
                           "values    sums of 2 elements, of 'past_k' and 'past_v'"})
    EXPECT_NE(text.out.find(part), std::string::npos) << part << " in\n" << text.out;
  const nlohmann::json evaluated = runJson({"explain", model})["sites"][0]["evaluated"];
  EXPECT_EQ(evaluated["values"]["rows"], "computed");
  EXPECT_TRUE(evaluated["values"]["proof"].is_null());
}

TEST(ExplainTest, WindowsAreTriedOnBothSides) {
  TemporaryFolder folder;
  const std::string model = writeStep(
      folder, ", int64[1] last = {-300}, int64[1] axis = {2}, int64[1] end = {9223372036854775807}",
      R"(  present_k = Concat <axis = 2> (past_k, k)
  present_v = Concat <axis = 2> (past_v, v)
  keys = Slice (present_k, last, end, axis)
  values = Slice (present_v, last, end, axis)
)");
  ProgramResult text = runProgram({"explain", model});
  EXPECT_NE(text.out.find("keys      last 300 rows of 'past_k' and new rows of 'tanh'"),
            std::string::npos)
      << text.out;
  EXPECT_NE(text.out.find(": window of 300 (seen at "), std::string::npos) << text.out;
  const nlohmann::json keys = runJson({"explain", model})["sites"][0]["evaluated"]["keys"];
  EXPECT_EQ(keys["rows"], "last-rows");
  EXPECT_EQ(keys["window"], 300);
  EXPECT_EQ(keys["proof"], "proved");
}

TEST(ExplainTest, ColourIsForTerminals) {
  std::vector<std::string> arguments{"explain", shippedModel("kjv")};
  EXPECT_EQ(runProgram(arguments).out.find('\x1b'), std::string::npos);
  arguments.insert(arguments.end(), {"--color", "always"});
  EXPECT_NE(runProgram(arguments).out.find('\x1b'), std::string::npos);
  arguments.back() = "never";
  EXPECT_EQ(runProgram(arguments).out.find('\x1b'), std::string::npos);
}

TEST(ExplainTest, NamesFromTheFileCannotDriveATerminal) {
  TemporaryFolder folder;
  std::string text = decoderText({gated});
  for (size_t at = text.find("gated_0"); at != std::string::npos; at = text.find("gated_0", at))
    text.replace(at, 7, "\"\x1b[31mred\"");
  std::string path = folder.write("m.onnxtxt", text);
  ASSERT_EQ(runProgram({"opt", path, "--pipeline", "", "-o", folder.path("m.onnx")}).code, 0);
  ProgramResult result = runProgram({"explain", folder.path("m.onnx")});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out.find('\x1b'), std::string::npos);
  EXPECT_NE(result.out.find("\\x1b[31mred"), std::string::npos) << result.out;
}

TEST(ExplainTest, ExitCodes) {
  TemporaryFolder folder;
  std::string model = writeDecoder(folder, "m", {plain});
  EXPECT_EQ(runProgram({"explain"}).code, 2);
  EXPECT_EQ(runProgram({"explain", model, "--to", "nowhere"}).code, 2);
  EXPECT_EQ(runProgram({"explain", model, "--rule", "no-rule"}).code, 2);
  EXPECT_EQ(runProgram({"explain", model, "--layer", "x"}).code, 2);
  EXPECT_EQ(runProgram({"explain", model, "--step-budget", "-1"}).code, 2);
  for (const std::string& path :
       {folder.path("missing.onnx"), folder.path(), folder.write("text.onnx", "no model\n")}) {
    ProgramResult result = runProgram({"explain", path});
    EXPECT_EQ(result.code, 3) << path;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(countLines(result.err), 1u) << result.err;
  }
}

} // namespace
} // namespace kvopt
