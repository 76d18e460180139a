// Inspecting, rewriting and comparing through the C interface.
#include "tests/api/cpp17_calls.h"
#include "tests/api/handles.h"

#include "gmock/gmock.h"

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include <unistd.h>

namespace kvopt::api {
namespace {

using testing::HasSubstr;
using testing::Not;

using ResultHandle = std::unique_ptr<kvopt_result, void (*)(kvopt_result*)>;
using BytesHandle = std::unique_ptr<kvopt_bytes, void (*)(kvopt_bytes*)>;

std::string taken(kvopt_bytes* bytes) {
  const BytesHandle owner(bytes, kvopt_bytes_free);
  return {kvopt_bytes_data(bytes), kvopt_bytes_size(bytes)};
}

ResultHandle rewritten(const kvopt_model* model, const std::vector<kvopt_option>& options) {
  kvopt_result* result = nullptr;
  EXPECT_EQ(textOf(kvopt_rewrite(model, options.data(), options.size(), nullptr, &result)), "");
  return {result, kvopt_result_free};
}

ModelHandle modelOf(const ResultHandle& result) {
  kvopt_model* made = nullptr;
  EXPECT_EQ(textOf(kvopt_result_model(result.get(), &made)), "");
  return {made, kvopt_model_free};
}

/// A folder that is removed.
class Folder {
public:
  Folder() {
    path = testing::TempDir() + "/kvopt_api_" + std::to_string(::getpid());
    std::filesystem::create_directories(path);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string operator/(const char* name) const { return path + "/" + name; }

  std::string path;
};

TEST(ApiInspect, GivesTheDocumentOfTheProgram) {
  const ModelHandle model = openShipped();
  kvopt_bytes* json = nullptr;
  ASSERT_EQ(textOf(kvopt_inspect(model.get(), nullptr, 0, nullptr, &json)), "");
  const std::string text = taken(json);
  EXPECT_THAT(text, HasSubstr("\"schema\":\"kvopt/inspect/1\""));
  EXPECT_THAT(text, HasSubstr("\"past_key_values.0.key\""));
}

TEST(ApiExplain, TakesOptions) {
  const ModelHandle model = openShipped();
  kvopt_bytes* json = nullptr;
  const kvopt_option options[] = {{"to", "ort"}, {"layer", "1"}};
  ASSERT_EQ(textOf(kvopt_explain(model.get(), options, 2, nullptr, &json)), "");
  const std::string text = taken(json);
  EXPECT_THAT(text, HasSubstr("\"schema\":\"kvopt/explain/1\""));
  EXPECT_THAT(text, HasSubstr("\"layers\":[1]"));
  EXPECT_THAT(text, HasSubstr("ort-gqa"));
}

TEST(ApiRewrite, ResultsAreRunSavedAndRewrittenAgain) {
  const Folder folder;
  const ModelHandle model = openShipped();
  const ResultHandle result = rewritten(model.get(), {{"to", "kvopt"}, {"verify", "quick"}});
  EXPECT_EQ(kvopt_result_is_unchanged(result.get()), 0);
  EXPECT_THAT(kvopt_result_report(result.get()), HasSubstr("\"rewritten\":2"));
  EXPECT_THAT(kvopt_result_manifest(result.get()), HasSubstr("kvopt/manifest/1"));

  const ModelHandle inMemory = modelOf(result);
  kvopt_model* made = inMemory.get();
  const SessionHandle session = sessionOf(made, 1, {{"capacity", "32"}});
  EXPECT_EQ(kvopt_session_capacity(session.get()), 32);
  EXPECT_EQ(generated(session.get(), {1, 2, 3}, shippedTokens.size()), shippedTokens);

  const std::string path = folder / "fused.onnx";
  ASSERT_EQ(textOf(kvopt_result_save(result.get(), path.c_str(), nullptr, 0, nullptr)), "");
  EXPECT_TRUE(std::filesystem::exists(folder / "fused.kv.json"));
  ASSERT_EQ(textOf(kvopt_model_open(path.c_str(), nullptr, 0, &made)), "");
  const ModelHandle written(made, kvopt_model_free);
  const ResultHandle again = rewritten(made, {{"to", "kvopt"}});
  EXPECT_EQ(kvopt_result_is_unchanged(again.get()), 1);
  const ResultHandle other = rewritten(made, {{"to", "ort"}});
  EXPECT_EQ(kvopt_result_is_unchanged(other.get()), 0);
}

TEST(ApiRewrite, BytesAndFilesGiveTheSame) {
  const ModelHandle model = openShipped();
  std::ifstream file(shippedModel(), std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  kvopt_model* made = nullptr;
  ASSERT_EQ(textOf(kvopt_model_from_bytes(bytes.data(), bytes.size(), nullptr, nullptr, 0, &made)),
            "");
  const ModelHandle inMemory(made, kvopt_model_free);
  std::string serialized[2];
  const kvopt_model* models[] = {model.get(), made};
  for (int i = 0; i < 2; ++i) {
    const ResultHandle result = rewritten(models[i], {{"to", "ort"}});
    kvopt_bytes* output = nullptr;
    ASSERT_EQ(textOf(kvopt_result_serialize(result.get(), &output)), "");
    serialized[i] = taken(output);
  }
  EXPECT_FALSE(serialized[0].empty());
  EXPECT_EQ(serialized[0], serialized[1]);
}

TEST(ApiRewrite, RefusalsCarryTheReport) {
  const ModelHandle model = openShipped();
  kvopt_result* result = nullptr;
  const kvopt_option options[] = {{"to", "kvopt"}, {"cache", "ring"}};
  const ErrorHandle error = held(kvopt_rewrite(model.get(), options, 2, nullptr, &result));
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(kvopt_error_get_kind(error.get()), KVOPT_ERROR_REFUSED);
  EXPECT_STREQ(kvopt_error_code(error.get()), "no-window");
  EXPECT_STRNE(kvopt_error_hint(error.get()), "");
  EXPECT_THAT(kvopt_error_report(error.get()), HasSubstr("no-window"));
  EXPECT_EQ(result, nullptr);
}

TEST(ApiRewrite, NeverReplacesItsInput) {
  const Folder folder;
  const std::string path = folder / "model.onnx";
  std::filesystem::copy_file(shippedModel(), path);
  kvopt_model* made = nullptr;
  ASSERT_EQ(textOf(kvopt_model_open(path.c_str(), nullptr, 0, &made)), "");
  const ModelHandle model(made, kvopt_model_free);
  const ResultHandle result = rewritten(made, {{"to", "ort"}});
  EXPECT_EQ(codeOf(kvopt_result_save(result.get(), path.c_str(), nullptr, 0, nullptr)), "usage");
  const std::string missing = folder / "missing/model.onnx";
  EXPECT_EQ(codeOf(kvopt_result_save(result.get(), missing.c_str(), nullptr, 0, nullptr)), "io");
  EXPECT_EQ(std::filesystem::file_size(path), std::filesystem::file_size(shippedModel()));
}

TEST(ApiVerify, TellsEqualFromDifferent) {
  const ModelHandle model = openShipped();
  const ResultHandle result = rewritten(model.get(), {{"to", "onnx"}, {"opset", "23"}});
  const ModelHandle second = modelOf(result);
  kvopt_model* made = second.get();
  int equal = -1;
  kvopt_bytes* json = nullptr;
  const kvopt_option one[] = {{"prompt", "5"}, {"steps", "3"}};
  ASSERT_EQ(textOf(kvopt_verify(model.get(), made, one, 2, nullptr, &equal, &json)), "");
  EXPECT_EQ(equal, 1);
  EXPECT_THAT(taken(json), HasSubstr("\"schema\":\"kvopt/verify/1\""));

  // The same model with other weights: the middle of the file is numbers.
  std::ifstream file(shippedModel(), std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  for (size_t i = 0; i < 4096; ++i)
    bytes[bytes.size() / 2 + i] = static_cast<char>(bytes[bytes.size() / 2 + i] ^ 1);
  kvopt_model* changed = nullptr;
  ASSERT_EQ(
      textOf(kvopt_model_from_bytes(bytes.data(), bytes.size(), nullptr, nullptr, 0, &changed)),
      "");
  const ModelHandle third(changed, kvopt_model_free);
  json = nullptr;
  ASSERT_EQ(textOf(kvopt_verify(model.get(), changed, one, 2, nullptr, &equal, &json)), "");
  EXPECT_EQ(equal, 0);
  EXPECT_THAT(taken(json), HasSubstr("\"schema\":\"kvopt/verify/1\""));
}

TEST(ApiCheck, ProvesARewriteAndFindsADifference) {
  const ModelHandle model = openShipped();
  const ResultHandle result = rewritten(model.get(), {{"to", "onnx"}, {"opset", "23"}});
  const ModelHandle second = modelOf(result);
  kvopt_model* made = second.get();
  int equal = -1;
  kvopt_bytes* json = nullptr;
  ASSERT_EQ(textOf(kvopt_check(model.get(), made, nullptr, 0, nullptr, &equal, &json)), "");
  EXPECT_EQ(equal, 1);
  const std::string report = taken(json);
  EXPECT_THAT(report, HasSubstr("\"schema\":\"kvopt/check/1\""));
  EXPECT_THAT(report, HasSubstr("\"verdict\":\"proved-reduced\""));

  // Equality in the scope is enough only if the caller says so.
  const ResultHandle inPools =
      rewritten(model.get(), {{"to", "paged"}, {"padding", "none"}, {"verify", "off"}});
  const ModelHandle third = modelOf(inPools);
  kvopt_model* unpadded = third.get();
  json = nullptr;
  ASSERT_EQ(textOf(kvopt_check(model.get(), unpadded, nullptr, 0, nullptr, &equal, &json)), "");
  EXPECT_EQ(equal, 0);
  EXPECT_THAT(taken(json), HasSubstr("\"verdict\":\"tested\""));
  json = nullptr;
  const kvopt_option allowed[] = {{"allow-tested", "true"}, {"seed", "1"}};
  ASSERT_EQ(textOf(kvopt_check(model.get(), unpadded, allowed, 2, nullptr, &equal, &json)), "");
  EXPECT_EQ(equal, 1);
  EXPECT_THAT(taken(json), HasSubstr("\"verdict\":\"tested\""));

  const kvopt_option files[] = {{"manifest", "m.json"}};
  json = nullptr;
  EXPECT_EQ(codeOf(kvopt_check(model.get(), made, files, 1, nullptr, &equal, &json)), "usage");
  const kvopt_option wrong[] = {{"seed", "three"}};
  EXPECT_EQ(codeOf(kvopt_check(model.get(), made, wrong, 1, nullptr, &equal, &json)), "usage");
  EXPECT_EQ(json, nullptr);
}

/// A field of a serialized message, of at most 16383 bytes.
std::string field(int number, const std::string& bytes) {
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size() | 128),
                     static_cast<char>(bytes.size() >> 7)} +
         bytes;
}
std::string field(int number, char value) { return {static_cast<char>(number << 3), value}; }

/// A serialized model that multiplies `inputs_embeds` by a factor.
std::string scaling(float factor) {
  std::string number(sizeof(float), 0);
  std::memcpy(number.data(), &factor, sizeof(float));
  const std::string extents =
      field(1, field(2, "batch")) + field(1, field(2, "sequence")) + field(1, field(1, '\4'));
  const std::string type = field(2, field(1, field(1, '\1') + field(2, extents)));
  const std::string node =
      field(1, "inputs_embeds") + field(1, "factor") + field(2, "out") + field(4, "Mul");
  return field(1, '\10') +
         field(7, field(1, node) + field(2, "g") +
                      field(5, field(2, '\1') + field(8, "factor") + field(9, number)) +
                      field(11, field(1, "inputs_embeds") + type) +
                      field(12, field(1, "out") + type)) +
         field(8, field(2, '\21'));
}

TEST(ApiCheck, WritesTheStepOfADifference) {
  const Folder folder;
  const std::string before = folder / "before.onnx";
  const std::string after = folder / "after.onnx";
  std::ofstream(before, std::ios::binary) << scaling(0.5F);
  std::ofstream(after, std::ios::binary) << scaling(0.75F);
  const std::string recording = folder / "recording";
  const auto [isSame, proof] = checkedWithCounterexample(before, before, recording);
  EXPECT_TRUE(isSame) << proof;
  EXPECT_THAT(proof, Not(HasSubstr("\"replay\"")));
  EXPECT_FALSE(std::filesystem::exists(recording));

  const auto [isEqual, report] = checkedWithCounterexample(before, after, recording);
  EXPECT_FALSE(isEqual);
  EXPECT_THAT(report, HasSubstr("kvopt verify " + after + " --reference " + recording));
  EXPECT_THAT(report, HasSubstr("\"visible\":true"));
  EXPECT_FALSE(comparedWithRecording(after, recording).first);
  EXPECT_TRUE(comparedWithRecording(before, recording).first);
  // The folder is not empty any more.
  EXPECT_EQ(checkedWithCounterexample(before, after, recording).second, "usage: " + recording);

  // A model of bytes has no path that a command could name.
  const std::string bytes = scaling(0.75F);
  kvopt_model* made = nullptr;
  ASSERT_EQ(textOf(kvopt_model_open(before.c_str(), nullptr, 0, &made)), "");
  const ModelHandle first(made, kvopt_model_free);
  ASSERT_EQ(textOf(kvopt_model_from_bytes(bytes.data(), bytes.size(), nullptr, nullptr, 0, &made)),
            "");
  const ModelHandle second(made, kvopt_model_free);
  const std::string other = folder / "other";
  const kvopt_option named[] = {{"counterexample", other.c_str()}};
  int equal = -1;
  kvopt_bytes* json = nullptr;
  ASSERT_EQ(textOf(kvopt_check(first.get(), made, named, 1, nullptr, &equal, &json)), "");
  EXPECT_EQ(equal, 0);
  EXPECT_THAT(taken(json), HasSubstr("\"replay\":{\"folder\":\"" + other +
                                     "\",\"command\":null,\"visible\":true"));
}

TEST(ApiDiff, ListsChanges) {
  const ModelHandle model = openShipped();
  const ResultHandle result = rewritten(model.get(), {{"to", "ort"}});
  const ModelHandle second = modelOf(result);
  kvopt_model* made = second.get();
  kvopt_bytes* json = nullptr;
  ASSERT_EQ(textOf(kvopt_diff(model.get(), made, nullptr, 0, nullptr, &json)), "");
  EXPECT_THAT(taken(json), HasSubstr("GroupQueryAttention"));
}

TEST(ApiProgress, IsReportedAndCancels) {
  const ModelHandle model = openShipped();
  int calls = 0;
  kvopt_progress progress{sizeof(kvopt_progress),
                          [](void* user, const char* what, uint64_t, uint64_t) {
                            EXPECT_STRNE(what, "");
                            ++*static_cast<int*>(user);
                            return 0;
                          },
                          &calls};
  kvopt_result* result = nullptr;
  ASSERT_EQ(textOf(kvopt_rewrite(model.get(), nullptr, 0, &progress, &result)), "");
  kvopt_result_free(result);
  EXPECT_GT(calls, 0);

  result = nullptr;
  progress.report = [](void*, const char*, uint64_t, uint64_t) { return 1; };
  EXPECT_EQ(codeOf(kvopt_rewrite(model.get(), nullptr, 0, &progress, &result)), "cancelled");
  EXPECT_EQ(result, nullptr);
  // The model is as it was.
  EXPECT_NE(rewritten(model.get(), {}), nullptr);

  progress.size = 1;
  EXPECT_EQ(codeOf(kvopt_rewrite(model.get(), nullptr, 0, &progress, &result)), "usage");
  progress = {sizeof(kvopt_progress), nullptr, nullptr};
  EXPECT_EQ(codeOf(kvopt_rewrite(model.get(), nullptr, 0, &progress, &result)), "usage");
}

TEST(ApiOperations, NullAndUnknownArgumentsAreErrors) {
  const ModelHandle model = openShipped();
  kvopt_bytes* json = nullptr;
  kvopt_result* result = nullptr;
  int equal = 0;
  EXPECT_EQ(codeOf(kvopt_inspect(nullptr, nullptr, 0, nullptr, &json)), "usage");
  EXPECT_EQ(codeOf(kvopt_inspect(model.get(), nullptr, 0, nullptr, nullptr)), "usage");
  EXPECT_EQ(codeOf(kvopt_explain(nullptr, nullptr, 0, nullptr, &json)), "usage");
  EXPECT_EQ(codeOf(kvopt_rewrite(model.get(), nullptr, 0, nullptr, nullptr)), "usage");
  EXPECT_EQ(codeOf(kvopt_add_cache(nullptr, nullptr, 0, nullptr, &result)), "usage");
  EXPECT_EQ(codeOf(kvopt_make_dynamic(nullptr, nullptr, 0, nullptr, &result)), "usage");
  EXPECT_EQ(codeOf(kvopt_verify(model.get(), nullptr, nullptr, 0, nullptr, &equal, &json)),
            "usage");
  EXPECT_EQ(codeOf(kvopt_verify(model.get(), model.get(), nullptr, 0, nullptr, nullptr, &json)),
            "usage");
  EXPECT_EQ(codeOf(kvopt_check(nullptr, model.get(), nullptr, 0, nullptr, &equal, &json)), "usage");
  EXPECT_EQ(codeOf(kvopt_check(model.get(), nullptr, nullptr, 0, nullptr, &equal, &json)), "usage");
  EXPECT_EQ(codeOf(kvopt_check(model.get(), model.get(), nullptr, 0, nullptr, nullptr, &json)),
            "usage");
  EXPECT_EQ(codeOf(kvopt_check(model.get(), model.get(), nullptr, 0, nullptr, &equal, nullptr)),
            "usage");
  EXPECT_EQ(codeOf(kvopt_diff(model.get(), nullptr, nullptr, 0, nullptr, &json)), "usage");
  EXPECT_EQ(codeOf(kvopt_result_serialize(nullptr, &json)), "usage");
  EXPECT_EQ(codeOf(kvopt_result_save(nullptr, "x", nullptr, 0, nullptr)), "usage");
  const kvopt_option unknown[] = {{"too", "ort"}};
  EXPECT_THAT(textOf(kvopt_rewrite(model.get(), unknown, 1, nullptr, &result)),
              HasSubstr("did you mean --to?"));
  const kvopt_option file[] = {{"output", "x.onnx"}};
  EXPECT_EQ(codeOf(kvopt_rewrite(model.get(), file, 1, nullptr, &result)), "usage");
  EXPECT_STREQ(kvopt_result_report(nullptr), "");
  kvopt_result_free(nullptr);
}

TEST(ApiOperations, ThreadsRewriteSideBySide) {
  const ModelHandle model = openShipped();
  std::vector<std::string> reports(4);
  std::vector<std::thread> threads;
  for (std::string& report : reports)
    threads.emplace_back([&] {
      const ResultHandle result = rewritten(model.get(), {{"to", "kvopt"}, {"verify", "quick"}});
      report = kvopt_result_manifest(result.get());
    });
  for (std::thread& thread : threads)
    thread.join();
  for (const std::string& report : reports)
    EXPECT_EQ(report, reports.front());
}

TEST(ApiVerify, RecordingsGiveTheSameInCpp17) {
  const std::string models = std::string(KVOPT_SOURCE_DIR) + "/models/";
  const std::string recording = models + "llama_gqa-ts14-eager/ref/b1.onnx";
  const ModelHandle model = openShipped();
  const kvopt_option options[] = {{"reference", recording.c_str()}};
  int equal = 0;
  kvopt_bytes* json = nullptr;
  ASSERT_EQ(textOf(kvopt_verify(model.get(), nullptr, options, 1, nullptr, &equal, &json)), "");
  const std::string report = taken(json);
  EXPECT_EQ(equal, 1);
  EXPECT_THAT(report, HasSubstr("kvopt/verify/1"));
  EXPECT_EQ(comparedWithRecording(shippedModel(), recording), std::pair(true, report));

  const auto other = comparedWithRecording(models + "qwen2-dynamo23-sdpa/model.onnx", recording);
  EXPECT_FALSE(other.first);
  EXPECT_FALSE(other.second.empty());
  EXPECT_EQ(comparedWithRecording(shippedModel(), "/nonexistent"),
            std::pair(false, std::string("io: /nonexistent")));
}

} // namespace
} // namespace kvopt::api
