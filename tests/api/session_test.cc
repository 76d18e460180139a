// Decoding through the C interface, against the tokens of the exported model.
#include "tests/api/cpp17_calls.h"
#include "tests/api/handles.h"

#include "gmock/gmock.h"

#include <dlpack/dlpack.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <thread>

extern "C" int kvopt_header_works(void);

namespace kvopt::api {
namespace {

using testing::HasSubstr;

TEST(ApiHeaders, AreUsableAlone) {
  EXPECT_EQ(kvopt_header_works(), 1);
  EXPECT_TRUE(kvoptHppWorks());
}

TEST(ApiSession, GeneratesWhatTheModelGenerates) {
  const ModelHandle model = openShipped();
  const SessionHandle session = sessionOf(model.get());
  EXPECT_EQ(generated(session.get(), {1, 2, 3}, shippedTokens.size()), shippedTokens);
  EXPECT_EQ(kvopt_session_length(session.get()), 10);
  EXPECT_EQ(kvopt_session_batch(session.get()), 1);
}

TEST(ApiSession, OutlivesItsModel) {
  ModelHandle model = openShipped();
  const SessionHandle session = sessionOf(model.get());
  model.reset();
  EXPECT_EQ(generated(session.get(), {1, 2, 3}, 4)[3], shippedTokens[3]);
}

TEST(ApiSession, OfBytesIsThatOfTheFile) {
  std::ifstream file(shippedModel(), std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  kvopt_model* model = nullptr;
  {
    const std::string copy = bytes.str();
    ASSERT_EQ(textOf(kvopt_model_from_bytes(copy.data(), copy.size(), nullptr, nullptr, 0, &model)),
              "");
  }
  const ModelHandle owner(model, kvopt_model_free);
  const SessionHandle session = sessionOf(model);
  EXPECT_EQ(generated(session.get(), {1, 2, 3}, shippedTokens.size()), shippedTokens);
}

TEST(ApiSession, FeedsPromptsInChunksAndBatches) {
  const ModelHandle model = openShipped();
  const SessionHandle chunks = sessionOf(model.get());
  fed(chunks.get(), {1, 2});
  EXPECT_EQ(fed(chunks.get(), {3}), shippedTokens[0]);
  const SessionHandle batch = sessionOf(model.get(), 2);
  EXPECT_EQ(fed(batch.get(), {1, 2, 3, 9, 8, 7}), shippedTokens[0]);
}

TEST(ApiSession, GoesBackForksAndReorders) {
  const ModelHandle model = openShipped();
  const SessionHandle session = sessionOf(model.get());
  generated(session.get(), {1, 2, 3}, 4);
  ASSERT_EQ(textOf(kvopt_session_crop(session.get(), 2)), "");
  kvopt_session* forked = nullptr;
  ASSERT_EQ(textOf(kvopt_session_fork(session.get(), &forked)), "");
  const SessionHandle fork(forked, kvopt_session_free);
  EXPECT_EQ(kvopt_session_output_count(forked), 0U);
  EXPECT_EQ(generated(session.get(), {3}, 4)[3], shippedTokens[3]);
  EXPECT_EQ(generated(forked, {3}, 4)[3], shippedTokens[3]);
  ASSERT_EQ(textOf(kvopt_session_reset(forked)), "");
  EXPECT_EQ(kvopt_session_length(forked), 0);

  const SessionHandle beams = sessionOf(model.get(), 2);
  fed(beams.get(), {9, 8, 1, 2});
  const int64_t rows[] = {1, 1};
  ASSERT_EQ(textOf(kvopt_session_reorder(beams.get(), rows, 2)), "");
  EXPECT_EQ(fed(beams.get(), {3, 5}), shippedTokens[0]);
}

TEST(ApiSession, SavesAndLoads) {
  const std::string path = testing::TempDir() + "/kvopt_api_session.kv";
  const ModelHandle model = openShipped();
  const SessionHandle session = sessionOf(model.get());
  fed(session.get(), {1, 2});
  ASSERT_EQ(textOf(kvopt_session_save(session.get(), path.c_str())), "");
  const SessionHandle loaded = sessionOf(model.get());
  ASSERT_EQ(textOf(kvopt_session_load(loaded.get(), path.c_str())), "");
  EXPECT_EQ(fed(loaded.get(), {3}), shippedTokens[0]);
  std::remove(path.c_str());
}

TEST(ApiSession, OutputsOutliveStepsAndSessionsAsDlpack) {
  const ModelHandle model = openShipped();
  SessionHandle session = sessionOf(model.get());
  fed(session.get(), {1, 2, 3});
  kvopt_tensor borrowed{};
  ASSERT_EQ(textOf(kvopt_session_output(session.get(), 0, &borrowed)), "");
  EXPECT_STREQ(kvopt_session_output_name(session.get(), 0), "logits");
  ASSERT_EQ(borrowed.rank, 3);
  EXPECT_EQ(borrowed.shape[1], 3);
  DLManagedTensor* kept = nullptr;
  ASSERT_EQ(textOf(kvopt_session_output_dlpack(session.get(), 0, &kept)), "");
  EXPECT_EQ(kept->dl_tensor.data, borrowed.data);
  const float first = static_cast<const float*>(kept->dl_tensor.data)[0];
  fed(session.get(), {4});
  session.reset();
  EXPECT_EQ(static_cast<const float*>(kept->dl_tensor.data)[0], first);
  kept->deleter(kept);
}

TEST(ApiSession, StepsWithTensorsOfTheCaller) {
  const ModelHandle model = openShipped();
  const SessionHandle session = sessionOf(model.get());
  int64_t tokens[] = {1, 2, 3};
  int64_t mask[] = {1, 1, 1};
  int64_t positions[] = {0, 1, 2};
  const int64_t shape[] = {1, 3};
  const char* names[] = {"input_ids", "attention_mask", "position_ids"};
  kvopt_tensor inputs[] = {{tokens, 7, 2, shape, nullptr},
                           {mask, 7, 2, shape, nullptr},
                           {positions, 7, 2, shape, nullptr}};
  ASSERT_EQ(textOf(kvopt_session_step(session.get(), names, inputs, 3, 3)), "");
  int64_t token = 0;
  ASSERT_EQ(textOf(kvopt_session_choose(session.get(), 0, nullptr, 0, &token)), "");
  EXPECT_EQ(token, shippedTokens[0]);
}

TEST(ApiSession, RefusesStepsWithWhatIsNoToken) {
  const ModelHandle model = openShipped();
  const SessionHandle session = sessionOf(model.get());
  int64_t ones[] = {1, 1, 1};
  int64_t positions[] = {0, 1, 2};
  const int64_t shape[] = {1, 3};
  const char* names[] = {"input_ids", "attention_mask", "position_ids"};
  for (const int64_t token : {int64_t{-1}, int64_t{160}}) {
    int64_t tokens[] = {1, 2, token};
    kvopt_tensor inputs[] = {{tokens, 7, 2, shape, nullptr},
                             {ones, 7, 2, shape, nullptr},
                             {positions, 7, 2, shape, nullptr}};
    EXPECT_THAT(textOf(kvopt_session_step(session.get(), names, inputs, 3, 3)),
                HasSubstr("there is no token " + std::to_string(token)));
  }
  EXPECT_EQ(kvopt_session_length(session.get()), 0);
}

/// Also where caches grow and need no buffer.
TEST(ApiSession, HonorsACapacity) {
  const ModelHandle model = openShipped();
  const SessionHandle session = sessionOf(model.get(), 1, {{"capacity", "4"}});
  EXPECT_EQ(kvopt_session_capacity(session.get()), 4);
  fed(session.get(), {1, 2, 3});
  const int64_t more[] = {4, 5};
  EXPECT_THAT(textOf(kvopt_session_feed(session.get(), more, 2)), HasSubstr("capacity of 4"));
  EXPECT_EQ(kvopt_session_length(session.get()), 3);
}

TEST(ApiSession, SeedsFromTheCachesOfAnother) {
  const ModelHandle model = openShipped();
  const SessionHandle session = sessionOf(model.get());
  fed(session.get(), {1, 2});
  const SessionHandle seeded = sessionOf(model.get());
  std::vector<DLManagedTensor*> rows;
  std::vector<const char*> names;
  std::vector<kvopt_tensor> caches;
  for (size_t i = 0; i < kvopt_session_cache_count(session.get()); ++i) {
    names.push_back(kvopt_session_cache_name(session.get(), i));
    rows.push_back(nullptr);
    ASSERT_EQ(textOf(kvopt_session_cache_dlpack(session.get(), i, &rows.back())), "");
    const DLTensor& held = rows.back()->dl_tensor;
    caches.push_back({held.data, 1, held.ndim, held.shape, held.strides});
  }
  ASSERT_EQ(textOf(kvopt_session_seed(seeded.get(), names.data(), caches.data(), names.size(), 2)),
            "");
  const SessionHandle other = sessionOf(model.get());
  const auto seedOther = [&](const std::vector<DLManagedTensor*>& given) {
    return kvopt_session_seed_dlpack(other.get(), names.data(), given.data(), given.size(), 2);
  };
  EXPECT_EQ(codeOf(seedOther(std::vector<DLManagedTensor*>(rows.size(), nullptr))), "usage");
  EXPECT_EQ(codeOf(kvopt_session_seed_dlpack(other.get(), nullptr, nullptr, 1, 2)), "usage");
  EXPECT_EQ(kvopt_session_length(other.get()), 0);
  ASSERT_EQ(textOf(seedOther(rows)), "");
  std::vector<std::pair<std::string, kvopt_tensor>> named;
  for (size_t i = 0; i < names.size(); ++i)
    named.emplace_back(names[i], caches[i]);
  EXPECT_EQ(tokensAfterSeeding(shippedModel(), named, 2, {3}, shippedTokens.size()), shippedTokens);
  for (DLManagedTensor* tensor : rows)
    tensor->deleter(tensor);
  EXPECT_EQ(fed(seeded.get(), {3}), shippedTokens[0]);
  EXPECT_EQ(fed(other.get(), {3}), shippedTokens[0]);
}

TEST(ApiSession, ErrorsLeaveItAsItWas) {
  const ModelHandle model = openShipped();
  const SessionHandle session = sessionOf(model.get());
  fed(session.get(), {1, 2});
  const int64_t outside[] = {1 << 20};
  EXPECT_NE(codeOf(kvopt_session_feed(session.get(), outside, 1)), "");
  for (const int64_t token : {int64_t{-1}, int64_t{160}, int64_t{1} << 32, INT64_MIN, INT64_MAX})
    EXPECT_THAT(textOf(kvopt_session_feed(session.get(), &token, 1)),
                HasSubstr("there is no token " + std::to_string(token)));
  EXPECT_EQ(codeOf(kvopt_session_feed(session.get(), nullptr, 1)), "usage");
  EXPECT_EQ(codeOf(kvopt_session_feed(session.get(), outside, 0)), "usage");
  EXPECT_EQ(codeOf(kvopt_session_feed(session.get(), outside, INT64_MIN)), "usage");
  EXPECT_EQ(codeOf(kvopt_session_crop(session.get(), 3)), "usage");
  EXPECT_EQ(codeOf(kvopt_session_crop(session.get(), -1)), "usage");
  const int64_t rows[] = {1};
  EXPECT_EQ(codeOf(kvopt_session_reorder(session.get(), rows, 1)), "usage");
  EXPECT_EQ(codeOf(kvopt_session_load(session.get(), shippedModel().c_str())), "invalid");
  EXPECT_EQ(codeOf(kvopt_session_save(session.get(), "/nonexistent/folder/file")), "io");
  int64_t token = 0;
  EXPECT_EQ(codeOf(kvopt_session_choose(session.get(), 1, nullptr, 0, &token)), "usage");
  EXPECT_EQ(kvopt_session_length(session.get()), 2);
  EXPECT_EQ(fed(session.get(), {3}), shippedTokens[0]);
}

TEST(ApiSession, RefusesTensorsThatAreNone) {
  const ModelHandle model = openShipped();
  const SessionHandle session = sessionOf(model.get());
  int64_t tokens[] = {1, 2, 3};
  const int64_t shape[] = {1, 3};
  const int64_t negative[] = {1, -3};
  const int64_t huge[] = {INT64_MAX, INT64_MAX};
  const char* name = "input_ids";
  const auto step = [&](const kvopt_tensor& tensor) {
    return textOf(kvopt_session_step(session.get(), &name, &tensor, 1, 3));
  };
  EXPECT_THAT(step({tokens, 8, 2, shape, nullptr}), HasSubstr("element type 8"));
  EXPECT_THAT(step({tokens, 999, 2, shape, nullptr}), HasSubstr("element type 999"));
  EXPECT_THAT(step({nullptr, 7, 2, shape, nullptr}), HasSubstr("no data"));
  EXPECT_THAT(step({tokens, 7, 2, nullptr, nullptr}), HasSubstr("no shape"));
  EXPECT_THAT(step({tokens, 7, -1, shape, nullptr}), HasSubstr("-1 axes"));
  EXPECT_NE(step({tokens, 7, 2, negative, nullptr}), "");
  EXPECT_NE(step({tokens, 7, 2, huge, nullptr}), "");
  EXPECT_THAT(step({tokens, 7, 2, shape, negative}), HasSubstr("negative stride"));
  EXPECT_NE(step({tokens, 7, 2, shape, nullptr}), "") << "attention_mask is missing";
  EXPECT_EQ(codeOf(kvopt_session_step(session.get(), nullptr, nullptr, 1, 3)), "usage");
}

TEST(ApiSession, ReadsOptionsByNameAndText) {
  const ModelHandle model = openShipped();
  kvopt_session* session = nullptr;
  const auto create = [&](std::vector<kvopt_option> options, int64_t batch = 1) {
    const std::string text =
        textOf(kvopt_session_create(model.get(), batch, options.data(), options.size(), &session));
    if (text.empty())
      kvopt_session_free(session);
    return text;
  };
  EXPECT_EQ(create({{"threads", "1"}, {"--capacity", "16"}}), "");
  EXPECT_THAT(create({{"thread", "1"}}), HasSubstr("did you mean --threads?"));
  EXPECT_THAT(create({{"--steps", "1"}}), HasSubstr("no option --steps"));
  EXPECT_THAT(create({{"threads", "many"}}), HasSubstr("'many' is not a whole number"));
  EXPECT_THAT(create({{"mode", "share"}}), HasSubstr("did you mean 'shared'?"));
  EXPECT_THAT(create({{nullptr, "1"}}), HasSubstr("has no name"));
  EXPECT_THAT(create({{"threads", nullptr}}), HasSubstr("has no text"));
  EXPECT_NE(create({}, 0), "");
  EXPECT_NE(create({}, INT64_MAX), "");
}

TEST(ApiSession, NullObjectsAreErrors) {
  kvopt_session* session = nullptr;
  EXPECT_EQ(codeOf(kvopt_session_create(nullptr, 1, nullptr, 0, &session)), "usage");
  const ModelHandle model = openShipped();
  EXPECT_EQ(codeOf(kvopt_session_create(model.get(), 1, nullptr, 1, &session)), "usage");
  EXPECT_EQ(codeOf(kvopt_session_create(model.get(), 1, nullptr, 0, nullptr)), "usage");
  EXPECT_EQ(codeOf(kvopt_session_crop(nullptr, 0)), "usage");
  EXPECT_EQ(codeOf(kvopt_session_fork(nullptr, &session)), "usage");
  EXPECT_EQ(codeOf(kvopt_session_output(nullptr, 0, nullptr)), "usage");
  EXPECT_EQ(codeOf(kvopt_session_statistics(nullptr, nullptr)), "usage");
  EXPECT_EQ(kvopt_session_length(nullptr), 0);
  EXPECT_EQ(kvopt_session_output_name(nullptr, 0), nullptr);
  EXPECT_EQ(kvopt_bytes_size(nullptr), 0U);
  kvopt_session_free(nullptr);
  kvopt_model_free(nullptr);
  kvopt_error_free(nullptr);
  kvopt_bytes_free(nullptr);
}

TEST(ApiModel, NamesWhatIsWrongWithAFile) {
  kvopt_model* model = nullptr;
  const ErrorHandle error = held(kvopt_model_open("/nonexistent.onnx", nullptr, 0, &model));
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(kvopt_error_get_kind(error.get()), KVOPT_ERROR_IO);
  EXPECT_STREQ(kvopt_error_file(error.get()), "/nonexistent.onnx");
  EXPECT_THAT(kvopt_error_message(error.get()), HasSubstr("cannot open"));
  EXPECT_EQ(model, nullptr);
  EXPECT_EQ(codeOf(kvopt_model_from_bytes("not a model", 11, nullptr, nullptr, 0, &model)),
            "invalid");
  EXPECT_EQ(codeOf(kvopt_model_from_bytes("", 0, nullptr, nullptr, 0, &model)), "invalid");
}

TEST(ApiSession, ThreadsDecodeSideBySide) {
  const ModelHandle model = openShipped();
  std::vector<std::vector<int64_t>> made(4);
  std::vector<std::thread> threads;
  for (std::vector<int64_t>& tokens : made)
    threads.emplace_back([&] {
      const SessionHandle session = sessionOf(model.get(), 1, {{"threads", "1"}});
      tokens = generated(session.get(), {1, 2, 3}, shippedTokens.size());
    });
  for (std::thread& thread : threads)
    thread.join();
  for (const std::vector<int64_t>& tokens : made)
    EXPECT_EQ(tokens, shippedTokens);
}

} // namespace
} // namespace kvopt::api
