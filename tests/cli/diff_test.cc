// kvopt diff: operators, interface and attention blocks of two models, and the picture of a block.
#include "tests/cli/cli_fixture.h"
#include "tests/cli/report/xml_check.h"

#include <gmock/gmock.h>

namespace kvopt {
using namespace cli;

namespace {

using testing::HasSubstr;

const std::string& exportedModel() {
  static const std::string path = shippedModel("llama_gqa-ts14-eager");
  return path;
}

std::string rewritten(const TemporaryFolder& folder, const std::string& target,
                      const std::vector<std::string>& more = {}) {
  std::string path = folder.path(target + ".onnx");
  std::vector<std::string> arguments{"rewrite", exportedModel(), "-o",       path,
                                     "--to",    target,          "--verify", "off"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  EXPECT_EQ(runProgram(arguments).code, 0);
  return path;
}

size_t countOf(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + part.size()))
    ++count;
  return count;
}

TEST(DiffTest, AModelIsTheSameAsItself) {
  nlohmann::json json = runJson({"diff", exportedModel(), exportedModel()});
  EXPECT_EQ(json["schema"], "kvopt/diff/1");
  EXPECT_EQ(json["same"], true);
  EXPECT_EQ(json["ops"]["before"], json["ops"]["after"]);
  EXPECT_TRUE(json["inputs"].empty() && json["outputs"].empty());
  ASSERT_EQ(json["blocks"].size(), 2u);
  for (const nlohmann::json& block : json["blocks"]) {
    EXPECT_EQ(block["change"], "same");
    EXPECT_EQ(block["before"], block["after"]);
  }
  ProgramResult text = runProgram({"diff", exportedModel(), exportedModel()});
  EXPECT_EQ(text.code, 0);
  EXPECT_THAT(text.out, HasSubstr("no difference"));
}

TEST(DiffTest, WhatAttentionWasSpelledWithAndIsNow) {
  TemporaryFolder folder;
  nlohmann::json json = runJson({"diff", exportedModel(), rewritten(folder, "onnx24")});
  EXPECT_EQ(json["same"], false);
  EXPECT_EQ(json["opsets"]["before"]["ai.onnx"], 14);
  EXPECT_EQ(json["opsets"]["after"]["ai.onnx"], 24);
  EXPECT_EQ(json["ops"]["after"]["TensorScatter"], 4);
  ASSERT_EQ(json["blocks"].size(), 2u);
  const nlohmann::json& block = json["blocks"][1];
  EXPECT_EQ(block["id"], "L1");
  EXPECT_EQ(block["kind"], "self");
  EXPECT_EQ(block["change"], "changed");
  const nlohmann::json& before = block["before"];
  EXPECT_EQ(before["pasts"],
            (std::vector<std::string>{"past_key_values.1.key", "past_key_values.1.value"}));
  EXPECT_EQ(before["one_buffer"], false);
  EXPECT_EQ(before["ops"]["MatMul"], 2);
  EXPECT_EQ(before["ops"]["Softmax"], 1);
  EXPECT_EQ(before["ops"]["Concat"], 2);
  // Weights of other layers and projections are not part of it.
  EXPECT_FALSE(before["ops"].contains("Gather"));
  const nlohmann::json& after = block["after"];
  EXPECT_EQ(after["ops"]["TensorScatter"], 2);
  EXPECT_EQ(after["ops"]["Attention"], 1);
  EXPECT_FALSE(after["ops"].contains("Softmax"));
  EXPECT_EQ(after["one_buffer"], true);
  // New lengths come in; caches get another extent.
  bool isAdded = false;
  bool isChanged = false;
  for (const nlohmann::json& input : json["inputs"]) {
    isAdded |= input["change"] == "added" && input["before"].is_null();
    isChanged |= input["change"] == "changed" &&
                 input["after"]["name"] == "past_key_values.1.value" &&
                 input["before"]["type"] != input["after"]["type"];
  }
  EXPECT_TRUE(isAdded) << json["inputs"];
  EXPECT_TRUE(isChanged) << json["inputs"];
}

TEST(DiffTest, EveryTargetIsUnderstood) {
  TemporaryFolder folder;
  for (const char* target : {"kvopt", "onnx23", "ort-gqa", "int8", "blocks"}) {
    SCOPED_TRACE(target);
    const std::vector<std::string> more = target == std::string("blocks")
                                              ? std::vector<std::string>{"--capacity", "2048"}
                                              : std::vector<std::string>{};
    nlohmann::json json = runJson({"diff", exportedModel(), rewritten(folder, target, more)});
    ASSERT_EQ(json["blocks"].size(), 2u);
    for (const nlohmann::json& block : json["blocks"]) {
      EXPECT_EQ(block["change"], "changed");
      EXPECT_EQ(block["before"]["ops"]["Softmax"], 1);
      EXPECT_GE(block["after"]["nodes"].size(), 1u);
      EXPECT_FALSE(block["after"]["ops"].contains("Softmax"));
    }
    // And backwards.
    nlohmann::json back =
        runJson({"diff", folder.path(std::string(target) + ".onnx"), exportedModel()});
    EXPECT_EQ(back["blocks"][0]["before"]["ops"], json["blocks"][0]["after"]["ops"]);
  }
}

TEST(DiffTest, LayersThatWereLeftAloneKeepTheirNodes) {
  TemporaryFolder folder;
  nlohmann::json json =
      runJson({"diff", exportedModel(), rewritten(folder, "kvopt", {"--layers", "1"})});
  ASSERT_EQ(json["blocks"].size(), 2u);
  const nlohmann::json& alone = json["blocks"][0];
  EXPECT_EQ(alone["after"]["ops"]["Softmax"], 1);
  EXPECT_EQ(alone["after"]["one_buffer"], false);
  EXPECT_EQ(alone["after"]["pasts"], alone["before"]["pasts"]);
  // Two casts went that did nothing, so that the product behind them reads something else.
  size_t others = 0;
  for (const nlohmann::json& node : alone["after"]["nodes"])
    others += node["kept"] == false;
  EXPECT_EQ(others, 1u);
  EXPECT_EQ(alone["before"]["nodes"].size(), alone["after"]["nodes"].size() + 2);
  EXPECT_EQ(json["blocks"][1]["change"], "changed");
  nlohmann::json one =
      runJson({"diff", exportedModel(), folder.path("kvopt.onnx"), "--layer", "1"});
  ASSERT_EQ(one["blocks"].size(), 1u);
  EXPECT_EQ(one["blocks"][0]["layer"], 1);
}

TEST(DiffTest, LikeLayersAreOneLine) {
  TemporaryFolder folder;
  ProgramResult text = runProgram({"diff", exportedModel(), rewritten(folder, "kvopt")});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("L0–L1  self  "));
  EXPECT_THAT(text.out, HasSubstr("Softmax"));
  EXPECT_THAT(text.out, HasSubstr("→ ai.kvopt::InPlaceKvSdpa; past and present in one buffer"));
  EXPECT_THAT(text.out, HasSubstr("and 1 more like it"));
  EXPECT_THAT(text.out, HasSubstr("Δ"));
  // Backwards, what was added is removed.
  ProgramResult back = runProgram({"diff", folder.path("kvopt.onnx"), exportedModel()});
  EXPECT_THAT(back.out, HasSubstr("L0–L1  self  ai.kvopt::InPlaceKvSdpa"));
}

