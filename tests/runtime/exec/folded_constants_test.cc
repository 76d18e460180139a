// What a graph computes from constants alone: values, memory, and who may write where.
#include "runtime/exec/folded_constants.h"

#include "ir/text/reader.h"
#include "runtime/exec/executor.h"
#include "support/diagnostic.h"
#include "support/format.h"
#include "tests/runtime/exec/test_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace kvopt {
using namespace ir;
using namespace runtime;
using namespace simd;

namespace {

using namespace test;
using testing::ElementsAre;
using testing::FloatNear;
using testing::HasSubstr;
using testing::Pointwise;

class FoldedConstantsTest : public testing::Test {
protected:
  FoldedConstantsTest() {
    registerAll(ops);
    addTestOps(ops);
    registerAll(kernels);
    addTestKernels(kernels);
  }

  void load(const std::string& interface, const std::string& constants, const std::string& body,
            int64_t limit = 1 << 20, int64_t opset = 21) {
    auto parsed = readText(
        formatted("<ir_version: 10, opset_import: [\"\" : {}, \"t\" : 1, \"com.microsoft\" : 1]>"
                  "\ng {}\n<{}> {{\n{}\n}}",
                  opset, interface, constants, body),
        ops);
    if (!parsed)
      FAIL() << takeDiagnostic(parsed.takeError()).str();
    model = std::move(*parsed);
    llvm::cantFail(inferShapes(model->graph()));
    options.foldedConstantsLimit = limit;
    executor = llvm::cantFail(Executor::create(*model, kernels, options));
  }
  std::vector<Tensor> run(std::vector<float> x, llvm::ArrayRef<int64_t> shape) {
    return llvm::cantFail(executor->run(
        TensorView::contiguous(ElementType::Float, shape, reinterpret_cast<std::byte*>(x.data()))));
  }
  static std::vector<float> values(const Tensor& tensor) {
    const float* data = tensor.view.as<float>();
    return {data, data + tensor.view.elementCount()};
  }
  const RunStatistics& statistics() const { return executor->statistics(); }

