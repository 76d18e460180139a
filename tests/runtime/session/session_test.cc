// Sessions over the append model: one buffer, capacity, poison, crop, growth, isolation.
#include "runtime/session/session.h"
#include "tests/runtime/exec/test_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

using testing::HasSubstr;

class SessionTest : public testing::Test {
protected:
  SessionTest() {
    test::addTestOps(ops);
    test::addTestKernels(kernels);
    model = test::appendModel(ops);
    manifest.contract = CacheUpdate::InPlace;
    manifest.capacitySymbol = "C";
    ManifestCache cache;
    cache.past = "past";
    cache.present = "present";
    cache.storage = BufferCache();
    cache.shape = {std::string("B"), std::string("C")};
    cache.sequenceAxis = 1;
    manifest.caches = {cache};
    manifest.lengths = {{"length", ElementType::Int64, {int64_t{1}}, LengthFeed::PastLength}};
    options.capacity = 4;
    options.poison = true;
  }
  std::unique_ptr<Session> session() {
    return llvm::cantFail(Session::create(*model, kernels, manifest, options));
  }
  /// The sum over the cache after adding `rows`, or the error's text.
  static std::string add(Session& session, std::vector<float> rows) {
    auto count = static_cast<int64_t>(rows.size());
    NamedView input{"rows", TensorView::contiguous(ElementType::Float, {1, count},
                                                   reinterpret_cast<std::byte*>(rows.data()))};
    llvm::Expected<StepResult> result = session.step(input, count);
    if (!result)
      return takeDiagnostic(result.takeError()).str();
    return formatted("{}", *result->find("sum")->view.as<float>());
  }

  OpRegistry ops;
  KernelRegistry kernels;
  std::unique_ptr<Model> model;
  Manifest manifest;
  SessionOptions options;
};

TEST_F(SessionTest, FlagsSayWhetherThereIsAPast) {
  Graph& graph = model->graph();
  for (auto [input, output, feed] : {std::tuple("has", "had", LengthFeed::HasPast),
                                     std::tuple("no", "none", LengthFeed::NoPast)}) {
    Value& flag = graph.addInput(input, TensorType::fixed(ElementType::Bool, {1}));
    graph.addOutput(graph.create("t::Flat", {&flag}, {output}).result());
    manifest.lengths.push_back({input, ElementType::Bool, {int64_t{1}}, feed});
  }
  auto s = session();
  for (bool hasPast : {false, true, true}) {
    float row = 1;
    NamedView input{"rows", TensorView::contiguous(ElementType::Float, {1, 1},
                                                   reinterpret_cast<std::byte*>(&row))};
    StepResult result = llvm::cantFail(s->step(input, 1));
    EXPECT_EQ(*result.find("had")->view.as<uint8_t>(), hasPast ? 1 : 0);
    EXPECT_EQ(*result.find("none")->view.as<uint8_t>(), hasPast ? 0 : 1);
  }
  manifest.lengths.back().dtype = ElementType::Float;
  auto wrong = Session::create(*model, kernels, manifest, options);
  ASSERT_FALSE(static_cast<bool>(wrong));
  EXPECT_THAT(takeDiagnostic(wrong.takeError()).str(), HasSubstr("length 'no' is float"));
}

TEST_F(SessionTest, AppendsIntoOneBufferAndNeverReadsPoison) {
  auto s = session();
  std::byte* buffer = s->cacheBuffer(0).data;
  EXPECT_EQ(add(*s, {1, 2}), "3");
  EXPECT_EQ(add(*s, {4}), "7");
  EXPECT_EQ(s->cacheBuffer(0).data, buffer);
  EXPECT_EQ(s->length(), 3);
  EXPECT_EQ(llvm::cantFail(s->cacheRows(0)).view.shape, Extents({1, 3}));
  EXPECT_EQ(s->statistics().inPlaceBytesCopied, 0);
  EXPECT_EQ(s->statistics().cacheBytesWritten, 12);
}

