// kvopt run: the demonstration model says what it was recorded to say, before and after, in one go
// or in several.
#include "tests/cli/cli_fixture.h"

#include <fstream>

namespace kvopt {
using namespace cli;

namespace {

TEST(RunTest, GreedyTextIsTheRecordedOneInEveryMode) {
  TemporaryFolder folder;
  ASSERT_EQ(
      runProgram({"rewrite", shippedModel("kjv"), "-o", folder.path("f.onnx"), "--to", "kvopt"})
          .code,
      0);
  std::ifstream file(std::string(KVOPT_SOURCE_DIR) + "/models/kjv/expected.json");
  auto expected = nlohmann::json::parse(file);
  ASSERT_EQ(expected["texts"].size(), 3u);
  for (const auto& text : expected["texts"]) {
    std::string greedy = text["greedy"];
    ASSERT_EQ(greedy.size(), 256u);
    for (const std::string& model : {shippedModel("kjv"), folder.path("f.onnx")})
      for (const char* cache : {"shared", "stateful"}) {
        nlohmann::json json =
            runJson({"run", model, "--text", text["prompt"], "--steps", "256", "--cache", cache});
        EXPECT_EQ(json["schema"], "kvopt/run/1");
        EXPECT_EQ(json["text"], greedy) << model << " " << cache;
        EXPECT_EQ(json["tokens"].size(), 256u);
      }
  }
}

/// The demonstration model, rewritten.
std::string fusedModel(const TemporaryFolder& folder) {
  std::string path = folder.path("f.onnx");
  EXPECT_EQ(runProgram({"rewrite", shippedModel("kjv"), "-o", path, "--to", "kvopt"}).code, 0);
  return path;
}

TEST(RunTest, AContextShiftContinuesInAFullCache) {
  TemporaryFolder folder;
  const std::string model = fusedModel(folder);
  std::vector<std::string> run{"run", model,        "--text", "In the beginning ", "--steps",
                               "80",  "--capacity", "40",     "--context-shift",   "--stats"};
  nlohmann::json json = runJson(run);
  EXPECT_EQ(json["stopped"], "steps");
  EXPECT_EQ(json["tokens"].size(), 80u);
  EXPECT_EQ(json["stats"]["context_shifts"], 4);
  EXPECT_EQ(json["stats"]["dropped_tokens"], 4 * 18);
  EXPECT_LE(json["stats"]["length"], 40);
  // The tokens before the first shift are those of a run without one.
  nlohmann::json whole = runJson({"run", model, "--text", "In the beginning ", "--steps", "80"});
  const std::string text = json["text"];
  EXPECT_EQ(text.substr(0, 23), whole["text"].get<std::string>().substr(0, 23));
  EXPECT_NE(runProgram(run).err.find("72 tokens dropped in 4 context shifts"), std::string::npos);
  // An exported model, whose caches grow, alike.
  run[1] = shippedModel("kjv");
  EXPECT_EQ(runJson(run)["text"], text);
  run[8] = "--context-shift=0";
  json = runJson(run);
  EXPECT_EQ(json["tokens"].size(), 80u);
  EXPECT_EQ(json["stats"]["dropped_tokens"], 3 * 20);
  for (const char* kept :
       {"--context-shift=39", "--context-shift=-1", "--context-shift=x", "--context-shift=0x10"}) {
    run[8] = kept;
    EXPECT_EQ(runProgram(run).code, 2) << kept;
  }
  const ProgramResult learned = runProgram({"run", shippedModel("gpt2-dynamo18-eager"), "--tokens",
                                            "1,2,3", "--steps", "4", "--context-shift"});
  EXPECT_EQ(learned.code, 4) << learned.err;
  EXPECT_NE(learned.err.find("does not say how cached rows are moved"), std::string::npos);
}

TEST(RunTest, AFullCacheEndsGenerationAndSaysSo) {
  TemporaryFolder folder;
  std::string model = fusedModel(folder);
  std::vector<std::string> run{"run", model, "--text", "In the", "--steps", "8", "--capacity", "8"};
  ProgramResult shared = runProgram(run);
  EXPECT_EQ(shared.code, 0);
  EXPECT_NE(shared.err.find("capacity of 8"), std::string::npos) << shared.err;
  nlohmann::json json = runJson(run);
  EXPECT_EQ(json["stopped"], "capacity");
  // Six tokens of the prompt, two of three generated ones.
  EXPECT_EQ(json["tokens"].size(), 3u);
  EXPECT_EQ(shared.out, json["text"].get<std::string>() + "\n");
  run.insert(run.end(), {"--mode", "stateful"});
  json = runJson(run);
  EXPECT_EQ(json["stopped"], "steps");
  EXPECT_EQ(json["tokens"].size(), 8u);
  // A prompt that does not fit is another thing.
  ProgramResult prompt =
      runProgram({"run", model, "--text", "In the beginning", "--capacity", "8"});
  EXPECT_EQ(prompt.code, 2);
  EXPECT_NE(prompt.err.find("capacity of 8"), std::string::npos) << prompt.err;
}

/// Caches that grow need no buffer, and take as many tokens as the capacity says.
TEST(RunTest, ACapacityLimitsGrowingCaches) {
  std::vector<std::string> run{"run", shippedModel("kjv"), "--text", "In the", "--steps",
                               "8",   "--capacity",        "8"};
  const nlohmann::json json = runJson(run);
  EXPECT_EQ(json["stopped"], "capacity");
  EXPECT_EQ(json["tokens"].size(), 3u);
  run.back() = "5";
  EXPECT_NE(runProgram(run).err.find("6 tokens do not fit into the cache's capacity of 5"),
            std::string::npos);
  TemporaryFolder folder;
  const std::string model = folder.path("d.onnx");
  ASSERT_EQ(runProgram({"gen", "llama", "--cache", "none", "--vocab", "64", "-o", model}).code, 0);
  const ProgramResult none = runProgram({"run", model, "--tokens", "1", "--capacity", "9"});
  EXPECT_EQ(none.code, 2);
  EXPECT_NE(none.err.find("it has no capacity"), std::string::npos) << none.err;
}

/// The contents of inputs that tokens do not determine are named.
TEST(RunTest, SaysWhatItMadeUp) {
  TemporaryFolder folder;
  const std::string model = folder.path("d.onnx");
  ASSERT_EQ(runProgram({"gen", "encoder-decoder", "--layers", "1", "--hidden", "32", "--heads", "2",
                        "--kv-heads", "2", "--vocab", "64", "-o", model})
                .code,
            0);
  std::vector<std::string> run{"run", model, "--tokens", "1,2", "--steps", "2"};
  const ProgramResult made = runProgram(run);
  EXPECT_EQ(made.code, 0) << made.err;
  EXPECT_NE(made.err.find("kvopt made up the contents of"), std::string::npos) << made.err;
  const nlohmann::json json = runJson(run);
  ASSERT_FALSE(json["made_up"].empty());
  for (const std::string name : json["made_up"])
    run.insert(run.end(), {"--input", name + "=zeros"});
  EXPECT_EQ(runProgram(run).err.find("made up"), std::string::npos);
  EXPECT_TRUE(
      runJson({"run", shippedModel("kjv"), "--text", "In", "--steps", "1"})["made_up"].empty());
}

/// A symbol that several made-up inputs share has one value: an adapter's rank.
TEST(RunTest, InputsThatShareASymbolAgree) {
  TemporaryFolder folder;
  std::ofstream(folder.path("a.onnxtxt")) << R"(<ir_version: 8, opset_import: ["" : 17]>
decoder (int64[B, S] input_ids, float[B, 1, P, 4] past_k, float[B, 1, P, 4] past_v,
         float[4, rank] lora_A, float[rank, 4] lora_B)
  => (float[] logits, float[] present_k, float[] present_v)
<float[3, 4] table = {0.1, 0.2, -0.3, 0.4, -0.5, 0.6, 0.7, -0.8, 0.9, 1.0, 1.1, -1.2}, int64[1] one = {1}>
{
  h = Gather (table, input_ids)
  a = MatMul (h, lora_A)
  b = MatMul (a, lora_B)
  x = Add (h, b)
  k = Unsqueeze (x, one)
  present_k = Concat <axis = 2> (past_k, k)
  present_v = Concat <axis = 2> (past_v, k)
  t = Transpose <perm = [0, 1, 3, 2]> (present_k)
  s = MatMul (k, t)
  p = Softmax (s)
  o = MatMul (p, present_v)
  y = Squeeze (o, one)
  head = Transpose <perm = [1, 0]> (table)
  logits = MatMul (y, head)
}
)";
  const std::string model = folder.path("a.onnx");
  ASSERT_EQ(runProgram({"opt", folder.path("a.onnxtxt"), "--pipeline", "", "-o", model}).code, 0);
  for (const std::vector<std::string>& prompts :
       {std::vector<std::string>{"--tokens", "1,2"}, {"--tokens", "1,2", "--tokens", "0,1"}}) {
    std::vector<std::string> run{"run", model, "--steps", "2"};
    run.insert(run.end(), prompts.begin(), prompts.end());
    const nlohmann::json json = runJson(run);
    EXPECT_EQ(json["made_up"], (nlohmann::json{"lora_A", "lora_B"}));
  }
}

TEST(RunTest, AJsonObjectSaysWhatTheTextSays) {
  std::string model = shippedModel("kjv");
  std::vector<std::string> run{"run", model, "--text", "And God", "--steps", "12", "--stats"};
  ProgramResult text = runProgram(run);
  EXPECT_EQ(text.code, 0);
  nlohmann::json json = runJson(run);
  EXPECT_EQ(json["text"].get<std::string>() + "\n", text.out);
  EXPECT_EQ(json["prompt_tokens"].size(), 7u);
  EXPECT_EQ(json["sequences"].size(), 1u);
  EXPECT_EQ(json["sequences"][0]["tokens"], json["tokens"]);
  const nlohmann::json& stats = json["stats"];
  EXPECT_EQ(stats["prefill_tokens"], 7);
  EXPECT_EQ(stats["decode_tokens"], 11);
  EXPECT_EQ(stats["length"], 18);
  // Keys and values of 4 layers, 2 heads of 32 floats.
  EXPECT_EQ(stats["cache_bytes"], 18 * 4 * 2 * 2 * 32 * 4);
  EXPECT_GT(stats["temporary_peak_bytes"], 0);
  EXPECT_EQ(stats["streamed_nodes"], 0);
  for (const char* words :
       {"prefill 7 tokens", "decode 11 tokens", "temporary memory", "nodes computed once"})
    EXPECT_NE(text.err.find(words), std::string::npos) << text.err;
  run.push_back("-q");
  EXPECT_EQ(runProgram(run).err, "");
}

TEST(RunTest, ASeedDecidesWhatIsDrawn) {
  TemporaryFolder folder;
  std::string model = fusedModel(folder);
  auto draw = [&](std::vector<std::string> more) {
    std::vector<std::string> run{"run", model, "--text", "And ", "--steps", "24"};
    run.insert(run.end(), more.begin(), more.end());
    return runJson(run)["text"].get<std::string>();
  };
  std::string greedy = draw({});
  std::string drawn = draw({"--temperature", "1", "--seed", "7"});
  EXPECT_NE(drawn, greedy);
  EXPECT_EQ(draw({"--seed", "7"}), drawn);
  EXPECT_EQ(draw({"--seed", "7", "--threads", "2"}), drawn);
  EXPECT_EQ(draw({"--seed", "7", "--chunk", "1"}), drawn);
  EXPECT_NE(draw({"--seed", "8"}), drawn);
  EXPECT_EQ(draw({"--seed", "7", "--top-k", "1"}), greedy);
  EXPECT_EQ(draw({"--temperature", "0", "--seed", "7"}), greedy);
  // With a probability this small only the most likely token is left.
  EXPECT_EQ(draw({"--top-p", "1e-9"}), greedy);
}

TEST(RunTest, StopsAtTextsAndTokens) {
  std::string model = shippedModel("kjv");
  nlohmann::json whole = runJson({"run", model, "--text", "In the beginning ", "--steps", "40"});
  std::string text = whole["text"];
  size_t space = text.find(' ', 1);
  ASSERT_NE(space, std::string::npos);
  nlohmann::json json = runJson({"run", model, "--text", "In the beginning ", "--steps", "40",
                                 "--stop", "no such text", "--stop", text.substr(1, 3)});
  EXPECT_EQ(json["text"], text.substr(0, 4));
  EXPECT_EQ(json["stopped"], "sequence");
  json = runJson({"run", model, "--text", "In the beginning ", "--steps", "40", "--eos", "1,32"});
  EXPECT_EQ(json["text"], text.substr(0, text.find(' ') + 1));
  EXPECT_EQ(json["stopped"], "token");
}

TEST(RunTest, PromptsOfABatchSayWhatTheySayAlone) {
  TemporaryFolder folder;
  const std::string model = fusedModel(folder);
  const std::vector<std::string> prompts = {"In the beginning ", "And", "The LORD is"};
  std::vector<std::string> run{"run", model, "--steps", "16"};
  for (const std::string& prompt : prompts)
    run.insert(run.end(), {"--text", prompt});
  nlohmann::json batch = runJson(run);
  ASSERT_EQ(batch["sequences"].size(), 3u);
  for (size_t row = 0; row < prompts.size(); ++row) {
    nlohmann::json alone = runJson({"run", model, "--steps", "16", "--text", prompts[row]});
    EXPECT_EQ(batch["sequences"][row]["text"], alone["text"]);
  }
  EXPECT_EQ(countLines(runProgram(run).out), 3u);
}

TEST(RunTest, GoingOnFromASavedCacheIsTheStraightRun) {
  TemporaryFolder folder;
  const std::string model = fusedModel(folder), saved = folder.path("saved.kv");
  auto run = [&](const std::string& tokens, const std::string& steps,
                 std::vector<std::string> more) {
    std::vector<std::string> arguments{"run", model,           "--tokens", tokens,   "--steps",
                                       steps, "--temperature", "0.9",      "--seed", "3"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return runJson(arguments)["tokens"].get<std::vector<int64_t>>();
  };
  const std::vector<int64_t> straight = run("73,110,32", "10", {});
  std::vector<int64_t> first = run("73,110,32", "5", {"--save-cache", saved});
  const std::vector<int64_t> rest = run(std::to_string(first.back()), "5", {"--load-cache", saved});
  first.insert(first.end(), rest.begin(), rest.end());
  EXPECT_EQ(first, straight);
  // The first three tokens of the saved seven are the prompt.
  EXPECT_EQ(run(std::to_string(straight[0]), "9", {"--load-cache", saved, "--crop", "3"}),
            std::vector<int64_t>(straight.begin() + 1, straight.end()));
}

TEST(RunTest, CacheFilesThatDoNotFit) {
  TemporaryFolder folder;
  std::string model = shippedModel("kjv");
  std::string saved = folder.path("saved.kv");
  ASSERT_EQ(runProgram({"run", model, "--text", "In", "--steps", "3", "--save-cache", saved}).code,
            0);
  std::string contents;
  {
    std::ifstream file(saved, std::ios::binary);
    contents.assign(std::istreambuf_iterator<char>(file), {});
    ASSERT_GT(contents.size(), 1000u);
  }
  std::string damaged = contents;
  damaged[damaged.size() - 100] = static_cast<char>(damaged[damaged.size() - 100] ^ 1);
  struct Case {
    std::string model;
    std::string file;
  };
  const Case cases[] = {
      {model, folder.path("missing.kv")},
      {model, folder.path()},
      {model, folder.write("empty.kv", "")},
      {model, folder.write("text.kv", "This is no cache.")},
      {model, folder.write("cut.kv", contents.substr(0, contents.size() / 2))},
      {model, folder.write("damaged.kv", damaged)},
      {fusedModel(folder), saved},
  };
  for (const Case& each : cases)
    for (const char* mode : {"shared", "stateful"}) {
      ProgramResult result = runProgram({"run", each.model, "--text", "x", "--steps", "2", "--mode",
                                         mode, "--load-cache", each.file});
      EXPECT_EQ(result.code, 3) << each.file << result.err;
      EXPECT_EQ(result.out, "");
      EXPECT_NE(result.err.find(each.file), std::string::npos) << result.err;
    }
  ProgramResult crop =
      runProgram({"run", model, "--text", "x", "--load-cache", saved, "--crop", "99"});
  EXPECT_EQ(crop.code, 2) << crop.err;
}

TEST(RunTest, WhatIsDumpedIsAReference) {
  TemporaryFolder folder;
  std::string model = shippedModel("kjv");
  std::string fused = fusedModel(folder);
  std::string steps = folder.path("steps");
  ASSERT_EQ(runProgram(
                {"run", model, "--text", "In the", "--steps", "4", "--chunk", "4", "--dump", steps})
                .code,
            0);
  for (const char* name : {"step0_q4", "step1_q2", "step2_q1", "step4_q1"})
    EXPECT_TRUE(std::filesystem::exists(steps + "/" + name + "/output_0.pb")) << name;
  nlohmann::json same = runJson({"verify", model, "--reference", steps});
  EXPECT_EQ(same["steps"].size(), 5u);
  for (const nlohmann::json& step : same["steps"])
    EXPECT_TRUE(step["outputs"]["logits"]["bit_exact"]) << step;
  EXPECT_EQ(runProgram({"verify", fused, "--reference", steps}).code, 0);
  // A folder with something in it stays as it is.
  EXPECT_EQ(runProgram({"run", model, "--text", "In the", "--dump", steps}).code, 2);
}

TEST(RunTest, AFailureAfterTheStepsLeavesNoDump) {
  TemporaryFolder folder;
  const std::string model = folder.path("m.onnx");
  // It has no caches to save, which shows in the end.
  ASSERT_EQ(runProgram({"gen", "llama", "-o", model, "--layers", "1", "--hidden", "8", "--heads",
                        "2", "--vocab", "8", "--cache", "none"})
                .code,
            0);
  const std::string existing = folder.path("existing");
  std::filesystem::create_directory(existing);
  for (const std::string& dump : {folder.path("new"), existing}) {
    const ProgramResult result = runProgram({"run", model, "--tokens", "1,2", "--steps", "3",
                                             "--dump", dump, "--save-cache", folder.path("c")});
    EXPECT_EQ(result.code, 2) << result.err;
    EXPECT_EQ(folder.entryCount(), 2u);
    EXPECT_TRUE(std::filesystem::is_empty(existing));
    EXPECT_EQ(runProgram({"run", model, "--tokens", "1,2", "--steps", "3", "--dump", dump}).code,
              0);
    EXPECT_TRUE(std::filesystem::exists(dump + "/step0_q2/output_0.pb"));
    if (dump != existing)
      std::filesystem::remove_all(dump);
  }
}

TEST(RunTest, WrongUsage) {
  std::string model = shippedModel("kjv");
  const std::vector<std::vector<std::string>> wrong = {
      {"--text", ""},
      {"--tokens", "1,x"},
      {"--tokens", "1,-2"},
      {"--tokens", "1", "--text", "a"},
      {"--tokens", "1", "--stop", "a"},
      {"--tokens", "1", "--crop", "0"},
      {"--text", "a", "--top-p", "0"},
      {"--text", "a", "--temperature", "-1"},
      {"--text", "a", "--top-k", "-1"},
      {"--text", "a", "--steps", "0"},
      {"--text", "a", "--save-cache", model},
      {"--tokens", "9223372036854775807"},
      {"--tokens", "18446744073709551617"},
  };
  for (std::vector<std::string> arguments : wrong) {
    arguments.insert(arguments.begin(), {"run", model});
    ProgramResult result = runProgram(arguments);
    EXPECT_EQ(result.code, 2) << testing::PrintToString(arguments) << result.err;
    EXPECT_EQ(result.out, "");
  }
  EXPECT_NE(runProgram({"run", model, "--tokens", "1,256"})
                .err.find("there is no token 256: the model has tokens from 0 to 255"),
            std::string::npos);
}

} // namespace
} // namespace kvopt
