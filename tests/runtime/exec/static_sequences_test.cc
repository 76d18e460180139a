// Sequences whose elements the graph tells are replaced by their elements; others are refused.
#include "runtime/exec/static_sequences.h"

#include "runtime/exec/executor.h"
#include "tests/ir/text/text_fixture.h"

#include "ir/shapes/shape_inference.h"

#include <gmock/gmock.h>

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

using testing::HasSubstr;

/// The result `y` of a graph over x = [1, 2, 3], `extents: elements`, or the error.
std::string computed(const std::string& body, const std::string& constants = "",
                     const std::string& output = "float y", const std::string& functions = "") {
  auto model =
      readOrFail("<ir_version: 8, opset_import: [\"\" : 17, \"local\" : 1]>\ng (float[3] x) => (" +
                 output + ")\n<int64 first = {0}, int64 second = {1}, int64 last = {-1}, " +
                 "int64 far = {7}" + constants + ">\n{\n" + body + "\n}\n" + functions);
  if (!model)
    return "unreadable";
  llvm::cantFail(inferShapes(model->graph()));
  KernelRegistry kernels;
  registerAll(kernels);
  auto executor = Executor::create(*model, kernels);
  if (!executor)
    return takeDiagnostic(executor.takeError()).str();
  std::vector<float> x = {1, 2, 3};
  std::vector<Tensor> outputs;
  const NamedView input = {
      "x", TensorView::contiguous(ElementType::Float, {3}, reinterpret_cast<std::byte*>(x.data()))};
  if (llvm::Error error = (*executor)->run(input, {}, outputs))
    return takeDiagnostic(std::move(error)).str();
  std::string text = formatted("{}:", joinedText(outputs[0].view.shape, "x"));
  for (int64_t i = 0; i < outputs[0].view.elementCount(); ++i)
    text += outputs[0].view.element == ElementType::Int64
                ? formatted(" {}", outputs[0].view.as<int64_t>()[i])
                : formatted(" {}", outputs[0].view.as<float>()[i]);
  return text;
}

constexpr const char* two = "  n = Neg (x)\n  s = SequenceConstruct (x, n)\n";

TEST(StaticSequences, ElementsByPosition) {
  EXPECT_EQ(computed(two + std::string("  y = SequenceAt (s, second)")), "3: -1 -2 -3");
  EXPECT_EQ(computed(two + std::string("  t = Identity (s)\n  y = SequenceAt (t, last)")),
            "3: -1 -2 -3");
  EXPECT_EQ(computed(two + std::string("  y = SequenceLength (s)"), "", "int64 y"), ": 2");
}

TEST(StaticSequences, PositionsThatAFunctionTakesAreThoseOfTheCall) {
  const std::string pick = "<domain: \"local\", opset_import: [\"\" : 17]>\n"
                           "Pick (a, b, i) => (y) {\n"
                           "  s = SequenceConstruct (a, b)\n"
                           "  t = SequenceErase (s, i)\n  y = SequenceAt (t, i)\n}\n";
  EXPECT_EQ(computed("  n = Neg (x)\n  y = local.Pick (x, n, first)", "", "float y", pick),
            "3: -1 -2 -3");
  EXPECT_THAT(computed("  n = Neg (x)\n  y = local.Pick (x, n, far)", "", "float y", pick),
              HasSubstr("not a constant"));
}

TEST(StaticSequences, InsertedAndErased) {
  const std::string inserted = two + std::string("  a = Add (x, x)\n");
  EXPECT_EQ(computed(inserted + "  t = SequenceInsert (s, a, first)\n  y = SequenceAt (t, first)"),
            "3: 2 4 6");
  EXPECT_EQ(computed(inserted + "  t = SequenceInsert (s, a)\n  y = SequenceAt (t, last)"),
            "3: 2 4 6");
  EXPECT_EQ(computed(two + std::string("  t = SequenceErase (s, first)\n  y = SequenceAt (t, "
                                       "first)")),
            "3: -1 -2 -3");
  EXPECT_EQ(computed("  s = SequenceEmpty ()\n  t = SequenceInsert (s, x)\n"
                     "  y = ConcatFromSequence <axis = 0> (t)"),
            "3: 1 2 3");
}

TEST(StaticSequences, ConcatenatedAndSplit) {
  EXPECT_EQ(computed(two + std::string("  y = ConcatFromSequence <axis = 0> (s)")),
            "6: 1 2 3 -1 -2 -3");
  EXPECT_EQ(computed(two + std::string("  y = ConcatFromSequence <axis = 1, new_axis = 1> (s)")),
            "3x2: 1 -1 2 -2 3 -3");
  EXPECT_EQ(computed("  s = SplitToSequence <keepdims = 0> (x)\n  y = SequenceAt (s, last)"),
            ": 3");
  EXPECT_EQ(computed("  s = SplitToSequence (x)\n  y = SequenceAt (s, second)"), "1: 2");
}

// The body reads a value of the graph around it.
TEST(StaticSequences, MappedOverABody) {
  EXPECT_EQ(computed(two + std::string(R"(
  t = SequenceMap <body = each (float[N] e) => (float[N] r) {
    m = Mul (e, e)
    r = Add (m, x)
  }> (s)
  y = ConcatFromSequence <axis = 0> (t)
)")),
            "6: 2 6 12 2 6 12");
}

TEST(StaticSequences, WhatIsNotKnownIsRefusedByName) {
  EXPECT_THAT(
      computed(two + std::string("  [\"out/of\"] y = SequenceAt (s, far)")),
      HasSubstr("node 'out/of' (SequenceAt): the position in the sequence is not a constant "
                "within it"));
  EXPECT_THAT(computed(two + std::string("  d = ReduceMax <keepdims = 0> (x)\n"
                                         "  i = Cast <to = 7> (d)\n"
                                         "  [\"dynamic\"] y = SequenceAt (s, i)")),
              HasSubstr("'dynamic'"));
  EXPECT_THAT(computed(two + std::string("  y = Identity (s)")), HasSubstr("sequence"));
  EXPECT_THAT(
      computed("  s = SequenceEmpty ()\n  [\"none\"] y = ConcatFromSequence <axis = 0> (s)"),
      HasSubstr("'none' (ConcatFromSequence): an empty sequence"));
  EXPECT_THAT(
      computed("  b = Cast <to = 9> (x)\n  w = NonZero (b)\n"
               "  [\"parts\"] s = SplitToSequence <axis = 1> (w)\n  y = SequenceAt (s, first)",
               "", "int64 y"),
      HasSubstr("SplitToSequence"));
}

} // namespace
} // namespace kvopt
