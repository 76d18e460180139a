// Runs of graphs with subgraphs: what they read from outside, whose memory results are, and how
// failures inside are told.
#include "runtime/exec/run_state.h"

#include "ir/text/reader.h"
#include "tests/runtime/exec/test_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvopt {
using namespace ir;
using namespace runtime;
using namespace simd;

namespace {

using namespace test;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

/// One model with a bool input `c` and whatever else a test gives it.
class BranchTest : public testing::Test {
protected:
  BranchTest() {
    registerAll(ops);
    addTestOps(ops);
    registerAll(kernels);
    addTestKernels(kernels);
  }

  void read(const std::string& inputs, const std::string& outputs, const std::string& body,
            const std::string& functions = "") {
    auto parsed =
        readText("<ir_version: 8, opset_import: [\"\" : 17, \"t\" : 1, \"f\" : 1]>\ng (bool c, " +
                     inputs + ") => (" + outputs + ") {\n" + body + "\n}\n" + functions,
                 ops);
    if (!parsed) {
      FAIL() << takeDiagnostic(parsed.takeError()).str();
      return;
    }
    model = std::move(*parsed);
    llvm::cantFail(inferShapes(model->graph()));
  }
  void prepare(ExecutorOptions options = {}) {
    executor = llvm::cantFail(Executor::create(*model, kernels, options));
  }
  void load(const std::string& inputs, const std::string& outputs, const std::string& body,
            const std::string& functions = "") {
    read(inputs, outputs, body, functions);
    ASSERT_TRUE(model);
    prepare();
  }

  static TensorView view(std::vector<float>& data, llvm::ArrayRef<int64_t> shape) {
    return TensorView::contiguous(ElementType::Float, shape,
                                  reinterpret_cast<std::byte*>(data.data()));
  }
  llvm::Expected<std::vector<Tensor>> tryRun(bool condition, std::vector<NamedView> inputs,
                                             llvm::ArrayRef<Binding> bindings = {}) {
    conditionByte = condition ? 1 : 0;
    inputs.push_back({"c", TensorView::contiguous(ElementType::Bool, {},
                                                  reinterpret_cast<std::byte*>(&conditionByte))});
    return executor->run(inputs, bindings);
  }
  std::vector<Tensor> run(bool condition, std::vector<NamedView> inputs,
                          llvm::ArrayRef<Binding> bindings = {}) {
    return llvm::cantFail(tryRun(condition, std::move(inputs), bindings));
  }
  static std::vector<float> values(const Tensor& tensor) {
    const float* data = tensor.view.as<float>();
    return {data, data + tensor.view.elementCount()};
  }
  template <typename T> static std::string failure(llvm::Expected<T> result) {
    return result ? "no error" : takeDiagnostic(result.takeError()).str();
  }

