// kvopt rewrite: report, files, and all the ways in which it writes nothing.
#include "tests/cli/cli_fixture.h"

#include "ir/manifest/manifest.h"
#include "ir/onnx/import.h"
#include "ir/op.h"

#include <unistd.h>

namespace kvopt {
using namespace cli;
using namespace ir;

namespace {

std::vector<std::string> rewriteTo(const std::string& output, std::vector<std::string> more = {}) {
  std::vector<std::string> arguments{
      "rewrite", shippedModel("llama_gqa-ts14-eager"), "-o", output, "--to", "kvopt"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

/// Whether the report of a rewrite shows that both models compute the same.
bool isShownEqual(const nlohmann::ordered_json& report) {
  if (report.contains("verify") && !report["verify"].is_null())
    return report["verify"]["equal"] == true;
  const std::string verdict = report["check"]["verdict"];
  return verdict == "proved" || verdict == "proved-reduced";
}

TEST(RewriteTest, JsonReport) {
  TemporaryFolder folder;
  std::vector<std::string> arguments = rewriteTo(folder.path("f.onnx"));
  arguments.insert(arguments.end(), {"--format", "json"});
  ProgramResult result = runProgram(arguments);
  ASSERT_EQ(result.code, 0) << result.err;
  auto json = nlohmann::ordered_json::parse(result.out);
  std::vector<std::string> keys;
  for (const auto& item : json.items())
    keys.push_back(item.key());
  EXPECT_EQ(keys, (std::vector<std::string>{"schema", "output", "target", "sites", "left",
                                            "assumptions", "ops", "cache_bytes_copied_per_token",
                                            "cache_bytes", "warnings", "opset", "ir_version",
                                            "external_data", "millis", "verify", "check"}));
  EXPECT_EQ(json["schema"], "kvopt/rewrite/1");
  EXPECT_EQ(json["output"], folder.path("f.onnx"));
  EXPECT_EQ(json["sites"]["rewritten"], 2);
  EXPECT_EQ(json["sites"]["total"], 2);
  EXPECT_EQ(json["ops"]["after"]["ai.kvopt::InPlaceKvSdpa"], 2);
  // 2 layers, key and value, 2 heads of 16 floats.
  EXPECT_EQ(json["cache_bytes_copied_per_token"]["context"], 4096);
  EXPECT_EQ(json["cache_bytes_copied_per_token"]["before"], 2 * 2 * 2 * 16 * 4 * 4096);
  EXPECT_EQ(json["cache_bytes_copied_per_token"]["after"], 2 * 2 * 2 * 16 * 4);
  EXPECT_EQ(json["opset"]["before"], json["opset"]["after"]);
  EXPECT_TRUE(isShownEqual(json));
  EXPECT_EQ(folder.entryCount(), 2u);
}

TEST(RewriteTest, ARefusalIsSaidQuietlyToo) {
  TemporaryFolder folder;
  const std::string model = folder.path("plain.onnx");
  ASSERT_EQ(
      runProgram({"opt", std::string(KVOPT_SOURCE_DIR) + "/tests/passes/targets/no_cache.onnxtxt",
                  "--pipeline", "infer-shapes", "-o", model})
          .code,
      0);
  const std::vector<std::string> arguments = {
      "rewrite", model, "-o", folder.path("out.onnx"), "--to", "kvopt", "--verify", "off"};
  const ProgramResult loud = runProgram(arguments);
  EXPECT_EQ(loud.code, 1);
  EXPECT_NE(loud.err.find("next: kvopt explain"), std::string::npos) << loud.err;
  std::vector<std::string> quietly = arguments;
  quietly.push_back("--quiet");
  const ProgramResult quiet = runProgram(quietly);
  EXPECT_EQ(quiet.code, 1);
  EXPECT_EQ(countLines(quiet.err), 1u) << quiet.err;
  EXPECT_NE(quiet.err.find("no-cache"), std::string::npos) << quiet.err;
  EXPECT_EQ(folder.entryCount(), 1u);
}

TEST(RewriteTest, BlocksAreWrittenOnce) {
  TemporaryFolder folder;
  const std::string blocks = folder.path("blocks.onnx");
  auto arguments = [&](const std::string& model, const std::string& output,
                       const std::string& target) {
    return std::vector<std::string>{"rewrite", model,        "-o", output,     "--to",
                                    target,    "--capacity", "70", "--format", "json"};
  };
  ProgramResult result =
      runProgram(arguments(shippedModel("llama_gqa-ts14-eager"), blocks, "blocks:16"));
  ASSERT_EQ(result.code, 0) << result.err;
  auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["ops"]["after"]["ai.kvopt::BlockKvSdpa"], 2);
  // Nothing but the new rows of 2 layers, key and value, 2 heads of 16 floats.
  EXPECT_EQ(json["cache_bytes_copied_per_token"]["after"], 2 * 2 * 2 * 16 * 4);
  EXPECT_TRUE(isShownEqual(json));
  EXPECT_EQ(runProgram(arguments(blocks, folder.path("same.onnx"), "blocks:16")).code, 0);
  for (const char* target : {"blocks:8", "blocks", "kvopt"})
    EXPECT_EQ(runProgram(arguments(blocks, folder.path("other.onnx"), target)).code, 1) << target;
}

TEST(RewriteTest, APyramidIsWrittenWholeOrNotAtAll) {
  TemporaryFolder folder;
  const std::string model = shippedModel("llama_gqa-ts14-eager");
  const std::string output = folder.path("p.onnx");
  const std::vector<std::string> arguments{"rewrite", model,        "-o",         output,
                                           "--to",    "pyramid:16", "--capacity", "40"};
  // One of the variants' places is taken by a folder.
  std::filesystem::create_directory(folder.path("p.past1.onnx"));
  EXPECT_EQ(runProgram(arguments).code, 2);
  EXPECT_EQ(folder.entryCount(), 1u);
  std::filesystem::remove(folder.path("p.past1.onnx"));
  ProgramResult result = runProgram(arguments);
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("weights in p.onnx.data"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("p.past2.onnx"), std::string::npos) << result.out;
  EXPECT_EQ(folder.entryCount(), 6u); // 4 variants, their weights, the manifest
  auto manifest = nlohmann::json::parse(folder.read("p.kv.json"));
  ASSERT_EQ(manifest["variants"].size(), 4u);
  EXPECT_EQ(manifest["variants"][1]["file"], "p.past1.onnx");
  EXPECT_EQ(manifest["variants"][3]["file"], "p.onnx");
  EXPECT_EQ(manifest["variants"][3]["past_rows"], 40);
  EXPECT_EQ(runProgram({"verify", model, output, "--steps", "8"}).code, 0);
  EXPECT_EQ(runProgram({"run", output, "--tokens", "1,2,3", "--steps", "30"}).out,
            runProgram({"run", model, "--tokens", "1,2,3", "--steps", "30"}).out);
}

TEST(RewriteTest, APyramidIsWrittenAgainAsItIsAndTakenForNothingElse) {
  TemporaryFolder folder;
  const std::string first = folder.path("p.onnx");
  auto arguments = [&](const std::string& model, const std::string& output,
                       const std::string& target) {
    return std::vector<std::string>{"rewrite", model,  "-o",         output,
                                    "--to",    target, "--capacity", "40"};
  };
  ASSERT_EQ(runProgram(arguments(shippedModel("llama_gqa-ts14-eager"), first, "pyramid:16")).code,
            0);
  const std::string again = folder.path("q.onnx");
  ProgramResult result = runProgram(arguments(first, again, "pyramid:16"));
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(folder.read("p.past1.onnx"), folder.read("q.past1.onnx"));
  EXPECT_FALSE(std::filesystem::exists(folder.path("q.onnx.data")));
  EXPECT_EQ(nlohmann::json::parse(folder.read("q.kv.json"))["variants"][1]["file"], "q.past1.onnx");
  EXPECT_EQ(runProgram({"verify", first, again}).code, 0);
  const size_t files = folder.entryCount();
  for (const char* target : {"pyramid:8", "kvopt", "blocks:16"})
    EXPECT_EQ(runProgram(arguments(first, folder.path("r.onnx"), target)).code, 1) << target;
  // The new variants would take the place of what they are made of.
  EXPECT_EQ(runProgram(arguments(folder.path("p.past1.onnx"), first, "pyramid:16")).code, 1);
  EXPECT_EQ(folder.entryCount(), files);
}

TEST(RewriteTest, TilesAreWrittenInPiecesWithAStateOfEitherType) {
  TemporaryFolder folder;
  const std::string model = shippedModel("llama_gqa-ts14-eager");
  for (const char* state : {"float32", "float16"}) {
    const std::string output = folder.path(std::string(state) + ".onnx");
    ProgramResult result = runProgram({"rewrite", model, "-o", output, "--to", "tiles:16",
                                       "--capacity", "40", "--tile-state", state});
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_NE(result.out.find(".part0.onnx"), std::string::npos) << result.out;
    const auto manifest = nlohmann::json::parse(folder.read(std::string(state) + ".kv.json"));
    EXPECT_EQ(manifest["tiles"]["state"], state);
    EXPECT_EQ(manifest["tiles"]["parts"].size(), 3u);
    EXPECT_EQ(runProgram({"run", output, "--tokens", "1,2,3", "--steps", "30"}).out,
              runProgram({"run", model, "--tokens", "1,2,3", "--steps", "30"}).out);
  }
  EXPECT_EQ(runProgram({"verify", model, folder.path("float32.onnx"), "--steps", "8"}).code, 0);
  // What is there is written again; with the other state it would be another model.
  const auto again = [&](const char* state) {
    return runProgram({"rewrite", folder.path("float16.onnx"), "-o", folder.path("again.onnx"),
                       "--to", "tiles:16", "--capacity", "40", "--tile-state", state})
        .code;
  };
  EXPECT_EQ(again("float16"), 0);
  EXPECT_TRUE(std::filesystem::exists(folder.path("again.tile0.onnx")));
  EXPECT_EQ(again("float32"), 1);
  ProgramResult wrong = runProgram({"rewrite", model, "-o", folder.path("x.onnx"), "--to",
                                    "pyramid:16", "--capacity", "40", "--tile-state", "float16"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_NE(wrong.err.find("does not have a state between tiles"), std::string::npos) << wrong.err;
}

TEST(RewriteTest, OneBranchOfAMergedDecoderTakesAllSteps) {
  TemporaryFolder folder;
  const std::string merged = folder.path("merged.onnx"), output = folder.path("out.onnx");
  ASSERT_EQ(runProgram({"gen", "llama", "--merged", "--vocab", "64", "-o", merged}).code, 0);
  const std::string tokens = runProgram({"run", merged, "--tokens", "1,2,3", "--steps", "12"}).out;
  ASSERT_FALSE(tokens.empty());
  for (const char* target : {"blocks:8", "blocks-plain:8", "pyramid:8", "tiles:8", "kvopt"}) {
    std::vector<std::string> arguments{"rewrite",  merged,  "-o",          output,
                                       "--to",     target,  "--capacity",  "24",
                                       "--verify", "quick", "--one-branch"};
    ProgramResult result = runProgram(arguments);
    ASSERT_EQ(result.code, 0) << target << result.out << result.err;
    EXPECT_NE(result.out.find("assumes  with an empty past"), std::string::npos) << result.out;
    EXPECT_EQ(runProgram({"run", output, "--tokens", "1,2,3", "--steps", "12"}).out, tokens)
        << target;
    // Without the option, only what keeps both branches takes the model.
    arguments.pop_back();
    EXPECT_EQ(runProgram(arguments).code, llvm::StringRef(target) == "kvopt" ? 0 : 1) << target;
  }
  // Branches share their caches: one alone is refused.
  const ProgramResult alone =
      runProgram({"rewrite", merged, "-o", output, "--to", "kvopt", "--layers", "0"});
  EXPECT_EQ(alone.code, 1) << alone.err;
  EXPECT_NE(alone.err.find("in other branches"), std::string::npos) << alone.err;
  const auto codeOf = [&](const std::string& model, std::vector<std::string> options) {
    std::vector<std::string> arguments{"rewrite", model,  "-o",          output,
                                       "--to",    "int8", "--one-branch"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return runProgram(arguments).code;
  };
  EXPECT_EQ(codeOf(merged, {}), 0);
  // What is taken for granted must be compared, and there must be two branches.
  EXPECT_EQ(codeOf(merged, {"--verify", "off"}), 2);
  EXPECT_EQ(codeOf(shippedModel("llama_gqa-ts14-eager"), {}), 1);
}

/// Branches that differ: what `--one-branch` takes for granted is wrong, and nothing is written.
TEST(RewriteTest, OneBranchIsNotWrittenWhereTheOtherComputesSomethingElse) {
  TemporaryFolder folder;
  const std::string merged = folder.path("merged.onnx"), output = folder.path("out.onnx");
  ASSERT_EQ(runProgram({"gen", "llama", "--merged", "--vocab", "64", "--layers", "1", "--hidden",
                        "16", "--heads", "2", "--intermediate", "16", "-o", merged})
                .code,
            0);
  std::string text = runProgram({"opt", merged, "--elements", "all"}).out;
  // In the branch that comes first, which is that without a past.
  const llvm::StringRef sigmoid = "Sigmoid (";
  ASSERT_LT(text.find("no_past ()"), text.find(sigmoid));
  text.replace(text.find(sigmoid), sigmoid.size(), "Tanh (");
  const std::string other = folder.path("other.onnx");
  ASSERT_EQ(runProgram({"opt", folder.write("other.onnxtxt", text), "-o", other}).code, 0);
  ProgramResult result = runProgram(
      {"rewrite", other, "-o", output, "--to", "blocks:8", "--capacity", "24", "--one-branch"});
  EXPECT_EQ(result.code, 1);
  EXPECT_NE(result.err.find("computes something else; nothing was written"), std::string::npos)
      << result.err;
  EXPECT_FALSE(std::filesystem::exists(output));
}

/// The names of variants and of their weights are not known before the model is lowered.
TEST(RewriteTest, TheManifestIsNoFileOfAPyramid) {
  TemporaryFolder folder;
  for (const char* name : {"p.onnx.data", "p.past1.onnx", "p.onnx"}) {
    ProgramResult result = runProgram({"rewrite", shippedModel("llama_gqa-ts14-eager"), "-o",
                                       folder.path("p.onnx"), "--to", "pyramid:16", "--capacity",
                                       "40", "--verify", "off", "--manifest", folder.path(name)});
    EXPECT_EQ(result.code, 2) << name;
    EXPECT_EQ(folder.entryCount(), 0u) << name;
  }
}

TEST(RewriteTest, APyramidHasItsWeightsOnce) {
  TemporaryFolder folder;
  ProgramResult result =
      runProgram({"rewrite", shippedModel("kjv"), "-o", folder.path("p.onnx"), "--to", "pyramid",
                  "--capacity", "40", "--external-data", "inline"});
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.err.find("written once"), std::string::npos) << result.err;
  EXPECT_EQ(folder.entryCount(), 0u);
}

TEST(RewriteTest, BlocksNeedACapacity) {
  TemporaryFolder folder;
  ProgramResult result = runProgram({"rewrite", shippedModel("llama_gqa-ts14-eager"), "-o",
                                     folder.path("b.onnx"), "--to", "blocks"});
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.err.find("--capacity"), std::string::npos) << result.err;
  EXPECT_EQ(folder.entryCount(), 0u);
}

TEST(RewriteTest, ANewerOpsetIsReported) {
  TemporaryFolder folder;
  std::vector<std::string> arguments{"rewrite", shippedModel("llama_gqa-ts14-eager"), "--dry-run",
                                     "--to", "onnx24"};
  ProgramResult text = runProgram(arguments);
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find("opset    14 -> 24"), std::string::npos) << text.out;
  EXPECT_EQ(text.out.find("IR version"), std::string::npos) << text.out;
  arguments.insert(arguments.end(), {"--format", "json"});
  auto json = nlohmann::json::parse(runProgram(arguments).out);
  EXPECT_EQ(json["opset"]["before"], 14);
  EXPECT_EQ(json["opset"]["after"], 24);
  EXPECT_EQ(json["ir_version"]["before"], json["ir_version"]["after"]);
  EXPECT_EQ(json["ops"]["after"]["TensorScatter"], 4);
}

TEST(RewriteTest, ASecondRewriteChangesNothing) {
  TemporaryFolder folder;
  const std::string once = folder.path("f.onnx");
  ASSERT_EQ(runProgram({"rewrite", shippedModel("llama_gqa-ts14-eager"), "-o", once, "--to",
                        "onnx24", "--verify", "off"})
                .code,
            0);
  ProgramResult again =
      runProgram({"rewrite", once, "-o", folder.path("g.onnx"), "--to", "onnx24"});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_NE(again.out.find("already"), std::string::npos) << again.out;
  EXPECT_EQ(folder.read("g.onnx"), folder.read("f.onnx"));
  EXPECT_EQ(folder.read("g.kv.json"), folder.read("f.kv.json"));
  ProgramResult dry =
      runProgram({"rewrite", once, "--dry-run", "--to", "onnx24", "--format", "json"});
  EXPECT_EQ(dry.code, 0) << dry.err;
  EXPECT_EQ(nlohmann::json::parse(dry.out)["already"], true);
  EXPECT_EQ(folder.entryCount(), 4u);
}

TEST(RewriteTest, GroupQueryAttentionIsInPlaceAlready) {
  TemporaryFolder folder;
  const std::string model = folder.path("gqa.onnx");
  ASSERT_EQ(runProgram({"gen", "llama", "--spelling", "gqa", "--vocab", "64", "-o", model}).code,
            0);
  for (const char* capacity : {"dynamic", "256"}) {
    SCOPED_TRACE(capacity);
    const std::string output = folder.path("out.onnx");
    const nlohmann::json json = runJson({"rewrite", model, "-o", output, "--capacity", capacity});
    EXPECT_EQ(json["already"], true);
    EXPECT_EQ(json["updated_in_place_by"], "com.microsoft::GroupQueryAttention");
    EXPECT_EQ(json["ops"]["before"], json["ops"]["after"]);
    EXPECT_TRUE(isShownEqual(json));
    const auto manifest = nlohmann::json::parse(folder.read("out.kv.json"));
    EXPECT_EQ(manifest["contract"], "shared-buffer");
    for (const auto& cache : manifest["caches"])
      EXPECT_EQ(cache["one_buffer"], true);
    EXPECT_EQ(runProgram({"verify", model, output}).code, 0);
    const ProgramResult difference = runProgram({"diff", model, output, "--format", "json"});
    EXPECT_EQ(nlohmann::json::parse(difference.out)["ops"]["before"],
              nlohmann::json::parse(difference.out)["ops"]["after"]);
  }
  const ProgramResult text = runProgram({"rewrite", model, "-o", folder.path("t.onnx")});
  EXPECT_EQ(text.out.rfind("nothing to do: com.microsoft::GroupQueryAttention updates", 0), 0u)
      << text.out;
  // Another engine has no such operator, and a read of the past's extents needs what they were.
  EXPECT_FALSE(runJson({"rewrite", model, "--dry-run", "--to", "kvopt"}).contains("already"));
}

TEST(RewriteTest, ARestOfLayersFollowsWhereCachesGrow) {
  TemporaryFolder folder;
  const std::string exported = shippedModel("llama_gqa-ts14-eager");
  const std::string half = folder.path("half.onnx");
  const std::string whole = folder.path("whole.onnx");
  ASSERT_EQ(runProgram({"rewrite", exported, "-o", half, "--to", "onnx23", "--layers", "0"}).code,
            0);
  nlohmann::json json = runJson({"rewrite", half, "-o", whole, "--to", "onnx23"});
  EXPECT_FALSE(json.contains("already"));
  EXPECT_EQ(json["ops"]["before"]["Attention"], 1);
  EXPECT_EQ(json["ops"]["after"]["Attention"], 2);
  EXPECT_EQ(runProgram({"verify", exported, whole}).code, 0);
  EXPECT_EQ(runJson({"rewrite", whole, "--dry-run", "--to", "onnx23"})["already"], true);
}

TEST(RewriteTest, WhatCannotBeTakenBackIsRefused) {
  TemporaryFolder folder;
  const std::string whole = folder.path("whole.onnx");
  ASSERT_EQ(runProgram(rewriteTo(whole)).code, 0);
  const std::string scattered = folder.path("scattered.onnx");
  ASSERT_EQ(runProgram({"rewrite", shippedModel("llama_gqa-ts14-eager"), "-o", scattered, "--to",
                        "onnx24"})
                .code,
            0);
  const std::string output = folder.path("again.onnx");
  const std::vector<std::vector<std::string>> commands = {
      {"rewrite", whole, "-o", output, "--to", "kvopt", "--layers", "0"},
      {"rewrite", scattered, "-o", output, "--to", "kvopt"}};
  for (const std::vector<std::string>& command : commands) {
    ProgramResult result = runProgram(command);
    EXPECT_EQ(result.code, 1) << result.out;
    EXPECT_NE(result.err.find("rewritten before, for '"), std::string::npos) << result.err;
    EXPECT_FALSE(std::filesystem::exists(output));
  }
}

TEST(RewriteTest, ManifestFileAndMetadataAreTheSame) {
  TemporaryFolder folder;
  ASSERT_EQ(runProgram(rewriteTo(folder.path("f.onnx"))).code, 0);
  OpRegistry ops;
  registerAll(ops);
  auto model = importModel(folder.path("f.onnx"), ops);
  ASSERT_TRUE(static_cast<bool>(model));
  const std::string* stored = (*model)->findMetadata(manifestKey);
  ASSERT_NE(stored, nullptr);
  EXPECT_EQ(folder.read("f.kv.json"), *stored + "\n");
  EXPECT_EQ(nlohmann::json::parse(*stored)["schema"], "kvopt/manifest/1");
  ASSERT_EQ(runProgram(rewriteTo(folder.path("g.onnx"), {"--manifest", folder.path("m")})).code, 0);
  EXPECT_EQ(folder.read("m"), folder.read("f.kv.json"));
  EXPECT_EQ(folder.read("g.onnx"), folder.read("f.onnx"));
}

TEST(RewriteTest, NothingIsWrittenOnADryRunOrARefusal) {
  TemporaryFolder folder;
  EXPECT_EQ(runProgram(rewriteTo(folder.path("f.onnx"), {"--dry-run"})).code, 0);
  EXPECT_EQ(folder.entryCount(), 0u);
  ProgramResult refused =
      runProgram(rewriteTo(folder.path("f.onnx"), {"--disable", "raise-spelled-attention"}));
  EXPECT_EQ(refused.code, 1) << refused.err;
  EXPECT_NE(refused.err, "");
  ProgramResult none = runProgram(rewriteTo(folder.path("f.onnx"), {"--layers", "99"}));
  EXPECT_EQ(none.code, 2) << none.err;
  EXPECT_NE(none.err.find("no layer 99"), std::string::npos) << none.err;
  EXPECT_EQ(folder.entryCount(), 0u);
}

TEST(RewriteTest, ARefusalIsAJsonObjectToo) {
  TemporaryFolder folder;
  nlohmann::json json = runJson(
      rewriteTo(folder.path("f.onnx"), {"--disable", "raise-spelled-attention"}), /*code=*/1);
  EXPECT_EQ(json["schema"], "kvopt/rewrite/1");
  EXPECT_TRUE(json["output"].is_null());
  EXPECT_EQ(json["sites"]["rewritten"], 0);
  EXPECT_EQ(json["sites"]["total"], 2);
  EXPECT_NE(json["message"], "");
  ASSERT_EQ(json["refused"].size(), 2u);
  for (const nlohmann::json& refusal : json["refused"]) {
    EXPECT_TRUE(refusal["code"].is_string());
    EXPECT_NE(refusal["node"], "");
    EXPECT_NE(refusal["hint"], "");
  }
  EXPECT_EQ(json["refused"][1]["id"], "L1");
  EXPECT_EQ(folder.entryCount(), 0u);
}

TEST(RewriteTest, OnlyKnownRulesAndPassesCanBeDisabled) {
  TemporaryFolder folder;
  ProgramResult unknown = runProgram(rewriteTo(folder.path("f.onnx"), {"--disable", "no-rule"}));
  EXPECT_EQ(unknown.code, 2);
  EXPECT_NE(unknown.err.find("'no-rule'"), std::string::npos) << unknown.err;
  EXPECT_EQ(runProgram(rewriteTo(folder.path("f.onnx"), {"--disable", "raise-attention"})).code, 1);
  EXPECT_EQ(folder.entryCount(), 0u);
}

TEST(RewriteTest, TheInputIsNeverOverwritten) {
  TemporaryFolder folder;
  std::filesystem::copy_file(shippedModel("gpt2-dynamo18-eager"), folder.path("a.onnx"));
  std::filesystem::create_symlink(folder.path("a.onnx"), folder.path("soft.onnx"));
  std::filesystem::create_hard_link(folder.path("a.onnx"), folder.path("hard.onnx"));
  std::string before = folder.read("a.onnx");
  for (const char* output : {"a.onnx", "soft.onnx", "hard.onnx"}) {
    ProgramResult result =
        runProgram({"rewrite", folder.path("a.onnx"), "-o", folder.path(output), "--to", "kvopt"});
    EXPECT_EQ(result.code, 2) << output << result.err;
  }
  for (const char* manifest : {"a.onnx", "out.onnx"})
    EXPECT_EQ(runProgram({"rewrite", folder.path("a.onnx"), "-o", folder.path("out.onnx"), "--to",
                          "kvopt", "--manifest", folder.path(manifest)})
                  .code,
              2);
  EXPECT_EQ(folder.read("a.onnx"), before);
  EXPECT_EQ(folder.entryCount(), 3u);
}

TEST(RewriteTest, AFolderThatCannotBeWrittenIsBadInput) {
  TemporaryFolder folder;
  ProgramResult missing = runProgram(rewriteTo(folder.path("none/f.onnx")));
  EXPECT_EQ(missing.code, 3) << missing.err;
  ProgramResult manifest =
      runProgram(rewriteTo(folder.path("f.onnx"), {"--manifest", folder.path("none/m.json")}));
  EXPECT_EQ(manifest.code, 3) << manifest.err;
  EXPECT_EQ(folder.entryCount(), 0u);
}

TEST(RewriteTest, SomeLayersOnly) {
  TemporaryFolder folder;
  nlohmann::json json = runJson(rewriteTo(folder.path("f.onnx"), {"--layers", "0"}));
  // The other layer keeps its spelling.
  EXPECT_EQ(json["ops"]["before"]["Softmax"], 2);
  EXPECT_EQ(json["ops"]["after"]["Softmax"], 1);
  EXPECT_EQ(json["ops"]["after"]["ai.kvopt::InPlaceKvSdpa"], 1);
  EXPECT_FALSE(json["ops"]["after"].contains("ai.kvopt::Sdpa"));
  EXPECT_EQ(json["sites"]["rewritten"], 1);
  EXPECT_EQ(json["sites"]["total"], 2);
  EXPECT_TRUE(isShownEqual(json));
  EXPECT_EQ(json["cache_bytes_copied_per_token"]["after"], 2 * 2 * 16 * 4 * (1 + 4096));
  auto manifest = nlohmann::json::parse(folder.read("f.kv.json"));
  ASSERT_EQ(manifest["caches"].size(), 4u);
  for (const auto& cache : manifest["caches"])
    EXPECT_EQ(cache["one_buffer"], cache["layer"] == 0);
  EXPECT_EQ(
      runProgram({"verify", shippedModel("llama_gqa-ts14-eager"), folder.path("f.onnx")}).code, 0);
}

TEST(RewriteTest, AFixedCapacityEndsGenerationAndRefusesALongerPrompt) {
  TemporaryFolder folder;
  nlohmann::json json = runJson(rewriteTo(folder.path("f.onnx"), {"--capacity", "4"}));
  EXPECT_TRUE(isShownEqual(json));
  auto run = [&](const char* prompt, const char* steps) {
    return runProgram({"run", folder.path("f.onnx"), "--tokens", prompt, "--steps", steps});
  };
  ProgramResult fits = run("1,2,3", "2");
  EXPECT_EQ(fits.code, 0);
  EXPECT_EQ(fits.err, "");
  ProgramResult full = run("1,2,3", "3");
  EXPECT_EQ(full.code, 0);
  EXPECT_EQ(full.out, fits.out) << "what four rows allow is printed";
  EXPECT_NE(full.err.find("capacity of 4"), std::string::npos) << full.err;
  ProgramResult tooLong = run("1,2,3,4,5", "1");
  EXPECT_EQ(tooLong.code, 2);
  EXPECT_EQ(tooLong.out, "");
  EXPECT_NE(tooLong.err.find("capacity of 4"), std::string::npos) << tooLong.err;
}

} // namespace
} // namespace kvopt
