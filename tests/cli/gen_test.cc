// kvopt gen: what it writes is found whole, and is rewritten without a difference.
#include "support/string_ends.h"
#include "tests/cli/cli_fixture.h"

#include "llvm/ADT/StringRef.h"

#include <gmock/gmock.h>

#include <fstream>

namespace kvopt {
using namespace cli;

namespace {

using testing::HasSubstr;

/// A small decoder of that kind; `more` are further arguments.
std::vector<std::string> genArguments(const std::string& kind, const std::string& path,
                                      const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments{
      "gen",     kind,  "-o",      path, "--hidden",        kind == "hybrid" ? "96" : "32",
      "--vocab", "200", "--heads", "4",  "--max-positions", "256"};
  if (kind == "window")
    arguments.insert(arguments.end(), {"--window", "11"});
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

struct GenCase {
  const char* kind;
  const char* spelling;
  const char* dtype;
};

void PrintTo(const GenCase& one, std::ostream* out) {
  *out << one.kind << " " << one.spelling << " " << one.dtype;
}

class GeneratedModelTest : public testing::TestWithParam<GenCase> {
protected:
  GeneratedModelTest() {
    const GenCase& one = GetParam();
    ProgramResult made = runProgram(
        genArguments(one.kind, path, {"--spelling", one.spelling, "--dtype", one.dtype}));
    EXPECT_EQ(made.code, 0) << made.err;
  }
  bool isLatent() const { return startsWith(GetParam().kind, "mla"); }

  TemporaryFolder folder;
  std::string path = folder.path("made.onnx");
};

TEST_P(GeneratedModelTest, EverySiteIsFoundWithItsFacts) {
  nlohmann::json found = runJson({"inspect", path});
  const llvm::StringRef kind = GetParam().kind;
  const bool isDual = kind == "encoder-decoder";
  const bool isHybrid = kind == "hybrid";
  ASSERT_EQ(found["sites"].size(), isDual ? 4u : isHybrid ? 1u : 2u);
  size_t crossed = 0;
  for (const nlohmann::json& site : found["sites"]) {
    EXPECT_EQ(site["status"], "matched") << site;
    EXPECT_EQ(site["q_heads"], 4);
    if (site["kind"] == "cross") {
      ++crossed;
      EXPECT_FALSE(site["causal"]);
      continue;
    }
    EXPECT_EQ(site["kind"], "self");
    const bool isGrouped = kind == "llama" || kind == "window" || isHybrid;
    EXPECT_EQ(site["kv_heads"], isGrouped || kind == "mqa" || kind == "mla-latent" ? 1 : 4);
    EXPECT_EQ(site["k_head_dim"], kind == "mla"          ? 12
                                  : kind == "mla-latent" ? 36
                                  : isHybrid             ? 24
                                                         : 8);
    EXPECT_EQ(site["v_head_dim"], kind == "mla-latent" ? 32 : isHybrid ? 24 : 8);
    EXPECT_TRUE(site["causal"]) << site;
    EXPECT_EQ(site["window"], kind == "window" ? 11 : 0) << site;
    EXPECT_NEAR(site["scale"].get<double>(),
                1 / std::sqrt(isLatent() ? 12.0
                              : isHybrid ? 24.0
                                         : 8.0),
                1e-3);
  }
  EXPECT_EQ(crossed, isDual ? 2u : 0u);
}

TEST_P(GeneratedModelTest, IsRewrittenWithoutADifference) {
  ProgramResult result = runProgram(
      {"rewrite", path, "-o", folder.path("out.onnx"), "--to", "kvopt", "--verify", "full"});
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("checked  OK"));
}

INSTANTIATE_TEST_SUITE_P(
    KindsAndTypes, GeneratedModelTest,
    testing::Values(
        GenCase{"llama", "torchscript", "float32"}, GenCase{"llama", "torchscript", "float16"},
        GenCase{"llama", "torchscript", "bfloat16"}, GenCase{"llama", "torchscript", "int4"},
        GenCase{"llama", "dynamo", "float32"}, GenCase{"llama", "dynamo", "float16"},
        GenCase{"llama", "attention", "float32"}, GenCase{"llama", "attention", "float16"},
        GenCase{"llama", "gqa", "float32"}, GenCase{"llama", "gqa", "float16"},
        GenCase{"llama", "gqa", "int4"}, GenCase{"mha", "torchscript", "float32"},
        GenCase{"mqa", "dynamo", "bfloat16"}, GenCase{"window", "torchscript", "float32"},
        GenCase{"window", "dynamo", "float16"}, GenCase{"window", "gqa", "float32"},
        GenCase{"window", "dynamo", "bfloat16"}, GenCase{"window", "dynamo", "int4"},
        GenCase{"mla", "torchscript", "float32"}, GenCase{"mla", "dynamo", "float16"},
        GenCase{"mla", "dynamo", "bfloat16"}, GenCase{"mla", "torchscript", "int4"},
        GenCase{"mla-latent", "torchscript", "float32"}, GenCase{"mla-latent", "dynamo", "float16"},
        GenCase{"mla-latent", "dynamo", "bfloat16"},
        GenCase{"encoder-decoder", "torchscript", "float32"},
        GenCase{"encoder-decoder", "dynamo", "float16"},
        GenCase{"encoder-decoder", "dynamo", "bfloat16"},
        GenCase{"encoder-decoder", "dynamo", "int4"},
        GenCase{"packed-qkv", "torchscript", "float32"}, GenCase{"packed-qkv", "dynamo", "float16"},
        GenCase{"packed-qkv", "torchscript", "bfloat16"},
        GenCase{"packed-qkv", "torchscript", "int4"}, GenCase{"packed-qkv", "attention", "float32"},
        GenCase{"packed-qkv", "gqa", "float32"}, GenCase{"hybrid", "gqa", "float32"},
        GenCase{"hybrid", "gqa", "bfloat16"}, GenCase{"hybrid", "gqa", "int4"}),
    [](const testing::TestParamInfo<GenCase>& parameter) {
      std::string name = std::string(parameter.param.kind) + "_" + parameter.param.spelling + "_" +
                         parameter.param.dtype;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

/// What a decoder caches does not change what it computes.
TEST(OtherCachesTest, DecodeTheSameAndAreRewrittenInPlace) {
  struct OtherCache {
    const char* kind;
    const char* cache;
    std::vector<std::string> rewrite;
  };
  const OtherCache caches[] = {{"llama", "static", {"rewrite", "--to", "kvopt"}},
                               {"llama", "none", {"add-cache", "--to", "kvopt"}},
                               {"window", "last-rows", {"rewrite", "--to", "ring"}},
                               {"window", "last-rows", {"rewrite", "--to", "onnx24-ring:2"}},
                               {"window", "none", {"add-cache", "--to", "ring"}}};
  for (const char* spelling : {"torchscript", "dynamo"})
    for (const OtherCache& other : caches) {
      SCOPED_TRACE(std::string(other.kind) + " " + other.cache + " " + spelling);
      TemporaryFolder folder;
      const std::string growing = folder.path("growing.onnx");
      const std::string model = folder.path("model.onnx");
      const std::string written = folder.path("written.onnx");
      ASSERT_EQ(runProgram(genArguments(other.kind, growing, {"--spelling", spelling})).code, 0);
      ASSERT_EQ(runProgram(genArguments(other.kind, model,
                                        {"--spelling", spelling, "--cache", other.cache}))
                    .code,
                0);
      auto decoded = [](const std::string& path) {
        const ProgramResult result =
            runProgram({"run", path, "--tokens", "5,6,7", "--steps", "20"});
        EXPECT_EQ(result.code, 0) << result.err;
        return result.out;
      };
      const std::string expected = decoded(growing);
      EXPECT_EQ(decoded(model), expected);
      std::vector<std::string> arguments = other.rewrite;
      arguments.insert(arguments.end(), {model, "-o", written, "--verify", "full"});
      const ProgramResult result = runProgram(arguments);
      ASSERT_EQ(result.code, 0) << result.err;
      EXPECT_THAT(result.err + result.out, HasSubstr("tokens equal"));
      EXPECT_EQ(decoded(written), expected);
    }
}

TEST(OtherCachesTest, WhatARingHasLostIsNotRestored) {
  TemporaryFolder folder;
  const std::string model = folder.path("model.onnx");
  const std::string ring = folder.path("ring.onnx");
  const std::string again = folder.path("again.onnx");
  ASSERT_EQ(runProgram(genArguments("window", model)).code, 0);
  ASSERT_EQ(runProgram({"rewrite", model, "-o", ring, "--to", "ring"}).code, 0);
  const ProgramResult same = runProgram({"rewrite", ring, "-o", again, "--to", "ring"});
  EXPECT_EQ(same.code, 0) << same.err;
  for (const char* target : {"ring", "onnx24-ring:3"}) {
    ASSERT_EQ(runProgram({"rewrite", model, "-o", ring, "--to", target}).code, 0);
    const ProgramResult other = runProgram({"rewrite", ring, "-o", again, "--to", "kvopt"});
    EXPECT_EQ(other.code, 1) << other.err;
    EXPECT_THAT(other.err, HasSubstr("its caches hold the last rows only"));
  }
}

TEST(OtherCachesTest, PaddingIsLeftUndefinedOnRequest) {
  TemporaryFolder folder;
  const std::string model = folder.path("model.onnx");
  const std::string written = folder.path("written.onnx");
  ASSERT_EQ(runProgram(genArguments("window", model)).code, 0);
  for (const bool isUndefined : {false, true}) {
    const ProgramResult result =
        runProgram({"rewrite", model, "-o", written, "--to", "kvopt", "--verify", "full",
                    "--hidden-rows", isUndefined ? "undefined" : "exact"});
    ASSERT_EQ(result.code, 0) << result.err;
    std::ifstream file(folder.path("written.kv.json"));
    const nlohmann::json manifest = nlohmann::json::parse(file);
    EXPECT_EQ(manifest.value("hidden_rows", "") == "undefined", isUndefined);
    const ProgramResult text = runProgram({"opt", written, "--pipeline", "infer-shapes"});
    ASSERT_EQ(text.code, 0) << text.err;
    EXPECT_EQ(text.out.find("causal = 1, window = 11") != std::string::npos, isUndefined);
  }
  EXPECT_EQ(
      runProgram({"rewrite", model, "-o", written, "--to", "kvopt", "--hidden-rows", "some"}).code,
      2);
}

TEST(Gen, WritesTheSameBytesForASeed) {
  TemporaryFolder folder;
  for (const char* name : {"a.onnx", "b.onnx"})
    ASSERT_EQ(runProgram(genArguments("llama", folder.path(name))).code, 0);
  ASSERT_EQ(runProgram(genArguments("llama", folder.path("c.onnx"), {"--seed", "1"})).code, 0);
  EXPECT_EQ(folder.read("a.onnx"), folder.read("b.onnx"));
  EXPECT_NE(folder.read("a.onnx"), folder.read("c.onnx"));
}

TEST(Gen, ExternalDataIsTheSameModel) {
  TemporaryFolder folder;
  const std::string inside = folder.path("inside.onnx");
  const std::string beside = folder.path("beside.onnx");
  ASSERT_EQ(runProgram(genArguments("llama", inside)).code, 0);
  nlohmann::json said = runJson(genArguments("llama", beside, {"--external-data", "always"}));
  EXPECT_EQ(said["schema"], "kvopt/gen/1");
  EXPECT_EQ(said["external_data"], "beside.onnx.data");
  EXPECT_GT(folder.read("beside.onnx.data").size(), 40000u);
  EXPECT_LT(folder.read("beside.onnx").size(), folder.read("inside.onnx").size());
  const std::vector<std::string> more{"--tokens", "5,6", "--steps", "6"};
  auto run = [&](const std::string& path) {
    std::vector<std::string> arguments{"run", path};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return runProgram(arguments);
  };
  EXPECT_EQ(run(beside).code, 0);
  EXPECT_EQ(run(beside).out, run(inside).out);
}

TEST(Gen, RefusesWhatMakesNoDecoder) {
  TemporaryFolder folder;
  const std::string path = folder.path("none.onnx");
  struct Refusal {
    std::vector<std::string> arguments;
    const char* message;
  };
  const Refusal refusals[] = {
      {{"llama", "--heads", "6", "--hidden", "60", "--kv-heads", "4"}, "cannot share"},
      {{"llama", "--heads", "7"}, "cannot be shared by 7 heads"},
      {{"llama", "--head-dim", "7"}, "cannot be rotated"},
      {{"llama", "--layers", "0"}, "the number of layers is 0"},
      {{"llama", "--layers", "1000000000"}, "the number of layers is 1000000000"},
      {{"llama", "--hidden", "9223372036854775807"}, "the hidden width"},
      {{"llama", "--vocab", "0"}, "the vocabulary is 0"},
      {{"llama", "--window", "4"}, "a window of 4"},
      {{"mqa", "--kv-heads", "2"}, "has 1 key/value heads, not 2"},
      {{"mla", "--spelling", "gqa"}, "GroupQueryAttention cannot"},
      {{"llama", "--spelling", "attention", "--opset", "17"}, "opset 17"},
      {{"llama", "--opset", "99"}, "opset 99"},
      {{"packed-qkv", "--merged"}, "can be merged"},
      {{"packed-qkv", "--cache", "none"}, "other caches than growing ones"},
      {{"llama", "--cache", "none", "--spelling", "gqa"}, "other caches than growing ones"},
      {{"llama", "--cache", "last-rows"}, "a window of at least 2 tokens"},
      {{"llama", "--cache", "ring"}, "--cache"},
      {{"llama", "--hidden", "65536", "--external-data", "never"}, "do not fit in one ONNX file"},
      {{"hybrid", "--layers", "1"}, "at least two layers"},
      {{"hybrid", "--spelling", "dynamo"}, "hybrids are spelled"},
      {{"llama", "--column-scales"}, "those of caches of codes"},
      {{"llama", "--cache-codes", "int4"}, "codes of 4 bits"},
      {{"packed-qkv", "--cache-codes", "int8"}, "caches hold codes with GroupQueryAttention"},
      {{"unknown"}, "unknown"},
  };
  for (const Refusal& refusal : refusals) {
    std::vector<std::string> arguments{"gen", "-o", path};
    arguments.insert(arguments.end(), refusal.arguments.begin(), refusal.arguments.end());
    ProgramResult result = runProgram(arguments);
    EXPECT_EQ(result.code, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr(refusal.message));
    EXPECT_EQ(folder.entryCount(), 0u);
  }
}

TEST(Gen, ADiskWithoutRoomIsOneMessage) {
  TemporaryFolder folder;
  ProgramResult result =
      runProgram({"gen", "llama", "-o", folder.path("huge.onnx"), "--layers", "16", "--hidden",
                  "1048576", "--heads", "4096", "--intermediate", "1048576"});
  EXPECT_EQ(result.code, 3) << result.err;
  EXPECT_EQ(countLines(result.err), 1u);
  EXPECT_THAT(result.err, HasSubstr("room"));
  EXPECT_EQ(folder.entryCount(), 0u);
}

/// Seven linear layers in each of two decoder layers, and the scores.
TEST(Gen, TransposedWeightsAreReadWhereTheyAre) {
  TemporaryFolder folder;
  const std::string path = folder.path("model.onnx");
  ASSERT_EQ(runProgram(genArguments("llama", path, {"--transposed-weights"})).code, 0);
  const nlohmann::json json = runJson({"run", path, "--tokens", "1,2,3", "--steps", "3", "--stats",
                                       "--folded-constants-limit", "0"});
  EXPECT_EQ(json["stats"]["folded_nodes"], 15);
  EXPECT_EQ(json["stats"]["folded_bytes"], 0);
  EXPECT_EQ(json["stats"]["streamed_nodes"], 0);
}

} // namespace
} // namespace kvopt