  OpRegistry ops;
  KernelRegistry kernels;
  std::unique_ptr<Model> model;
  std::unique_ptr<Executor> executor;
  uint8_t conditionByte = 0;
  std::vector<float> x = {1, 2, 3, 4};
  std::vector<float> row = {10};
  int64_t one = 1;
  NamedView length{
      "n", TensorView::contiguous(ElementType::Int64, {1}, reinterpret_cast<std::byte*>(&one))};
};

TEST_F(BranchTest, OnlyTheTakenBranchRunsAndShapesMayDiffer) {
  load("float[N] x", "float[M] y", R"(
    two = Constant <value = float {2}> ()
    twice = Mul(x, two)
    y = If <then_branch = t () => (a) { b = Concat <axis = 0> (twice, x) a = Add(b, two) },
            else_branch = e () => (d) { three = Constant <value = float {3}> () d = Sub(x, three) }
        > (c))");
  for (unsigned again = 0; again < 2; ++again) {
    EXPECT_THAT(values(run(true, {{"x", view(x, {2})}})[0]), ElementsAre(4, 6, 3, 4));
    EXPECT_THAT(values(run(false, {{"x", view(x, {4})}})[0]), ElementsAre(-2, -1, 0, 1));
    EXPECT_EQ(run(true, {{"x", view(x, {0})}})[0].view.shape, Extents({0}));
  }
}

TEST_F(BranchTest, NestedBranchesReadEveryGraphAroundThem) {
  load("bool d, float[N] x", "float[N] y", R"(
    p = Add(x, x)
    y = If <then_branch = t () => (a) {
              q = Add(p, x)
              a = If <then_branch = tt () => (u) { r = Add(q, p) u = Add(r, x) },
                      else_branch = te () => (v) { v = Identity(p) }> (d) },
            else_branch = e () => (b) { b = Neg(p) }> (c))");
  uint8_t flags[] = {0, 1};
  auto inner = [&](bool which) {
    return NamedView{"d",
                     TensorView::contiguous(ElementType::Bool, {},
                                            reinterpret_cast<std::byte*>(&flags[which ? 1 : 0]))};
  };
  EXPECT_THAT(values(run(true, {inner(true), {"x", view(x, {2})}})[0]), ElementsAre(6, 12));
  EXPECT_THAT(values(run(true, {inner(false), {"x", view(x, {2})}})[0]), ElementsAre(2, 4));
  EXPECT_THAT(values(run(false, {inner(true), {"x", view(x, {2})}})[0]), ElementsAre(-2, -4));
}

TEST_F(BranchTest, ACapturedTensorThatComesOutOutlivesItsLastReader) {
  load("float[N] x", "float[N] y", R"(
    p = t.Add(x, x)
    q = If <then_branch = t () => (a) { a = Identity(p) },
            else_branch = e () => (b) { b = t.Add(x, p) }> (c)
    r = t.Add(x, x)
    s = t.Add(r, r)
    u = t.Add(s, r)
    v = t.Add(u, s)
    w = t.Add(q, v)
    y = t.Add(w, x))");
  EXPECT_THAT(values(run(true, {{"x", view(x, {2})}})[0]), ElementsAre(13, 26));
  EXPECT_THAT(values(run(false, {{"x", view(x, {2})}})[0]), ElementsAre(14, 28));
}

TEST_F(BranchTest, WhatAResultMayBeIsNotOverwrittenWhileItIsRead) {
  load("float[1,N] x, float[1,1] row, int64[1] n", "float[1,N] present, float[1,N] y, float[1] sum",
       R"(
    p = t.Add(x, x)
    q = If <then_branch = t () => (a) { a = Identity(p) },
            else_branch = e () => (b) { b = t.Add(x, p) }> (c)
    present, sum = t.Append(p, row, n)
    y = t.Add(q, q))");
  std::vector<Tensor> outputs =
      run(true, {{"x", view(x, {1, 2})}, {"row", view(row, {1, 1})}, length});
  EXPECT_THAT(values(outputs[0]), ElementsAre(2, 10));
  EXPECT_THAT(values(outputs[1]), ElementsAre(4, 8));
}

TEST_F(BranchTest, ResultsThatShareMemoryAreNotOverwrittenThroughEachOther) {
  load("float[1,N] x, float[1,1] row, int64[1] n", "float[1,N] present, float[1,N] y, float[1] sum",
       R"(
    q, r = If <then_branch = t () => (a, a2) { a = t.Add(x, x) a2 = Identity(a) },
               else_branch = e () => (b, b2) { b = t.Add(x, x) b2 = t.Add(b, b) }> (c)
    present, sum = t.Append(q, row, n)
    y = t.Add(r, r))");
  std::vector<NamedView> inputs = {{"x", view(x, {1, 2})}, {"row", view(row, {1, 1})}, length};
  std::vector<Tensor> outputs = run(true, inputs);
  EXPECT_THAT(values(outputs[0]), ElementsAre(2, 10));
  EXPECT_THAT(values(outputs[1]), ElementsAre(4, 8));
  outputs = run(false, inputs);
  EXPECT_THAT(values(outputs[0]), ElementsAre(2, 10));
  EXPECT_THAT(values(outputs[1]), ElementsAre(8, 16));
}

/// Both branches append to the captured past, at different places.
const char* const appendInBranches = R"(
    zero = Constant <value = int64[1] {0}> ()
    present, sum = If <
      then_branch = t () => (pt, st) { pt, st = t.Append(past, row, n) },
      else_branch = e () => (pe, se) { pe, se = t.Append(past, row, zero) }> (c))";