TEST_F(SessionTest, OverflowIsAnErrorThatChangesNoByte) {
  auto s = session();
  EXPECT_EQ(add(*s, {1, 2, 3}), "6");
  TensorView cache = s->cacheBuffer(0);
  std::vector<std::byte> before(cache.data, cache.data + cache.byteSize());
  EXPECT_THAT(add(*s, {5, 6}), HasSubstr("capacity of 4"));
  EXPECT_EQ(std::memcmp(before.data(), cache.data, before.size()), 0);
  EXPECT_EQ(s->length(), 3);
  EXPECT_EQ(add(*s, {5}), "11");
}

TEST_F(SessionTest, CropAndReset) {
  auto s = session();
  EXPECT_EQ(add(*s, {1, 2, 3}), "6");
  ASSERT_FALSE(static_cast<bool>(s->crop(1)));
  EXPECT_EQ(add(*s, {10}), "11");
  llvm::Error tooMany = s->crop(3);
  EXPECT_TRUE(static_cast<bool>(tooMany));
  llvm::consumeError(std::move(tooMany));
  llvm::cantFail(s->reset());
  EXPECT_EQ(add(*s, {7}), "7");
}

TEST_F(SessionTest, StatefulModeGrowsGeometrically) {
  options.mode = SessionOptions::Mode::Stateful;
  options.capacity = 1;
  auto s = session();
  for (int i = 1; i <= 1024; ++i)
    ASSERT_EQ(add(*s, {1}), std::to_string(i));
  EXPECT_EQ(s->statistics().cacheReallocations, 10);
}

TEST_F(SessionTest, LongCachesGrowWithoutACopy) {
  options.mode = SessionOptions::Mode::Stateful;
  options.capacity = int64_t{1} << 18; // 1 MiB
  for (bool poison : {false, true}) {
    options.poison = poison;
    auto s = session();
    EXPECT_EQ(add(*s, std::vector<float>(1 << 18, 1)), "262144");
    EXPECT_EQ(add(*s, {2}), "262146");
    auto fork = llvm::cantFail(s->fork());
    EXPECT_EQ(add(*s, std::vector<float>(1 << 18, 1)), "524290");
    EXPECT_EQ(add(*fork, {3}), "262149");
    EXPECT_EQ(s->statistics().cacheReallocations, 2);
    EXPECT_EQ(s->statistics().cacheBytesMoved, 0);
  }
}

TEST_F(SessionTest, SessionsDoNotInterfere) {
  auto a = session();
  auto b = session();
  EXPECT_EQ(add(*a, {1}), "1");
  EXPECT_EQ(add(*b, {20}), "20");
  EXPECT_EQ(add(*a, {2}), "3");
  EXPECT_EQ(add(*b, {30}), "50");
}

TEST_F(SessionTest, GrowingContractHandsPresentsOn) {
  auto joined = std::make_unique<Model>(ops);
  joined->opsets = {{"", 17}, {"t", 1}};
  Graph& graph = joined->graph();
  Value& past = graph.addInput("past", test::floats({"B", "P"}));
  Value& rows = graph.addInput("rows", test::floats({"B", "S"}));
  graph.addOutput(graph.create("t::Join", {&past, &rows}, {"present"}).result());
  manifest.contract = CacheUpdate::Grows;
  manifest.caches[0].storage = GrowingCache();
  manifest.lengths.clear();
  auto s = llvm::cantFail(Session::create(*joined, kernels, manifest, options));
  for (float value : {1.0f, 2.0f, 3.0f}) {
    NamedView input{"rows", TensorView::contiguous(ElementType::Float, {1, 1},
                                                   reinterpret_cast<std::byte*>(&value))};
    llvm::cantFail(s->step(input, 1));
    if (value == 2.0f) {
      ASSERT_FALSE(static_cast<bool>(s->crop(1)));
    }
  }
  ASSERT_EQ(llvm::cantFail(s->cacheRows(0)).view.shape, Extents({1, 2}));
  EXPECT_EQ(llvm::cantFail(s->cacheRows(0)).view.as<float>()[0], 1);
  EXPECT_EQ(llvm::cantFail(s->cacheRows(0)).view.as<float>()[1], 3);
}

} // namespace
} // namespace kvopt