TEST(DiffTest, TheSchemaComesFirst) {
  ProgramResult result = runProgram({"diff", exportedModel(), exportedModel(), "--format", "json"});
  EXPECT_EQ(nlohmann::ordered_json::parse(result.out).begin().key(), "schema");
}

TEST(DiffTest, UnlikeModels) {
  const std::string other = shippedModel("gpt2-dynamo18-eager");
  nlohmann::json json = runJson({"diff", exportedModel(), other});
  EXPECT_EQ(json["same"], false);
  EXPECT_EQ(json["blocks"].size(), 2u);
  nlohmann::json four = runJson({"diff", exportedModel(), shippedModel("kjv")});
  ASSERT_EQ(four["blocks"].size(), 4u);
  EXPECT_EQ(four["blocks"][3]["change"], "added");
  EXPECT_TRUE(four["blocks"][3]["before"].is_null());
}

TEST(DiffTest, ThePictureIsWellFormedAndShowsBothSides) {
  TemporaryFolder folder;
  const std::string path = rewritten(folder, "onnx24");
  ProgramResult result = runProgram({"diff", exportedModel(), path, "--format", "svg"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(XmlCheck(result.out).problem(), "");
  EXPECT_THAT(result.out, HasSubstr("Attention L0: before and after"));
  nlohmann::json json = runJson({"diff", exportedModel(), path});
  const nlohmann::json& block = json["blocks"][0];
  // One box a node, and one in the legend.
  size_t kept = 0;
  for (const char* side : {"before", "after"})
    for (const nlohmann::json& node : block[side]["nodes"])
      kept += node["kept"] == true;
  const size_t nodes = block["before"]["nodes"].size() + block["after"]["nodes"].size();
  EXPECT_EQ(countOf(result.out, "\"box kept\""), kept + 1);
  EXPECT_EQ(countOf(result.out, "\"box removed\"") + countOf(result.out, "\"box added\""),
            nodes - kept + 2);
  EXPECT_GE(countOf(result.out, "\"box added\""), 4u);
  EXPECT_THAT(result.out, HasSubstr(">TensorScatter<"));
  EXPECT_THAT(result.out, HasSubstr(">past_key_values.0.key<"));
  ProgramResult second =
      runProgram({"diff", exportedModel(), path, "--format", "svg", "--layer", "1"});
  EXPECT_THAT(second.out, HasSubstr("Attention L1"));
  ProgramResult none =
      runProgram({"diff", exportedModel(), path, "--format", "svg", "--layer", "7"});
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.err, HasSubstr("an attention L7"));
}

TEST(DiffTest, UnreadableFilesAreBadInput) {
  TemporaryFolder folder;
  EXPECT_EQ(runProgram({"diff", exportedModel(), folder.path("none.onnx")}).code, 3);
  EXPECT_EQ(runProgram({"diff", folder.write("x.onnx", "x"), exportedModel()}).code, 3);
  EXPECT_EQ(runProgram({"diff", exportedModel()}).code, 2);
  EXPECT_EQ(runProgram({"diff", exportedModel(), exportedModel(), "--format", "html"}).code, 2);
}

} // namespace
} // namespace kvopt