TEST_F(BranchTest, AnOfferedBufferIsOverwrittenInsideTheBranch) {
  load("float[1,N] past, float[1,1] row, int64[1] n", "float[1,N] present, float[1] sum",
       appendInBranches);
  std::vector<NamedView> inputs = {{"past", view(x, {1, 4})}, {"row", view(row, {1, 1})}, length};
  Binding binding{"past", "present"};
  std::vector<Tensor> outputs = run(true, inputs, binding);
  EXPECT_EQ(outputs[0].view.data, reinterpret_cast<std::byte*>(x.data()));
  EXPECT_THAT(x, ElementsAre(1, 10, 3, 4));
  EXPECT_THAT(values(outputs[1]), ElementsAre(11));
  EXPECT_EQ(executor->statistics().inPlaceBytesCopied, 0);
  EXPECT_EQ(executor->statistics().cacheBytesWritten, 4);
  outputs = run(false, inputs, binding);
  EXPECT_EQ(outputs[0].view.data, reinterpret_cast<std::byte*>(x.data()));
  EXPECT_THAT(x, ElementsAre(10, 10, 3, 4));
  EXPECT_EQ(executor->statistics().inPlaceBytesCopied, 0);
  // Not offered this time: the permission of the runs before does not count.
  outputs = run(true, inputs);
  EXPECT_NE(outputs[0].view.data, reinterpret_cast<std::byte*>(x.data()));
  EXPECT_THAT(x, ElementsAre(10, 10, 3, 4));
}

TEST_F(BranchTest, ALaterReaderOfTheCapturedBufferSeesItUnchanged) {
  load("float[1,N] past, float[1,1] row, int64[1] n",
       "float[1,N] present, float[1] sum, float[1,N] y",
       std::string(appendInBranches) + "\ny = t.Add(past, past)");
  Binding binding{"past", "present"};
  std::vector<Tensor> outputs =
      run(true, {{"past", view(x, {1, 4})}, {"row", view(row, {1, 1})}, length}, binding);
  EXPECT_THAT(values(outputs[2]), ElementsAre(2, 4, 6, 8));
  EXPECT_THAT(x, ElementsAre(1, 10, 3, 4));
  EXPECT_EQ(executor->statistics().inPlaceBytesCopied, 32);
}

TEST_F(BranchTest, OutputsNeverAreTheModelsOrTheCallersMemory) {
  load("float[2] x", "float[2] y, float[2] z", R"(
    y, z = If <then_branch = t () => (a, b) {
                 a = Identity(x) b = Constant <value = float[2] {7, 8}> () },
               else_branch = e () => (d, f) { d = Neg(x) f = Neg(x) }> (c))");
  for (unsigned again = 0; again < 2; ++again) {
    std::vector<Tensor> outputs = run(true, {{"x", view(x, {2})}});
    EXPECT_THAT(values(outputs[0]), ElementsAre(1, 2));
    EXPECT_THAT(values(outputs[1]), ElementsAre(7, 8));
    for (const Tensor& output : outputs)
      std::fill_n(output.view.as<float>(), 2, -1.0f);
    EXPECT_THAT(x, ElementsAre(1, 2, 3, 4));
  }
  EXPECT_THAT(values(run(false, {{"x", view(x, {2})}})[1]), ElementsAre(-1, -2));
}

