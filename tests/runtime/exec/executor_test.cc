// Runs of small graphs: buffer identity, checks of inputs, missing kernels, short memory.
#include "runtime/exec/executor.h"
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

class ExecutorTest : public testing::Test {
protected:
  ExecutorTest() {
    addTestOps(ops);
    addTestKernels(kernels);
  }

  std::unique_ptr<Executor> executorOf(const Model& model, ExecutorOptions options = {}) {
    return llvm::cantFail(Executor::create(model, kernels, options));
  }
  static TensorView view(std::vector<float>& data, std::initializer_list<int64_t> shape) {
    return TensorView::contiguous(ElementType::Float, shape,
                                  reinterpret_cast<std::byte*>(data.data()));
  }
  static std::vector<float> values(const Tensor& tensor) {
    const float* data = tensor.view.as<float>();
    return {data, data + tensor.view.elementCount()};
  }
  template <typename T> static std::string failure(llvm::Expected<T> result) {
    if (result)
      return "no error";
    return takeDiagnostic(result.takeError()).str();
  }

  /// That no executor of `model` is made, because of the node named `node`.
  void expectRefused(const Model& model, const std::string& node, const std::string& message) {
    llvm::Expected<std::unique_ptr<Executor>> executor = Executor::create(model, kernels);
    ASSERT_FALSE(static_cast<bool>(executor));
    const Diagnostic diagnostic = takeDiagnostic(executor.takeError());
    EXPECT_EQ(diagnostic.kind, Diagnostic::Kind::Unsupported);
    EXPECT_THAT(diagnostic.str(), HasSubstr(node));
    EXPECT_THAT(diagnostic.message, HasSubstr(message));
  }

  OpRegistry ops;
  KernelRegistry kernels;
  int64_t one = 1;
  TensorView length =
      TensorView::contiguous(ElementType::Int64, {1}, reinterpret_cast<std::byte*>(&one));
};

/// A chain of sums whose last element is also seen through a view.
std::unique_ptr<Model> chain(const OpRegistry& ops, unsigned count) {
  auto model = std::make_unique<Model>(ops);
  model->opsets = {{"", 17}, {"t", 1}};
  Graph& graph = model->graph();
  Value* value = &graph.addInput("x", floats({"N", "2"}));
  Value* x = value;
  for (unsigned i = 0; i < count; ++i)
    value = &graph.createFresh("t::Add", {value, x}, 1).result();
  graph.addOutput(graph.create("t::Flat", {value}, {"flat"}).result());
  llvm::cantFail(inferShapes(graph));
  return model;
}

TEST_F(ExecutorTest, ChainInAnArenaWithManySizes) {
  auto model = chain(ops, 6);
  for (unsigned threads : {1u, 3u}) {
    ExecutorOptions options;
    options.threads = threads;
    auto executor = executorOf(*model, options);
    for (int64_t n : {3, 1, 0, 100, 7, 8, 9, 1000, 2}) {
      std::vector<float> x(static_cast<size_t>(2 * n));
      for (size_t i = 0; i < x.size(); ++i)
        x[i] = static_cast<float>(i);
      std::vector<Tensor> outputs = llvm::cantFail(executor->run(view(x, {n, 2})));
      ASSERT_EQ(outputs.size(), 1u);
      ASSERT_EQ(outputs[0].view.shape, Extents({2 * n}));
      std::vector<float> got = values(outputs[0]);
      for (size_t i = 0; i < x.size(); ++i)
        ASSERT_EQ(got[i], 7 * x[i]);
      EXPECT_GE(executor->statistics().arenaBytes, executor->statistics().arenaLowerBound);
    }
  }
}

TEST_F(ExecutorTest, OfferedBufferIsOverwrittenInPlace) {
  auto model = appendModel(ops);
  auto executor = executorOf(*model);
  std::vector<float> cache = {1, 2, 3, 4};
  std::vector<float> rows = {10};
  NamedView inputs[] = {
      {"past", view(cache, {1, 4})}, {"rows", view(rows, {1, 1})}, {"length", length}};
  Binding binding{"past", "present"};
  std::vector<Tensor> outputs = llvm::cantFail(executor->run(inputs, binding));
  EXPECT_EQ(outputs[1].view.data, reinterpret_cast<std::byte*>(cache.data()));
  EXPECT_THAT(cache, ElementsAre(1, 10, 3, 4));
  EXPECT_THAT(values(outputs[0]), ElementsAre(11));
  EXPECT_EQ(executor->statistics().inPlaceBytesCopied, 0);
  EXPECT_EQ(executor->statistics().cacheBytesWritten, 4);
}

