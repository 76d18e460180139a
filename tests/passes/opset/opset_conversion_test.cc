// Every adapter, what is refused, and that the rest of a model stays as it is.
#include "passes/opset/opset_conversion.h"

#include "ir/op.h"
#include "ir/shapes/shape_inference.h"
#include "ir/text/printer.h"
#include "ir/text/reader.h"
#include "ir/verify/verifier.h"
#include "support/diagnostic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvopt {
using namespace ir;
using namespace opset;
using namespace pattern;

namespace {

using testing::HasSubstr;
using testing::Not;

class OpsetConversionTest : public testing::Test {
protected:
  OpsetConversionTest() { registerAll(registry); }

  /// `x` and `y` are float [2,6,4], `n` is int64 [2,6,4]; the nodes give `o`.
  std::unique_ptr<Model> read(int64_t opset, const std::string& nodes,
                              const std::string& functions = "", const std::string& domains = "") {
    auto model =
        readText("<ir_version: 7, opset_import: [\"\" : " + std::to_string(opset) + domains +
                     "]>\n"
                     "g (float[2, 6, 4] x, float[2, 6, 4] y, int64[2, 6, 4] n, bool c)\n"
                     "  => (float[] o)\n{\n" +
                     nodes + "\n}\n" + functions,
                 registry);
    if (!model)
      throw std::runtime_error(takeDiagnostic(model.takeError()).str());
    successOrThrow(inferShapes((*model)->graph()));
    return std::move(*model);
  }

  static void successOrThrow(llvm::Error error) {
    if (error)
      throw std::runtime_error(takeDiagnostic(std::move(error)).str());
  }

  std::string converted(Model& model, int64_t to = 24) {
    if (std::optional<MatchFailure> failure = opsetObstacle(model, to))
      return failure->str();
    adapted = raiseOpset(model, to);
    successOrThrow(inferShapes(model.graph()));
    successOrThrow(verify(model));
    return printText(model);
  }
  std::string converted(int64_t opset, const std::string& nodes, int64_t to = 24) {
    std::unique_ptr<Model> model = read(opset, nodes);
    return converted(*model, to);
  }

