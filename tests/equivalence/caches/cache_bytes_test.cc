// What a step of a rewritten model writes to its caches, counted and looked at byte by byte.
#include "tests/equivalence/rewritten_model.h"

namespace kvopt {
using namespace runtime;

namespace {

using CacheBytesTest = ShippedModelTest;

constexpr int64_t batch = 2;
constexpr int64_t capacity = 80;
const std::vector<int64_t> stepTokens = {33, 1, 1, 16, 1, 7, 1, 1, 1, 1};

/// Bytes of `rows` positions of one cache, over the whole batch.
int64_t rowBytes(const TensorView& buffer, int64_t rows) {
  return buffer.shape[0] * buffer.shape[1] * rows * buffer.shape[3] * 4;
}

std::vector<std::byte> snapshot(const TensorView& buffer) {
  return {buffer.data, buffer.data + buffer.byteSize()};
}

TEST_P(CacheBytesTest, AStepWritesItsOwnRowsAndNothingElse) {
  DrivenModel inPlace = rewritten(path(), toolkit);
  SessionOptions options;
  options.batch = batch;
  options.capacity = capacity;
  options.poison = true;
  auto session = openSession(inPlace, toolkit.runner->kernels(), options);
  TokenStream tokens(*inPlace.model, batch);
  std::vector<const std::byte*> places;
  for (size_t i = 0; i < session->cacheCount(); ++i)
    places.push_back(session->cacheBuffer(i).data);

  for (int64_t added : stepTokens) {
    int64_t past = session->length();
    SCOPED_TRACE(testing::Message() << "past " << past << ", new " << added);
    std::vector<std::vector<std::byte>> before;
    int64_t expected = 0;
    for (size_t i = 0; i < session->cacheCount(); ++i) {
      before.push_back(snapshot(session->cacheBuffer(i)));
      expected += rowBytes(session->cacheBuffer(i), added);
    }
    tokens.feed(*session, added);
    EXPECT_EQ(session->statistics().lastRun.cacheBytesWritten, expected);
    EXPECT_EQ(session->statistics().lastRun.inPlaceBytesCopied, 0);

    for (size_t i = 0; i < session->cacheCount(); ++i) {
      TensorView buffer = session->cacheBuffer(i);
      ASSERT_EQ(buffer.data, places[i]) << "past and present are one buffer";
      ASSERT_EQ(buffer.shape[2], capacity);
      auto width = static_cast<size_t>(buffer.shape[3]) * 4;
      for (int64_t line = 0; line < buffer.shape[0] * buffer.shape[1]; ++line)
        for (int64_t row = 0; row < capacity; ++row) {
          auto offset = static_cast<size_t>(line * capacity + row) * width;
          bool isNew = row >= past && row < past + added;
          bool isSame = std::memcmp(buffer.data + offset, before[i].data() + offset, width) == 0;
          // New rows were poison and are numbers now.
          ASSERT_EQ(isSame, !isNew) << "cache " << i << " line " << line << " row " << row;
        }
    }
  }
}

TEST_P(CacheBytesTest, AFullBufferRefusesAndIsUnchanged) {
  DrivenModel inPlace = rewritten(path(), toolkit);
  SessionOptions options;
  options.batch = batch;
  options.capacity = 8;
  auto session = openSession(inPlace, toolkit.runner->kernels(), options);
  TokenStream tokens(*inPlace.model, batch);
  tokens.feed(*session, 7);
  std::vector<std::vector<std::byte>> before;
  for (size_t i = 0; i < session->cacheCount(); ++i)
    before.push_back(snapshot(session->cacheBuffer(i)));
  EXPECT_THROW(tokens.feed(*session, 2), std::runtime_error);
  EXPECT_EQ(session->length(), 7);
  for (size_t i = 0; i < session->cacheCount(); ++i)
    EXPECT_EQ(snapshot(session->cacheBuffer(i)), before[i]);
  tokens.feed(*session, 1);
  EXPECT_EQ(session->length(), 8);
}

TEST_P(CacheBytesTest, StatefulSessionsMoveRowsOnlyWhenTheyGrow) {
  DrivenModel inPlace = rewritten(path(), toolkit);
  SessionOptions options;
  options.batch = batch;
  options.capacity = 8;
  options.mode = SessionOptions::Mode::Stateful;
  auto session = openSession(inPlace, toolkit.runner->kernels(), options);
  SessionOptions wide;
  wide.batch = batch;
  wide.capacity = capacity;
  auto fixed = openSession(inPlace, toolkit.runner->kernels(), wide);
  TokenStream tokens(*inPlace.model, batch);
  TokenStream again(*inPlace.model, batch);
  for (int64_t added : stepTokens) {
    int64_t reallocations = session->statistics().cacheReallocations;
    int64_t moved = session->statistics().cacheBytesMoved;
    StepResult grown = tokens.feed(*session, added);
    StepResult plain = again.feed(*fixed, added);
    if (session->statistics().cacheReallocations == reallocations) {
      EXPECT_EQ(session->statistics().cacheBytesMoved, moved);
    }
    ASSERT_EQ(grown.outputs.size(), plain.outputs.size());
    for (size_t i = 0; i < grown.outputs.size(); ++i)
      EXPECT_TRUE(
          valueOrThrow(compareTensors(grown.outputs[i].tensor.view, plain.outputs[i].tensor.view))
              .bitExact);
  }
  EXPECT_GE(session->statistics().cacheReallocations, 1);
  EXPECT_LE(session->statistics().cacheReallocations, 4);
  EXPECT_EQ(session->statistics().inPlaceBytesCopied, 0);
}

INSTANTIATE_TEST_SUITE_P(Shipped, CacheBytesTest, shippedModels(), shippedModelName);

} // namespace
} // namespace kvopt