TEST_F(BranchTest, WritesToAConstantFromABranchGoToACopy) {
  load("float[1,1] row, int64[1] n", "float[1,2] present, float[1] sum", R"(
    q = If <then_branch = t () => (a) { a = Constant <value = float[1,2] {7, 8}> () },
            else_branch = e () => (b) { b = Constant <value = float[1,2] {5, 6}> () }> (c)
    present, sum = t.Append(q, row, n))");
  for (unsigned again = 0; again < 2; ++again) {
    EXPECT_THAT(values(run(true, {{"row", view(row, {1, 1})}, length})[0]), ElementsAre(7, 10));
    EXPECT_THAT(values(run(false, {{"row", view(row, {1, 1})}, length})[0]), ElementsAre(5, 10));
  }
}

TEST_F(BranchTest, KernelsAreLookedForInEveryBranch) {
  read("float[N] x", "float[N] y", R"(
    y = If <then_branch = t () => (a) { a = Neg(x) },
            else_branch = e () => (b) { [odd] b = t.Odd(x) }> (c))");
  ASSERT_TRUE(model);
  model->graph().nodes().front().setName("choice");
  auto made = Executor::create(*model, kernels);
  ASSERT_FALSE(static_cast<bool>(made));
  Diagnostic diagnostic = takeDiagnostic(made.takeError());
  EXPECT_EQ(diagnostic.kind, Diagnostic::Kind::Unsupported);
  EXPECT_THAT(diagnostic.str(), HasSubstr("operator Odd (domain t, opset 1)"));
  EXPECT_THAT(diagnostic.str(), HasSubstr("in 'else_branch' of node 'choice' (If)"));
}

TEST_F(BranchTest, FunctionsAreInlinedInBranchesAndMayHoldBranches) {
  load("float[N] x", "float[N] y, float[N] z", R"(
    k = Identity(x)
    y = If <then_branch = t () => (a) { k_1 = Neg(k) a = f.Choose(c, k_1) },
            else_branch = e () => (b) { two = Constant <value = float {2}> () b = Mul(k, two) }> (c)
    z = f.Choose(c, x))",
       R"(<domain: "f", opset_import: ["" : 17]>
    Choose (which, p) => (q) {
      three = Constant <value = float {3}> ()
      k = Mul(p, three)
      q = If <then_branch = t () => (u) { u = Add(k, p) },
              else_branch = e () => (w) { w = Sub(k, three) }> (which)
    })");
  std::vector<Tensor> outputs = run(true, {{"x", view(x, {2})}});
  EXPECT_THAT(values(outputs[0]), ElementsAre(-4, -8));
  EXPECT_THAT(values(outputs[1]), ElementsAre(4, 8));
  outputs = run(false, {{"x", view(x, {2})}});
  EXPECT_THAT(values(outputs[0]), ElementsAre(2, 4));
  EXPECT_THAT(values(outputs[1]), ElementsAre(0, 3));
}

TEST_F(BranchTest, AFailureInsideNamesNodeAndBranch) {
  load("float[1,N] past, float[1,1] row, int64[1] n", "float[1,N] present, float[1] sum",
       appendInBranches);
  one = 4;
  std::vector<NamedView> inputs = {{"past", view(x, {1, 4})}, {"row", view(row, {1, 1})}, length};
  std::string text = failure(tryRun(true, inputs));
  EXPECT_THAT(text, HasSubstr("the cache is full"));
  EXPECT_THAT(text, HasSubstr("t::Append"));
  EXPECT_THAT(text, HasSubstr("in 'then_branch' of node"));
  EXPECT_THAT(values(run(false, inputs)[0]), ElementsAre(10, 2, 3, 4));
}

TEST_F(BranchTest, TheConditionIsOneBool) {
  load("bool[K] cs, float[N] x", "float[N] y", R"(
    y = If <then_branch = t () => (a) { a = Neg(x) },
            else_branch = e () => (b) { b = Identity(x) }> (cs))");
  uint8_t flags[] = {1, 0};
  auto conditions = [&](int64_t count) {
    return NamedView{"cs", TensorView::contiguous(ElementType::Bool, {count},
                                                  reinterpret_cast<std::byte*>(flags))};
  };
  EXPECT_THAT(values(run(false, {conditions(1), {"x", view(x, {1})}})[0]), ElementsAre(-1));
  for (int64_t count : {0, 2})
    EXPECT_THAT(failure(tryRun(true, {conditions(count), {"x", view(x, {1})}})),
                HasSubstr("the condition is not one bool"));
}