TEST_F(ExecutorTest, BufferThatIsNotOfferedIsCopied) {
  auto model = appendModel(ops);
  auto executor = executorOf(*model);
  std::vector<float> cache = {1, 2, 3, 4};
  std::vector<float> rows = {10};
  NamedView inputs[] = {
      {"past", view(cache, {1, 4})}, {"rows", view(rows, {1, 1})}, {"length", length}};
  std::vector<Tensor> outputs = llvm::cantFail(executor->run(inputs));
  EXPECT_THAT(cache, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(values(outputs[1]), ElementsAre(1, 10, 3, 4));
  EXPECT_EQ(executor->statistics().inPlaceBytesCopied, 16);
}

TEST_F(ExecutorTest, ReaderOfThePastSeesThePast) {
  auto model = appendModel(ops);
  Graph& graph = model->graph();
  Value* past = graph.inputs()[0].get();
  Node& later = graph.create("t::Add", {past, past}, {"twice"});
  graph.addOutput(later.result());
  llvm::cantFail(inferShapes(graph));
  auto executor = executorOf(*model);
  std::vector<float> cache = {1, 2};
  std::vector<float> rows = {10};
  NamedView inputs[] = {
      {"past", view(cache, {1, 2})}, {"rows", view(rows, {1, 1})}, {"length", length}};
  Binding binding{"past", "present"};
  std::vector<Tensor> outputs = llvm::cantFail(executor->run(inputs, binding));
  EXPECT_THAT(values(outputs[2]), ElementsAre(2, 4));
  EXPECT_THAT(cache, ElementsAre(1, 10));
  EXPECT_EQ(executor->statistics().inPlaceBytesCopied, 16);
}

TEST_F(ExecutorTest, StridedInputIsPacked) {
  auto model = chain(ops, 1);
  auto executor = executorOf(*model);
  std::vector<float> data = {1, 2, 3, 4, 5, 6};
  TensorView strided = view(data, {2, 2});
  strided.strides[0] = 3;
  std::vector<Tensor> outputs = llvm::cantFail(executor->run(strided));
  EXPECT_THAT(values(outputs[0]), ElementsAre(2, 4, 8, 10));
  EXPECT_EQ(executor->statistics().packedBytes, 16);
}

TEST_F(ExecutorTest, MissingKernelIsNamed) {
  auto model = std::make_unique<Model>(ops);
  model->opsets = {{"", 17}, {"t", 1}};
  Value& x = model->graph().addInput("x", floats({"N"}));
  Node& odd = model->graph().create("t::Odd", {&x}, {"y"});
  odd.setName("strange");
  model->graph().addOutput(odd.result());
  llvm::Expected<std::unique_ptr<Executor>> executor = Executor::create(*model, kernels);
  ASSERT_FALSE(static_cast<bool>(executor));
  Diagnostic diagnostic = takeDiagnostic(executor.takeError());
  EXPECT_EQ(diagnostic.kind, Diagnostic::Kind::Unsupported);
  EXPECT_THAT(diagnostic.str(), HasSubstr("strange"));
  EXPECT_THAT(diagnostic.message, HasSubstr("operator Odd (domain t, opset 1)"));
}

TEST_F(ExecutorTest, UnknownAttributeIsNamed) {
  auto model = std::make_unique<Model>(ops);
  model->opsets = {{"", 17}, {"t", 1}};
  Value& x = model->graph().addInput("x", floats({"N"}));
  Node& node = model->graph().create("t::Flat", {&x}, {"y"});
  node.setName("newer");
  node.setAttribute("base", Attribute::ofInt(2));
  model->graph().addOutput(node.result());
  expectRefused(*model, "newer", "unknown attribute 'base'");
}

TEST_F(ExecutorTest, UnknownOperandsAreNamed) {
  define(ops, OpName("com.microsoft", "FastGelu"), 1).in("X").in("bias?").out("Y");
  auto model = std::make_unique<Model>(ops);
  model->opsets = {{"", 17}, {"com.microsoft", 1}};
  Value& x = model->graph().addInput("x", floats({"N"}));
  Node& node = model->graph().create("com.microsoft::FastGelu", {&x, &x, &x}, {"y"});
  node.setName("newer");
  model->graph().addOutput(node.result());
  expectRefused(*model, "newer", "more operands or results than kvopt knows");
}

TEST_F(ExecutorTest, InputsAreChecked) {
  auto model = appendModel(ops);
  auto executor = executorOf(*model);
  std::vector<float> data(8, 0.0f);
  NamedView past{"past", view(data, {2, 4})};
  NamedView rows{"rows", view(data, {1, 1})};
  NamedView lengths{"length", length};
  EXPECT_THAT(failure(executor->run({past, rows, lengths})),
              HasSubstr("input 'rows' makes 'B' 1 (axis 0), but input 'past' makes it 2"));
  EXPECT_THAT(failure(executor->run({past, lengths})), HasSubstr("input 'rows' is missing"));
  EXPECT_THAT(failure(executor->run({past, past})), HasSubstr("twice"));
  EXPECT_THAT(failure(executor->run({NamedView{"what", past.view}})), HasSubstr("'what'"));
  rows.view = view(data, {2, 1});
  NamedView wrongType{"length", past.view};
  EXPECT_THAT(failure(executor->run({past, rows, wrongType})), HasSubstr("declares int64"));
  NamedView wrongRank{"rows", view(data, {1})};
  EXPECT_THAT(failure(executor->run({past, wrongRank, lengths})), HasSubstr("input 'rows'"));
  int64_t two[] = {0, 0};
  NamedView wrongExtent{
      "length", TensorView::contiguous(ElementType::Int64, {2}, reinterpret_cast<std::byte*>(two))};
  EXPECT_THAT(failure(executor->run({past, rows, wrongExtent})), HasSubstr("input 'length'"));
}

TEST_F(ExecutorTest, WrongPredictionIsAnInternalErrorThatNamesTheNode) {
  auto model = chain(ops, 2);
  Node& first = model->graph().nodes().front();
  first.setName("liar");
  first.result().setType(floats({"N", "3"}));
  auto executor = executorOf(*model);
  std::vector<float> data(8, 0.0f);
  std::string text = failure(executor->run(view(data, {4, 2})));
  EXPECT_THAT(text, HasSubstr("internal error"));
  EXPECT_THAT(text, HasSubstr("liar"));
}

TEST_F(ExecutorTest, EachFailingAllocationIsAnErrorAndTheNextRunWorks) {
  auto model = chain(ops, 3);
  unsigned failures = 0;
  for (uint64_t k = 0; k < 50; ++k) {
    auto allocator = std::make_shared<FailingAllocator>(k);
    ExecutorOptions options;
    options.allocator = allocator;
    auto executor = executorOf(*model, options);
    std::vector<float> x = {1, 2};
    llvm::Expected<std::vector<Tensor>> outputs = executor->run(view(x, {1, 2}));
    EXPECT_EQ(static_cast<bool>(outputs), !allocator->hasFailed());
    if (outputs)
      break;
    ++failures;
    EXPECT_THAT(takeDiagnostic(outputs.takeError()).message, HasSubstr("cannot allocate"));
    EXPECT_THAT(values(llvm::cantFail(executor->run(view(x, {1, 2})))[0]), ElementsAre(4, 8));
  }
  EXPECT_GE(failures, 3u);
  EXPECT_LT(failures, 50u);
}

TEST_F(ExecutorTest, MemoryIsGivenBack) {
  auto allocator = std::make_shared<Allocator>();
  {
    auto model = chain(ops, 3);
    ExecutorOptions options;
    options.allocator = allocator;
    auto executor = executorOf(*model, options);
    std::vector<float> x = {1, 2};
    llvm::cantFail(executor->run(view(x, {1, 2})));
    EXPECT_GT(allocator->peakBytes(), 0u);
  }
  EXPECT_EQ(allocator->liveBytes(), 0u);
}

TEST_F(ExecutorTest, ViewOfAConstantIsMadeAnewInEveryRun) {
  Model model(ops);
  model.opsets = {{"", 17}, {"t", 1}};
  Graph& graph = model.graph();
  Value& x = graph.addInput("x", floats({"N"}));
  Value& weight = graph.addConstant("w", floatScalar(ElementType::Float, 2.0, 2));
  Node& flat = graph.createFresh("t::Flat", {&weight}, 1);
  graph.addOutput(graph.create("t::Add", {&x, &flat.result()}, {"sum"}).result());
  llvm::cantFail(inferShapes(graph));
  auto executor = executorOf(model);
  std::vector<float> data = {1};
  for (unsigned run = 0; run < 3; ++run)
    EXPECT_THAT(values(llvm::cantFail(executor->run(view(data, {1})))[0]), ElementsAre(3.0f));
}

TEST_F(ExecutorTest, FunctionBodyRunsWhereThereIsNoKernel) {
  auto model = std::make_unique<Model>(ops);
  model->opsets = {{"", 17}, {"t", 1}, {"f", 1}};
  auto function = std::make_unique<Function>(model->context(), "f", "Thrice");
  function->opsets = {{"t", 1}};
  Value& formal = function->body.addInput("a", TensorType());
  Node& twice = function->body.create("t::Add", {&formal, &formal}, {"b"});
  Node& thrice = function->body.create("t::Add", {&twice.result(), &formal}, {"c"});
  function->body.addOutput(thrice.result());
  model->functions.push_back(std::move(function));
  Value& x = model->graph().addInput("x", floats({"N"}));
  Node& first = model->graph().create("f::Thrice", {&x}, {"y"});
  Node& second = model->graph().create("f::Thrice", {&first.result()}, {"z"});
  model->graph().addOutput(second.result());
  auto executor = executorOf(*model);
  std::vector<float> data = {1, 2};
  EXPECT_THAT(values(llvm::cantFail(executor->run(view(data, {2})))[0]), ElementsAre(9, 18));
}

} // namespace
} // namespace kvopt