  OpRegistry registry;
  unsigned adapted = 0;
};

TEST_F(OpsetConversionTest, WhatDidNotChangeStaysAsItIs) {
  std::string text = converted(13, "a = Add (x, y) b = Relu (a) o = Concat <axis = 0> (b, x)");
  EXPECT_THAT(text, HasSubstr("\"\" : 24"));
  EXPECT_THAT(text, HasSubstr("a = Add (x, y)"));
  EXPECT_THAT(text, HasSubstr("o = Concat <axis = 0> (b, x)"));
  EXPECT_EQ(adapted, 0u);
}

TEST_F(OpsetConversionTest, DefinitionsAreThoseOfTheNewOpset) {
  std::unique_ptr<Model> model = read(11, "o = Softmax <axis = -1> (x)");
  converted(*model);
  EXPECT_EQ(model->graph().opsetVersion(), 24);
  EXPECT_EQ(model->graph().nodes().front().definition()->since, 13);
}

TEST_F(OpsetConversionTest, ANewerModelStaysWhole) {
  std::unique_ptr<Model> model = read(25, "o = Unheard (x)");
  model->resetEdited();
  EXPECT_FALSE(opsetObstacle(*model, 24));
  EXPECT_EQ(raiseOpset(*model, 24), 0u);
  EXPECT_EQ(model->graph().opsetVersion(), 25);
  EXPECT_FALSE(model->isEdited());
}

TEST_F(OpsetConversionTest, AxesBecomeOperands) {
  std::string text = converted(
      12, "u = Unsqueeze <axes = [0]> (x) s = Squeeze <axes = [0]> (u) "
          "r = ReduceSum <axes = [1], keepdims = 0> (s) o = ReduceMean <axes = [1, 0]> (r)");
  EXPECT_THAT(text, Not(HasSubstr("<axes")));
  EXPECT_THAT(text, HasSubstr("u = Unsqueeze (x, axes"));
  EXPECT_THAT(text, HasSubstr("r = ReduceSum <keepdims = 0> (s, axes"));
  EXPECT_THAT(text, HasSubstr("= {1, 0}"));
  EXPECT_EQ(adapted, 4u);
}

TEST_F(OpsetConversionTest, AReductionWithoutAxesGetsNone) {
  EXPECT_THAT(converted(13, "o = ReduceMax <keepdims = 1> (x)"),
              HasSubstr("o = ReduceMax <keepdims = 1> (x)"));
}

TEST_F(OpsetConversionTest, ASoftmaxOverSeveralAxesIsFlattened) {
  std::string text = converted(11, "o = Softmax (x)");
  EXPECT_THAT(text, HasSubstr("Flatten <axis = 1> (x)"));
  EXPECT_THAT(text, HasSubstr("Softmax <axis = -1> (softmax_rows"));
  EXPECT_THAT(text, HasSubstr("o = Reshape <allowzero = 1>"));
}

TEST_F(OpsetConversionTest, ASoftmaxOverTheLastAxisIsNot) {
  for (const char* axis : {"2", "-1"})
    EXPECT_THAT(converted(11, std::string("o = Softmax <axis = ") + axis + "> (x)"),
                HasSubstr("o = Softmax <axis = -1> (x)"));
}

TEST_F(OpsetConversionTest, SplitSaysHowManyPartsThereAre) {
  EXPECT_THAT(converted(17, "a, b = Split <axis = 1> (x) o = Add (a, b)"),
              HasSubstr("num_outputs = 2"));
  std::string text = converted(11, "a, b = Split <axis = 1, split = [3, 3]> (x) o = Add (a, b)");
  EXPECT_THAT(text, Not(HasSubstr("num_outputs")));
  EXPECT_THAT(text, HasSubstr("Split <axis = 1> (x, split"));
}

TEST_F(OpsetConversionTest, BoundsOfAClipAreOfItsType) {
  std::string text = converted(9, "o = Clip <max = 0.5> (x)");
  EXPECT_THAT(text, HasSubstr("o = Clip (x, \"\", max)"));
  EXPECT_THAT(converted(9, "o = Clip (x)"), HasSubstr("o = Clip (x)"));
}

TEST_F(OpsetConversionTest, PadSliceAndTopKTakeOperands) {
  EXPECT_THAT(converted(9, "o = Pad <pads = [0, 0, 1, 0, 0, 1], value = 2.0> (x)"),
              HasSubstr("o = Pad (x, pads, padding)"));
  EXPECT_THAT(converted(9, "o = Slice <starts = [1], ends = [3], axes = [1]> (x)"),
              HasSubstr("o = Slice (x, starts, ends, axes)"));
  EXPECT_THAT(converted(9, "o, i = TopK <axis = 2, k = 3> (x)"),
              HasSubstr("TopK <axis = 2> (x, k)"));
}

TEST_F(OpsetConversionTest, DropoutTakesItsRatio) {
  EXPECT_THAT(converted(9, "o = Dropout <ratio = 0.25> (x)"), HasSubstr("o = Dropout (x, ratio)"));
  EXPECT_THAT(converted(9, "d, m = Dropout (x) o = Where (c, d, x)"), HasSubstr("o = Where"));
  EXPECT_THAT(converted(10, "d, m = Dropout (x) o = Where (m, d, x)"),
              HasSubstr("Dropout: the mask is read"));
}

TEST_F(OpsetConversionTest, StatisticsOfTrainingAreRefused) {
  const std::string s = "s = ReduceMax <axes = [0, 2], keepdims = 0> (x) ";
  EXPECT_THAT(converted(8, s + "o = BatchNormalization <spatial = 1> (x, s, s, s, s)"),
              HasSubstr("o = BatchNormalization (x, s, s, s, s)"));
  EXPECT_THAT(converted(8, s + "o = BatchNormalization <spatial = 0> (x, s, s, s, s)"),
              HasSubstr("BatchNormalization: attribute 'spatial' is not 1"));
  EXPECT_THAT(converted(9, s + "o, a, b = BatchNormalization (x, s, s, s, s)"),
              HasSubstr("BatchNormalization: results of training"));
}

TEST_F(OpsetConversionTest, GroupsOfANormalizationAreRepeated) {
  std::string text = converted(18, "s = Constant <value = float[3] {1.0, 2.0, 3.0}> ()"
                                   "o = GroupNormalization <num_groups = 3> (x, s, s)");
  EXPECT_THAT(text, HasSubstr("Shape <start = 1, end = 2> (x)"));
  EXPECT_THAT(text, HasSubstr("GroupNormalization <num_groups = 3> (x, per_channel"));
  EXPECT_THAT(text, Not(HasSubstr("stash_type")));
}

TEST_F(OpsetConversionTest, ScatterGetsItsNewName) {
  EXPECT_THAT(converted(9, "o = Scatter <axis = 1> (x, n, y)"),
              HasSubstr("o = ScatterElements <axis = 1> (x, n, y)"));
}

TEST_F(OpsetConversionTest, AMaskOfOneColumnMeansSomethingElse) {
  const std::string heads = "<q_num_heads = 2, kv_num_heads = 2>";
  EXPECT_THAT(converted(23, "o = Attention " + heads + " (x, x, x)"), HasSubstr("\"\" : 24"));
  EXPECT_THAT(converted(23, "m = Constant <value = float[1, 1] {0.0}> () o = Attention " + heads +
                                " (x, x, x, m)"),
              HasSubstr("Attention: a mask that is not known to have a column for every key"));
}

TEST_F(OpsetConversionTest, SubgraphsAreConverted) {
  std::string text = converted(11, R"(o = If (c) <
    then_branch = g1 () => (float[] a) { u = Unsqueeze <axes = [0]> (x)
                                            a = Squeeze <axes = [0]> (u) },
    else_branch = g2 () => (float[] b) { b = Softmax (x) }>)");
  EXPECT_THAT(text, Not(HasSubstr("<axes")));
  EXPECT_THAT(text, HasSubstr("Flatten"));
  EXPECT_THAT(text, HasSubstr("b = Reshape <allowzero = 1>"));
}

TEST_F(OpsetConversionTest, FunctionsAreConverted) {
  std::unique_ptr<Model> model =
      read(12, "o = my.F (x)",
           "<domain: \"my\", opset_import: [\"\" : 12]>\n"
           "F (a) => (b) { u = Unsqueeze <axes = [0]> (a) s = Softmax (u) "
           "b = Squeeze <axes = [0]> (s) }\n",
           ", \"my\" : 1");
  std::string text = converted(*model);
  EXPECT_EQ(model->functions.front()->opsets.at(""), 24);
  EXPECT_TRUE(model->functions.front()->body.initializers().empty());
  EXPECT_THAT(text, HasSubstr("Unsqueeze (a, axes)"));
  EXPECT_THAT(text, HasSubstr("Constant <"));
  EXPECT_THAT(text, Not(HasSubstr("<axes")));
}

TEST_F(OpsetConversionTest, AnAttributeOfTheFunctionIsRefused) {
  std::unique_ptr<Model> model =
      read(12, "o = my.F <where = 1> (x)",
           "<domain: \"my\", opset_import: [\"\" : 12]>\n"
           "F <where> (a) => (b) { b = Softmax <axis: int = @where> (a) }\n",
           ", \"my\" : 1");
  EXPECT_THAT(converted(*model), HasSubstr("Softmax, whose attribute 'axis' is the function's"));
  EXPECT_EQ(model->graph().opsetVersion(), 12);
}

TEST_F(OpsetConversionTest, UnknownOperatorsAreRefusedByName) {
  std::unique_ptr<Model> model = read(17, "a = Add (x, y) o = NonMaxSuppression (a, y)");
  std::optional<MatchFailure> failure = opsetObstacle(*model, 24);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, ReasonCode::TargetLacksFeature);
  EXPECT_THAT(failure->found, HasSubstr("NonMaxSuppression"));
  EXPECT_THAT(failure->hint, HasSubstr("opset 24"));
  EXPECT_THAT(converted(8, "o = Scan <body = b (float[] i) => (float[] j) "
                           "{ j = Relu (i) }> (x)"),
              HasSubstr("Scan of opset 8"));
  EXPECT_THAT(converted(6, "o = Add (x, y)"), HasSubstr("Add of opset 6"));
  // Operators of other domains have versions of their own.
  EXPECT_THAT(converted(17, "o = com.microsoft.Unheard (x)"), HasSubstr("\"\" : 24"));
}

} // namespace
} // namespace kvopt