TEST_F(BranchTest, EachFailingAllocationIsAnErrorAndTheNextRunWorks) {
  read("float[N] x", "float[N] y", R"(
    p = t.Add(x, x)
    y = If <then_branch = t () => (a) { q = t.Add(p, x) r = t.Add(q, q) a = t.Add(r, x) },
            else_branch = e () => (b) { b = Identity(p) }> (c))");
  ASSERT_TRUE(model);
  unsigned failures = 0;
  for (uint64_t k = 0; k < 50; ++k) {
    auto allocator = std::make_shared<FailingAllocator>(k);
    ExecutorOptions options;
    options.allocator = allocator;
    prepare(options);
    auto outputs = tryRun(true, {{"x", view(x, {2})}});
    EXPECT_EQ(static_cast<bool>(outputs), !allocator->hasFailed());
    if (outputs)
      break;
    ++failures;
    EXPECT_THAT(takeDiagnostic(outputs.takeError()).message, HasSubstr("cannot allocate"));
    EXPECT_THAT(values(run(true, {{"x", view(x, {2})}})[0]), ElementsAre(7, 14));
  }
  EXPECT_GE(failures, 3u);
  EXPECT_LT(failures, 50u);
}

TEST_F(BranchTest, OnlyTheBranchThatRanLastKeepsItsArena) {
  read("float[N] x", "float[N] y", R"(
    y = If <then_branch = t () => (a) { q = t.Add(x, x) a = t.Add(q, x) },
            else_branch = e () => (b) { r = t.Add(x, x) b = t.Add(r, r) }> (c))");
  ASSERT_TRUE(model);
  ExecutorOptions options;
  options.allocator = std::make_shared<Allocator>();
  options.threads = 3;
  prepare(options);
  std::vector<float> many(1000, 1.0f);
  std::vector<size_t> live;
  for (bool condition : {true, false, true, false}) {
    EXPECT_THAT(values(run(condition, {{"x", view(many, {1000})}})[0]),
                Each(condition ? 3.0f : 4.0f));
    EXPECT_GE(executor->statistics().arenaBytes, 4000);
    live.push_back(options.allocator->liveBytes());
  }
  EXPECT_THAT(live, Each(live.front()));
}

TEST_F(BranchTest, NestingHasALimit) {
  auto nested = [&](unsigned depth) {
    Model deep(ops);
    deep.opsets = {{"", 17}};
    Graph* graph = &deep.graph();
    Value& condition = graph->addInput("c", TensorType::fixed(ElementType::Bool, {}));
    Value& input = graph->addInput("x", TensorType::fixed(ElementType::Float, {1}));
    for (unsigned level = 0; level < depth; ++level) {
      Node& choice = graph->create("If", {&condition}, {"y" + std::to_string(level)});
      graph->addOutput(choice.result());
      Graph* inner = nullptr;
      for (const char* name : {"then_branch", "else_branch"}) {
        std::vector<std::unique_ptr<Graph>> branch;
        branch.push_back(std::make_unique<Graph>(deep.context(), deep.opsets, &choice));
        inner = branch.back().get();
        choice.setAttribute(name, Attribute::ofGraphs(std::move(branch), false));
        if (llvm::StringRef(name) == "then_branch")
          inner->addOutput(inner->create("Neg", {&input}, {"n" + std::to_string(level)}).result());
      }
      graph = inner;
    }
    graph->addOutput(graph->create("Neg", {&input}, {"last"}).result());
    auto made = Executor::create(deep, kernels);
    return made ? std::string("fine") : takeDiagnostic(made.takeError()).message;
  };
  EXPECT_EQ(nested(60), "fine");
  EXPECT_THAT(nested(65), HasSubstr("nested more than 64 deep"));
}

} // namespace
} // namespace kvopt