  OpRegistry ops;
  KernelRegistry kernels;
  ExecutorOptions options;
  std::unique_ptr<Model> model;
  std::unique_ptr<Executor> executor;
};

TEST_F(FoldedConstantsTest, TransposedAndCastWeightsAreReadWhereTheyAre) {
  struct Case {
    const char* weights;
    const char* body;
    int64_t folded;
  };
  // W = [[1, 2, 3], [4, 5, 6]] each time.
  for (const Case& each : {
           Case{"float[3,2] w = {1, 4, 2, 5, 3, 6}", "t = Transpose(w) y = MatMul(x, t)", 1},
           Case{"float[3,2] w = {1, 4, 2, 5, 3, 6}",
                "t = Transpose<perm = [1, 0]>(w) y = Gemm(x, t)", 1},
           Case{"float[2,3] w = {1, 2, 3, 4, 5, 6}", "t = Transpose(w) y = Gemm<transB = 1>(x, t)",
                1},
           Case{"float[2,3] w = {1, 2, 3, 4, 5, 6}",
                "t = Transpose(w) y = com.microsoft.FusedMatMul<transB = 1>(x, t)", 1},
           Case{"float16[2,3] w = {1, 2, 3, 4, 5, 6}", "t = Cast<to = 1>(w) y = MatMul(x, t)", 1},
           Case{"bfloat16[3,2] w = {1, 4, 2, 5, 3, 6}",
                "a = Cast<to = 1>(w) b = Identity(a) t = Transpose(b) y = MatMul(x, t)", 3},
           Case{"float16[3,2] w = {1, 4, 2, 5, 3, 6}",
                "a = Transpose(w) t = Cast<to = 1>(a) y = MatMul(x, t)", 2},
           Case{"float[6] w = {1, 2, 3, 4, 5, 6}, int64[2] s = {2, 3}",
                "t = Reshape(w, s) y = MatMul(x, t)", 1},
           Case{"float[3,2] w = {1, 4, 2, 5, 3, 6}, int64[1] s = {0}",
                "a = Transpose(w) t = Unsqueeze(a, s) b = MatMul(x, t) y = Squeeze(b, s)", 2},
       }) {
    SCOPED_TRACE(each.body);
    load("(float[N,2] x) => (float[N,3] y)", each.weights, each.body, 0);
    EXPECT_THAT(values(run({1, 10, 2, 0}, {2, 2})[0]), ElementsAre(41, 52, 63, 2, 4, 6));
    EXPECT_EQ(statistics().foldedNodes, each.folded);
    EXPECT_EQ(statistics().streamedNodes, 0);
    EXPECT_EQ(statistics().foldedBytes, 0);
  }
}

/// One weight as a matrix of products and as a plain operand of another node.
TEST_F(FoldedConstantsTest, OtherReadersGetTheConstantItself) {
  load("(float[N,2] x) => (float[N,3] y, float[2,3] z)", "float[3,2] w = {1, 4, 2, 5, 3, 6}",
       "t = Transpose(w) y = MatMul(x, t) z = Identity(t)");
  const std::vector<Tensor> outputs = run({1, 10}, {1, 2});
  EXPECT_THAT(values(outputs[0]), ElementsAre(41, 52, 63));
  EXPECT_THAT(values(outputs[1]), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_EQ(statistics().foldedBytes, 24);
}

std::string listText(const std::vector<int64_t>& numbers) {
  return formatted("{{{}}}", joinedText(numbers, ", "));
}
std::string listText(const std::vector<float>& numbers) {
  return formatted("{{{}}}", joinedText(numbers, ", "));
}

/// y = x dequantized(codes [K,N] or [N,K]) for K = 40 and N = 3, against the sums of the formula.
class DequantizedWeightsTest : public FoldedConstantsTest,
                               public testing::WithParamInterface<const char*> {
protected:
  static constexpr int64_t k = 40, n = 3;
  enum class Scales { Tensor, Column, Row, Block };

  void check(bool isStoredByColumn, Scales scales, bool hasZero, bool expectsBlocks) {
    const std::string type = GetParam();
    const int64_t bits = type.ends_with("4") ? 4 : 8;
    const bool isSigned = type[0] == 'i';
    const auto number = [&](int64_t seed) {
      const int64_t at = seed * 37 % (int64_t{1} << bits);
      return isSigned ? at - (int64_t{1} << (bits - 1)) : at;
    };
    constexpr int64_t block = 16, blocks = 3;
    const int64_t innerAxis = isStoredByColumn ? 1 : 0;
    const int64_t scaleCount = scales == Scales::Tensor   ? 1
                               : scales == Scales::Column ? n
                               : scales == Scales::Row    ? k
                                                          : n * blocks;
    std::vector<int64_t> codes, zeros;
    std::vector<float> scale;
    for (int64_t i = 0; i < k * n; ++i)
      codes.push_back(number(i + 1));
    for (int64_t i = 0; i < scaleCount; ++i) {
      scale.push_back(0.25f + 0.125f * static_cast<float>(i % 5));
      zeros.push_back(number(i + 3));
    }
    const auto scaleAt = [&](int64_t inner, int64_t column) {
      switch (scales) {
      case Scales::Tensor:
        return int64_t{0};
      case Scales::Column:
        return column;
      case Scales::Row:
        return inner;
      case Scales::Block:
        break;
      }
      return isStoredByColumn ? column * blocks + inner / block : inner / block * n + column;
    };
    const std::string scaleShape = scales == Scales::Tensor  ? ""
                                   : scales != Scales::Block ? formatted("[{}]", scaleCount)
                                   : isStoredByColumn        ? formatted("[{},{}]", n, blocks)
                                                             : formatted("[{},{}]", blocks, n);
    const std::string constants = formatted(
        "{}{} q = {}, float{} s = {}, {}{} z = {}", type, isStoredByColumn ? "[3,40]" : "[40,3]",
        listText(codes), scaleShape, listText(scale), type, scaleShape, listText(zeros));
    const int64_t axis = scales == Scales::Column ? 1 - innerAxis : innerAxis;
    const std::string body =
        formatted("w = DequantizeLinear<axis = {}{}>(q, s{}) {}", axis,
                  scales == Scales::Block ? ", block_size = 16" : "", hasZero ? ", z" : "",
                  isStoredByColumn ? "t = Transpose(w) y = MatMul(x, t)" : "y = MatMul(x, w)");
    std::vector<float> x;
    for (int64_t i = 0; i < 2 * k; ++i)
      x.push_back(static_cast<float>((i * 29 + 7) % 16) * 0.125f - 1.0f);
    std::vector<float> expected;
    for (int64_t row = 0; row < 2; ++row)
      for (int64_t column = 0; column < n; ++column) {
        double sum = 0;
        for (int64_t inner = 0; inner < k; ++inner) {
          const int64_t at = isStoredByColumn ? column * k + inner : inner * n + column;
          const int64_t from = scaleAt(inner, column);
          const int64_t zero = hasZero ? zeros[static_cast<size_t>(from)] : 0;
          sum += double{x[static_cast<size_t>(row * k + inner)]} *
                 static_cast<double>(codes[static_cast<size_t>(at)] - zero) *
                 double{scale[static_cast<size_t>(from)]};
        }
        expected.push_back(static_cast<float>(sum));
      }
    for (int64_t limit : {1 << 20, 0}) {
      SCOPED_TRACE(formatted("{} limit {}", body, limit));
      load("(float[N,40] x) => (float[N,3] y)", constants, body, limit);
      if (!executor)
        return;
      EXPECT_THAT(values(run(x, {2, k})[0]), Pointwise(FloatNear(2e-2f), expected));
      EXPECT_LE(statistics().foldedBytes, limit);
      EXPECT_EQ(statistics().streamedNodes == 0, limit != 0);
      // Codes of 3 rows of 48 numbers, with float scales and zero points.
      if (limit != 0 && expectsBlocks) {
        EXPECT_LE(statistics().foldedBytes, 3 * 48 * bits / 8 + 2 * 4 * n * blocks);
      }
    }
  }
};

TEST_P(DequantizedWeightsTest, StayCompressed) {
  for (bool isStoredByColumn : {false, true})
    for (bool hasZero : {false, true}) {
      check(isStoredByColumn, Scales::Tensor, hasZero, true);
      check(isStoredByColumn, Scales::Column, hasZero, true);
      check(isStoredByColumn, Scales::Block, hasZero, true);
    }
}

/// A scale for each position of the inner extent is in no product's form.
TEST_P(DequantizedWeightsTest, AreComputedOnceOtherwise) {
  if (std::string(GetParam()).ends_with("8"))
    check(false, Scales::Row, true, false);
}

INSTANTIATE_TEST_SUITE_P(Types, DequantizedWeightsTest,
                         testing::Values("int8", "uint8", "int4", "uint4"));

TEST_F(FoldedConstantsTest, AreComputedOnceWithinTheLimit) {
  const std::string constants = "float[2] a = {3, 5}, float[2] b = {2, 4}";
  const std::string body = "c = Mul(a, b) d = Add(c, a) y = Add(x, d)";
  for (int64_t limit : {64, 16, 15, 8, 7, 0}) {
    SCOPED_TRACE(limit);
    load("(float[2] x) => (float[2] y)", constants, body, limit);
    EXPECT_THAT(values(run({1, 1}, {2})[0]), ElementsAre(10, 26));
    EXPECT_THAT(values(run({0, 1}, {2})[0]), ElementsAre(9, 26));
    EXPECT_LE(statistics().foldedBytes, limit);
    EXPECT_EQ(statistics().foldedNodes, limit >= 16 ? 2 : limit >= 8 ? 1 : 0);
    EXPECT_EQ(statistics().foldedNodes + statistics().streamedNodes, 2);
    // What only other constants read is not kept.
    EXPECT_EQ(statistics().foldedBytes, limit >= 8 ? 8 : 0);
  }
}

TEST_F(FoldedConstantsTest, RunsAllocateNothing) {
  for (const char* body :
       {"t = Transpose(w) y = MatMul(x, t)", "t = DequantizeLinear(q, s) y = MatMul(x, t)",
        "t = DequantizeLinear(q, s) y = Gemm<transA = 1, transB = 1>(x, t)"}) {
    load("(float[2,2] x) => (float[2,2] y)",
         "float[2,2] w = {1, 2, 3, 4}, int8[2,2] q = {1, 2, 3, 4}, float s = {1}", body);
    std::vector<float> x = {1, 0, 0, 1};
    const NamedView input{"x", TensorView::contiguous(ElementType::Float, {2, 2},
                                                      reinterpret_cast<std::byte*>(x.data()))};
    std::vector<Tensor> outputs;
    for (unsigned again = 0; again < 3; ++again)
      llvm::cantFail(executor->run(input, {}, outputs));
    EXPECT_EQ(statistics().allocations, 0) << body;
    EXPECT_EQ(statistics().streamedNodes, 0);
    const bool isTransposed = std::string(body).find("rans") != std::string::npos;
    EXPECT_THAT(values(outputs[0]),
                isTransposed ? ElementsAre(1, 3, 2, 4) : ElementsAre(1, 2, 3, 4));
  }
}

TEST_F(FoldedConstantsTest, AreNeverOverwritten) {
  load("(float[1,1] rows) => (float[1,3] p, float[1] s, float[1,3] k)",
       "float[1,3] a = {1, 2, 3}, float[1,3] b = {1, 1, 1}, int64[1] n = {1}",
       "c = Mul(a, b) d = Identity(c) p, s = t.Append(d, rows, n) k = Add(c, b)");
  for (unsigned again = 0; again < 2; ++again) {
    const std::vector<Tensor> outputs = run({9}, {1, 1});
    EXPECT_THAT(values(outputs[0]), ElementsAre(1, 9, 3));
    EXPECT_THAT(values(outputs[1]), ElementsAre(10));
    EXPECT_THAT(values(outputs[2]), ElementsAre(2, 3, 4));
  }
}

TEST_F(FoldedConstantsTest, OutputsAreTheCallersOwn) {
  for (int64_t limit : {1024, 0}) {
    load("(float[1] x) => (float[2] p, float[2] q, float[1] y)", "float[2] a = {1, 2}",
         "p = Mul(a, a) q = Identity(p) y = Identity(x)", limit);
    for (unsigned again = 0; again < 2; ++again) {
      const std::vector<Tensor> outputs = run({7}, {1});
      EXPECT_THAT(values(outputs[0]), ElementsAre(1, 4));
      EXPECT_THAT(values(outputs[1]), ElementsAre(1, 4));
      outputs[0].view.as<float>()[0] = 100;
    }
  }
}

TEST_F(FoldedConstantsTest, SubgraphsReadConstantsAroundThem) {
  load("(float[1,2] x) => (float[1,3] y)",
       "float[3,2] w = {1, 4, 2, 5, 3, 6}, float[3] a = {1, 1, 1}, float[1] h = {100}, "
       "int64[1] zero1 = {0}",
       R"(sum = Add(a, a)
          one = ReduceSum<keepdims = 0>(x)
          limit = Squeeze(h, zero1)
          d = Greater(one, limit)
          y = If <then_branch = t () => (u) { z0 = Mul(a, sum) u = Unsqueeze(z0, zero1) },
                  else_branch = e () => (z) { v = Transpose(w) p = MatMul(x, v) z = Add(p, sum) }>
              (d))");
  for (unsigned again = 0; again < 2; ++again) {
    EXPECT_THAT(values(run({1, 10}, {1, 2})[0]), ElementsAre(43, 54, 65));
    EXPECT_THAT(values(run({101, 10}, {1, 2})[0]), ElementsAre(2, 2, 2));
  }
  EXPECT_EQ(statistics().streamedNodes, 0);
  EXPECT_EQ(statistics().foldedNodes, 3); // sum, limit, and v in the branch
}

TEST_F(FoldedConstantsTest, BodiesOfLoopsReadConstantsAroundThem) {
  load("(float[1,2] x) => (float[1,2] y)",
       "float[2,2] w = {0, 2, 1, 0}, int64 m = {3}, bool go = {1}, float[2] a = {1, 0}",
       R"(b = Add(a, a)
          y = Loop <body = l (int64 i, bool c, float[1,2] s) => (c2, next) {
                      c2 = Identity(c) v = Transpose(w) p = MatMul(s, v) q = Mul(a, a)
                      r = Add(p, q) next = Add(r, b)
                    }> (m, go, x))");
  // s -> (2 s1, s0) + (3, 0)
  for (unsigned again = 0; again < 2; ++again)
    EXPECT_THAT(values(run({1, 1}, {1, 2})[0]), ElementsAre(13, 5));
  EXPECT_EQ(statistics().streamedNodes, 0);
}

TEST_F(FoldedConstantsTest, WhatFailsFailsWhereItIsExecuted) {
  load("(float[1] x) => (float[1] y)",
       "float[3] a = {1, 2, 3}, int64[1] bad = {7}, float h = {1}, int64[1] zero = {0}",
       R"(s = Squeeze(x, zero)
          d = Greater(s, h)
          y = If <then_branch = t () => (u) { u = Gather(a, bad) },
                  else_branch = e () => (z) { z = Identity(x) }> (d))");
  EXPECT_THAT(values(run({1}, {1})[0]), ElementsAre(1));
  std::vector<float> x = {2};
  auto failed = executor->run(
      TensorView::contiguous(ElementType::Float, {1}, reinterpret_cast<std::byte*>(x.data())));
  ASSERT_FALSE(static_cast<bool>(failed));
  EXPECT_THAT(takeDiagnostic(failed.takeError()).str(), HasSubstr("Gather"));
}

llvm::Error drawNext(KernelContext& context) {
  static float next = 0;
  auto y = context.output(0, ElementType::Float, {1});
  if (!y)
    return y.takeError();
  *y->as<float>() = ++next;
  return llvm::Error::success();
}

TEST_F(FoldedConstantsTest, RandomNumbersAreDrawnAnew) {
  define(ops, "t::RandomUniform", 1).out("y");
  kernels.add("t::RandomUniform", 1, drawNext);
  load("(float[1] x) => (float[1] y)", "float[1] a = {1}",
       "r = t.RandomUniform() b = Add(r, a) y = Add(x, b)");
  const float first = values(run({0}, {1})[0])[0];
  EXPECT_EQ(values(run({0}, {1})[0])[0], first + 1);
  EXPECT_EQ(statistics().foldedNodes, 0);
}

TEST_F(FoldedConstantsTest, ExecutorsOfOneModelShareThem) {
  load("(float[2] x) => (float[2] y)", "float[2] a = {3, 5}", "b = Mul(a, a) y = Add(x, b)");
  options.allocator = executor->allocator();
  options.constantsOf = executor.get();
  const size_t before = options.allocator->liveBytes();
  auto second = llvm::cantFail(Executor::create(*model, kernels, options));
  EXPECT_EQ(options.allocator->liveBytes(), before);
  executor = std::move(second); // the first is gone
  EXPECT_THAT(values(run({1, 1}, {2})[0]), ElementsAre(10, 26));
  EXPECT_EQ(statistics().foldedBytes, 8);
}

} // namespace
} // namespace kvopt
