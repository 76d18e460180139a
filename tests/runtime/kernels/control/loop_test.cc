// Loop: counts and conditions, values carried from iteration to iteration, stacked results, what is
// read from outside, and loops that must not go on.
#include "ir/shapes/shape_inference.h"
#include "ir/text/reader.h"
#include "runtime/exec/executor.h"
#include "support/diagnostic.h"
#include "tests/runtime/exec/test_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

using namespace test;
using testing::ElementsAre;
using testing::HasSubstr;

/// Models with inputs `int64 m, bool c` and whatever else a test gives them.
class LoopTest : public testing::Test {
protected:
  LoopTest() {
    registerAll(ops);
    addTestOps(ops);
    registerAll(kernels);
    addTestKernels(kernels);
  }

  void load(const std::string& inputs, const std::string& outputs, const std::string& body) {
    auto parsed = readText("<ir_version: 8, opset_import: [\"\" : 17, \"t\" : 1]>\ng (int64 m, "
                           "bool c" +
                               inputs + ") => (" + outputs + ") {\n" + body + "\n}\n",
                           ops);
    ASSERT_TRUE(static_cast<bool>(parsed)) << takeDiagnostic(parsed.takeError()).str();
    model = std::move(*parsed);
    llvm::cantFail(inferShapes(model->graph()));
    executor = llvm::cantFail(Executor::create(*model, kernels));
  }

  template <class T> static TensorView view(std::vector<T>& data, llvm::ArrayRef<int64_t> shape) {
    constexpr ElementType element =
        std::is_same_v<T, float> ? ElementType::Float : ElementType::Int64;
    return TensorView::contiguous(element, shape, reinterpret_cast<std::byte*>(data.data()));
  }
  llvm::Expected<std::vector<Tensor>> tryRun(int64_t trips, bool condition,
                                             std::vector<NamedView> inputs = {}) {
    count = trips;
    flag = condition ? 1 : 0;
    inputs.push_back({"m", TensorView::contiguous(ElementType::Int64, {},
                                                  reinterpret_cast<std::byte*>(&count))});
    inputs.push_back(
        {"c", TensorView::contiguous(ElementType::Bool, {}, reinterpret_cast<std::byte*>(&flag))});
    return executor->run(inputs);
  }
  std::vector<Tensor> run(int64_t trips, bool condition, std::vector<NamedView> inputs = {}) {
    return llvm::cantFail(tryRun(trips, condition, std::move(inputs)));
  }
  template <class T = float> static std::vector<T> values(const Tensor& tensor) {
    const T* data = tensor.view.as<T>();
    return {data, data + tensor.view.elementCount()};
  }
  static std::string failure(llvm::Expected<std::vector<Tensor>> result) {
    return result ? "no error" : takeDiagnostic(result.takeError()).str();
  }

  OpRegistry ops;
  KernelRegistry kernels;
  std::unique_ptr<Model> model;
  std::unique_ptr<Executor> executor;
  int64_t count = 0;
  uint8_t flag = 0;
  std::vector<float> x = {1, 2};
};

TEST_F(LoopTest, CarriesAndStacks) {
  load(", float[N] x", "float[N] last, float[I, N] every, int64[I] numbers", R"(
    last, every, numbers = Loop <body = b (int64 i, bool go, float[N] v) =>
        (bool on, float[N] w, float[N] s, int64 k) {
      on = Identity(go)
      w = Add(v, x)
      s = Mul(w, w)
      k = Identity(i)
    }> (m, c, x))");
  for (unsigned again = 0; again < 2; ++again) {
    std::vector<Tensor> three = run(3, true, {{"x", view(x, {2})}});
    EXPECT_THAT(values(three[0]), ElementsAre(4, 8));
    EXPECT_EQ(three[1].view.shape, Extents({3, 2}));
    EXPECT_THAT(values(three[1]), ElementsAre(4, 16, 9, 36, 16, 64));
    EXPECT_THAT(values<int64_t>(three[2]), ElementsAre(0, 1, 2));
    for (auto [trips, condition] : {std::pair(0, true), {3, false}, {-5, true}}) {
      std::vector<Tensor> none = run(trips, condition, {{"x", view(x, {2})}});
      EXPECT_THAT(values(none[0]), ElementsAre(1, 2));
      EXPECT_EQ(none[1].view.shape[0], 0);
      EXPECT_EQ(none[1].view.rank(), 2u);
      EXPECT_EQ(none[2].view.shape, Extents({0}));
    }
  }
  EXPECT_THAT(values(run(1, true, {{"x", view(x, {1})}})[0]), ElementsAre(2));
}

TEST_F(LoopTest, RunsWhileTheConditionHolds) {
  load(", float x", "float last", R"(
    limit = Constant <value = float {100}> ()
    last = Loop <body = b (int64 i, bool go, float v) => (bool on, float w) {
      w = Add(v, v)
      on = Less(w, limit)
    }> (, c, x))");
  EXPECT_THAT(values(run(0, true, {{"x", view(x, {})}})[0]), ElementsAre(128));
  EXPECT_THAT(values(run(0, false, {{"x", view(x, {})}})[0]), ElementsAre(1));
}

TEST_F(LoopTest, ExtentsMayGrow) {
  load(", float[N] x", "float[M] last", R"(
    last = Loop <body = b (int64 i, bool go, float[N] v) => (bool on, float[P] w) {
      on = Identity(go)
      w = Concat <axis = 0> (v, x)
    }> (m, , x))");
  EXPECT_THAT(values(run(3, true, {{"x", view(x, {2})}})[0]), ElementsAre(1, 2, 1, 2, 1, 2, 1, 2));
  EXPECT_EQ(run(40, true, {{"x", view(x, {2})}})[0].view.shape, Extents({82}));
  EXPECT_THAT(values(run(0, true, {{"x", view(x, {2})}})[0]), ElementsAre(1, 2));
}

TEST_F(LoopTest, ExchangesAndHandsOutWhatItWasGiven) {
  std::vector<float> y = {5};
  load(", float x, float y", "float a, float b, float outside, float fixed, float[I] firsts", R"(
    a, b, outside, fixed, firsts = Loop <body = b (int64 i, bool go, float p, float q, float r,
                                                   float s) =>
        (bool on, float q, float p, float x, float k, float p) {
      on = Identity(go)
      k = Constant <value = float {7}> ()
    }> (m, c, x, y, y, y))");
  std::vector<NamedView> inputs{{"x", view(x, {})}, {"y", view(y, {})}};
  std::vector<Tensor> odd = run(3, true, inputs);
  EXPECT_THAT(values(odd[0]), ElementsAre(5));
  EXPECT_THAT(values(odd[1]), ElementsAre(1));
  EXPECT_THAT(values(odd[2]), ElementsAre(1));
  EXPECT_THAT(values(odd[3]), ElementsAre(7));
  EXPECT_THAT(values(odd[4]), ElementsAre(1, 5, 1));
  // Results are memory of their own.
  for (const Tensor& result : odd)
    EXPECT_TRUE(result.owner);
  EXPECT_THAT(values(run(0, true, inputs)[3]), ElementsAre(5));
}

TEST_F(LoopTest, WritesInPlaceWhatNobodyElseHolds) {
  load(", float[B, C] cache, float[B, 1] row", "float[B, C] filled, float[I, B] sums", R"(
    one = Constant <value = int64[1] {1}> ()
    filled, sums = Loop <body = b (int64 i, bool go, float[B, C] old) =>
        (bool on, float[B, C] new, float[B] sum) {
      on = Identity(go)
      at = Mul(one, i)
      new, sum = t.Append(old, row, at)
    }> (m, c, cache))");
  std::vector<float> cache(8, 0.0f);
  std::vector<float> row = {1, 10};
  std::vector<NamedView> inputs{{"cache", view(cache, {2, 4})}, {"row", view(row, {2, 1})}};
  std::vector<Tensor> outputs = run(3, true, inputs);
  EXPECT_THAT(values(outputs[0]), ElementsAre(1, 1, 1, 0, 10, 10, 10, 0));
  EXPECT_THAT(values(outputs[1]), ElementsAre(1, 10, 2, 20, 3, 30));
  EXPECT_THAT(cache, testing::Each(0.0f));
  // The caller's memory is copied once; what the first iteration made belongs to the loop.
  EXPECT_EQ(executor->statistics().inPlaceBytesCopied, int64_t{8 * sizeof(float)});
}

TEST_F(LoopTest, StackedRowsStayWhatTheyWere) {
  load(", float[B, C] cache, float[B, 1] row", "float[I, B, C] every, float[I, B] sums", R"(
    one = Constant <value = int64[1] {1}> ()
    filled, every, sums = Loop <body = b (int64 i, bool go, float[B, C] old) =>
        (bool on, float[B, C] new, float[B, C] new, float[B] sum) {
      on = Identity(go)
      at = Mul(one, i)
      new, sum = t.Append(old, row, at)
    }> (m, c, cache))");
  std::vector<float> cache(2, 0.0f);
  std::vector<float> row = {1};
  std::vector<Tensor> outputs =
      run(2, true, {{"cache", view(cache, {1, 2})}, {"row", view(row, {1, 1})}});
  EXPECT_THAT(values(outputs[0]), ElementsAre(1, 0, 1, 1));
}

TEST_F(LoopTest, NestsWithLoopsAndBranches) {
  load(", float x", "float last", R"(
    zero = Constant <value = int64 {0}> ()
    three = Constant <value = int64 {3}> ()
    last = Loop <body = outer (int64 i, bool go, float v) => (bool on, float w) {
      on = Identity(go)
      first = Equal(i, zero)
      zero2 = Neg(x)
      w = Loop <body = inner (int64 j, bool go2, float a) => (bool on2, float r) {
        on2 = Identity(go2)
        r = If <then_branch = t () => (p) { p = Add(a, v) },
                else_branch = e () => (q) { q = Add(a, zero2) }> (first)
      }> (three, , v)
    }> (m, c, x))");
  // 1 → 1 + 3 * 1 = 4 → 4 - 3 → 1 - 3
  std::vector<float> one = {1};
  EXPECT_THAT(values(run(1, true, {{"x", view(one, {})}})[0]), ElementsAre(4));
  EXPECT_THAT(values(run(2, true, {{"x", view(one, {})}})[0]), ElementsAre(1));
  EXPECT_THAT(values(run(3, true, {{"x", view(one, {})}})[0]), ElementsAre(-2));
}

TEST_F(LoopTest, EndlessLoopsEnd) {
  load(", float x", "float last", R"(
    last = Loop <body = b (int64 i, bool go, float v) => (bool go, float v) {
    }> (, , x))");
  EXPECT_THAT(failure(tryRun(0, true, {{"x", view(x, {})}})), HasSubstr("iterations"));
}

TEST_F(LoopTest, RefusesWhatDoesNotFit) {
  load(", float[N] x", "float[I, A] every", R"(
    last, every = Loop <body = b (int64 i, bool go, float[P] v) =>
        (bool on, float[Q] w, float[R] w) {
      on = Identity(go)
      w = Concat <axis = 0> (v, x)
    }> (m, c, x))");
  EXPECT_THAT(failure(tryRun(2, true, {{"x", view(x, {2})}})),
              HasSubstr("differs in shape between iterations"));
  EXPECT_EQ(run(1, true, {{"x", view(x, {2})}})[0].view.shape, Extents({1, 4}));

  load(", float[N] x", "float[N] last", R"(
    last = Loop <body = b (int64 i, bool go, float[3] v) => (bool on, float[3] v) {
      on = Identity(go)
    }> (m, c, x))");
  EXPECT_THAT(failure(tryRun(1, true, {{"x", view(x, {2})}})), HasSubstr("'v' is declared as"));

  load(", float x", "float last", R"(
    last = Loop <body = b (int64 i, bool go, float v) => (bool on, float v) {
      on = Constant <value = bool[2] {1, 1}> ()
    }> (m, c, x))");
  EXPECT_THAT(failure(tryRun(1, true, {{"x", view(x, {})}})), HasSubstr("is not one bool"));
}

TEST_F(LoopTest, ScansRows) {
  load(", float[N] start, float[T, N] x", "float[N] last, float[T, N] every", R"(
    last, every = Scan <num_scan_inputs = 1, body = b (float[N] v, float[N] row) =>
        (float[N] w, float[N] s) {
      w = Add(v, row)
      s = Add(w, start)
    }> (start, x))");
  std::vector<float> rows = {1, 2, 3, 4, 5, 6};
  std::vector<float> begin = {10, 20};
  std::vector<Tensor> three =
      run(0, false, {{"start", view(begin, {2})}, {"x", view(rows, {3, 2})}});
  EXPECT_THAT(values(three[0]), ElementsAre(19, 32));
  EXPECT_EQ(three[1].view.shape, Extents({3, 2}));
  EXPECT_THAT(values(three[1]), ElementsAre(21, 42, 24, 46, 29, 52));
  std::vector<Tensor> none =
      run(0, false, {{"start", view(begin, {2})}, {"x", view(rows, {0, 2})}});
  EXPECT_THAT(values(none[0]), ElementsAre(10, 20));
  EXPECT_EQ(none[1].view.shape[0], 0);
}

TEST_F(LoopTest, ScansOtherAxesBackwards) {
  load(", float[N, T] x, float[T, N] y", "float[N, T] sums", R"(
    sums = Scan <num_scan_inputs = 2, scan_input_axes = [1, 0], scan_input_directions = [1, 0],
                 scan_output_axes = [-1], scan_output_directions = [1],
                 body = b (float[N] column, float[N] row) => (float[N] s) {
      s = Add(column, row)
    }> (x, y))");
  std::vector<float> a = {1, 2, 3, 4, 5, 6};
  std::vector<float> b = {10, 20, 30, 40, 50, 60};
  std::vector<Tensor> outputs = run(0, false, {{"x", view(a, {2, 3})}, {"y", view(b, {3, 2})}});
  // Columns 3, 2, 1 of x go with rows 1, 2, 3 of y; the first sum is the last column.
  EXPECT_THAT(values(outputs[0]), ElementsAre(51, 32, 13, 64, 45, 26));
}

TEST_F(LoopTest, RefusesScansOfUnequalLengths) {
  load(", float[A] x, float[B] y", "float[T] sums", R"(
    sums = Scan <num_scan_inputs = 2, body = b (float p, float q) => (float s) {
      s = Add(p, q)
    }> (x, y))");
  std::vector<float> three = {1, 2, 3};
  EXPECT_THAT(failure(tryRun(0, false, {{"x", view(x, {2})}, {"y", view(three, {3})}})),
              HasSubstr("operand 1 has 3 rows, operand 0 has 2"));
}

} // namespace
} // namespace kvopt
