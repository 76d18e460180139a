// The parts that evaluation is made of: forms, fits of strides, and rows of caches.
#include "ir/model.h"
#include "ir/op.h"
#include "ir/shapes/shape_inference.h"
#include "ir/text/reader.h"
#include "passes/analysis/evaluation/cached_rows.h"
#include "tests/support/small_slices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvopt {
using namespace analysis;
using namespace ir;

namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class EvaluatedText : public testing::Test {
protected:
  EvaluatedText() { registerAll(ops); }

  /// Reads a model, and evaluates it with these extents and numbers.
  Evaluation& evaluate(const std::string& text, llvm::StringMap<int64_t> extents,
                       std::map<std::string, NumberTensor> numbers = {}) {
    model = llvm::cantFail(readText(text, ops, "test"));
    llvm::cantFail(inferShapes(model->graph()));
    EvaluationPoint point;
    point.extents = std::move(extents);
    for (auto& [name, tensor] : numbers)
      point.inputs[model->graph().findValue(name)] = std::move(tensor);
    evaluation = std::make_unique<Evaluation>(model->graph(), std::move(point));
    return *evaluation;
  }
  const Value& value(const char* name) const { return *model->graph().findValue(name); }

  OpRegistry ops;
  std::unique_ptr<Model> model;
  std::unique_ptr<Evaluation> evaluation;
};

constexpr const char* header = "<ir_version: 8, opset_import: [\"\" : 17]>\n";

TEST_F(EvaluatedText, FormsOfOneElementMergeAndCancel) {
  Evaluation& at = evaluate(std::string(header) + R"(
g (float[B, 2] x) => (float[B, 2] y) <float two = {2.0}, float three = {3.0}>
{
  twice = Mul (x, two)
  more = Add (twice, x)
  same = Sub (more, twice)
  y = Add (same, three)
  none = Sub (x, x)
})",
                            {{"B", 3}});
  std::vector<LinearForm> forms;
  ASSERT_TRUE(at.traceAll(value("more"), forms));
  ASSERT_EQ(forms.size(), 6U);
  ASSERT_EQ(forms[4].terms.size(), 1U);
  EXPECT_EQ(forms[4].terms[0].weight, 3);
  EXPECT_EQ(forms[4].terms[0].element, 4);
  EXPECT_EQ(forms[4].asElement(), nullptr) << "it is scaled";
  ASSERT_TRUE(at.traceAll(value("same"), forms));
  ASSERT_NE(forms[5].asElement(), nullptr);
  EXPECT_EQ(forms[5].asElement()->block, &value("x"));
  ASSERT_TRUE(at.traceAll(value("y"), forms));
  EXPECT_EQ(forms[0].constant, 3);
  EXPECT_EQ(forms[0].asElement(), nullptr);
  ASSERT_TRUE(at.traceAll(value("none"), forms));
  EXPECT_TRUE(forms[0].isNumber());
}

TEST_F(EvaluatedText, EverySmallSliceTakesWhatOnnxSays) {
  Evaluation& first = evaluate(std::string(header) + R"(
g (float[N] x, int64[1] a, int64[1] b, int64[1] d) => (y) <int64[1] c = {0}>
{
  y = Slice (x, a, b, c, d)
  length = Shape (y)
})",
                               {{"N", 1}});
  forEachSmallSlice([&](const SmallSlice& slice) {
    EvaluationPoint point;
    point.extents["N"] = slice.extent;
    for (const auto& [name, number] :
         {std::pair("a", slice.start), std::pair("b", slice.end), std::pair("d", slice.step)})
      point.inputs[&value(name)] = {{1}, {static_cast<double>(number)}};
    Evaluation at(first, std::move(point));
    const std::vector<int64_t> taken = slice.indices();
    const Extents* extents = at.extents(value("y"));
    ASSERT_TRUE(extents) << slice.text();
    EXPECT_THAT(*extents, ElementsAre(static_cast<int64_t>(taken.size()))) << slice.text();
    std::vector<LinearForm> forms;
    ASSERT_TRUE(at.traceAll(value("y"), forms)) << slice.text();
    for (size_t i = 0; i < taken.size(); ++i) {
      ASSERT_NE(forms[i].asElement(), nullptr) << slice.text();
      EXPECT_EQ(forms[i].asElement()->element, taken[i]) << slice.text();
    }
  });
}

TEST_F(EvaluatedText, SumsOfManyElementsAreBlocks) {
  Evaluation& at = evaluate(std::string(header) + R"(
g (float[B, 5] x) => (float[B] few) <int64[1] axis = {1}, int64[1] first = {0}, int64[1] end = {4}>
{
  many = ReduceSum <keepdims = 0> (x, axis)
  four = Slice (x, first, end, axis)
  few = ReduceSum <keepdims = 0> (four, axis)
})",
                            {{"B", 2}});
  std::vector<LinearForm> forms;
  ASSERT_TRUE(at.traceAll(value("few"), forms));
  EXPECT_EQ(forms[1].terms.size(), 4U);
  ASSERT_TRUE(at.traceAll(value("many"), forms));
  ASSERT_NE(forms[1].asElement(), nullptr);
  EXPECT_EQ(forms[1].asElement()->block, &value("many"));
}

TEST_F(EvaluatedText, WhatIsNotLinearIsABlock) {
  Evaluation& at = evaluate(std::string(header) + R"(
g (float[B, 4] x, float[B, 4] y, float[4, 8] w) => (float[B, 4] a)
{
  product = Mul (x, y)
  bent = Tanh (x)
  narrow = Cast <to = 10> (x)
  a = Identity (x)
})",
                            {{"B", 2}});
  for (const char* name : {"product", "bent", "narrow"}) {
    std::vector<LinearForm> forms;
    ASSERT_TRUE(at.traceAll(value(name), forms));
    ASSERT_NE(forms[3].asElement(), nullptr) << name;
    EXPECT_EQ(forms[3].asElement()->block, &value(name));
  }
}

TEST_F(EvaluatedText, IndicesOutOfRangeAndWritesOfOnePlaceAreUnknown) {
  Evaluation& at = evaluate(std::string(header) + R"(
g (float[4, 2] x, float[2, 2] new) => (float[2, 2] a)
<int64[2] out = {0, 4}, int64[2, 1] twice = {1, 1}, int64[2, 1] once = {1, 3}>
{
  a = Gather <axis = 0> (x, out)
  both = ScatterND (x, twice, new)
  each = ScatterND (x, once, new)
})",
                            {});
  for (const char* name : {"a", "both"}) {
    std::vector<LinearForm> forms;
    ASSERT_TRUE(at.traceAll(value(name), forms));
    ASSERT_NE(forms[0].asElement(), nullptr) << name;
    EXPECT_EQ(forms[0].asElement()->block, &value(name));
  }
  std::vector<LinearForm> forms;
  ASSERT_TRUE(at.traceAll(value("each"), forms));
  EXPECT_EQ(forms[1].asElement()->block, &value("x"));
  EXPECT_EQ(forms[2].asElement()->block, &value("new"));
  EXPECT_EQ(forms[7].asElement()->element, 3);
}

TEST_F(EvaluatedText, IntegersThatAreNotExactAreUnknown) {
  Evaluation& at = evaluate(std::string(header) + R"(
g (int64[1] n) => (int64[1] a) <int64[1] large = {9007199254740992}, int64[1] zero = {0}>
{
  a = Add (large, n)
  b = Div (n, zero)
  c = Min (large, n)
})",
                            {}, {{"n", {{1}, {7}}}});
  EXPECT_EQ(at.numbers(value("a")), nullptr);
  EXPECT_EQ(at.numbers(value("b")), nullptr);
  ASSERT_NE(at.numbers(value("c")), nullptr);
  EXPECT_THAT(at.numbers(value("c"))->numbers, ElementsAre(7));
}

TEST_F(EvaluatedText, TheBranchThatIsTakenIsFollowed) {
  Evaluation& at = evaluate(std::string(header) + R"(
g (float[2, B] x, bool flag) => (float[2, B] y)
{
  y = If (flag) <then_branch = t () => (float[2, B] a) { a = Identity (x) },
                 else_branch = e () => (float[2, B] b) { b = Neg (x) }>
})",
                            {{"B", 3}}, {{"flag", {{}, {0}}}});
  std::vector<LinearForm> forms;
  ASSERT_TRUE(at.traceAll(value("y"), forms));
  ASSERT_EQ(forms[5].terms.size(), 1U);
  EXPECT_EQ(forms[5].terms[0].weight, -1);
}

using Factors = llvm::SmallVector<AxisFactor, 2>;

/// sources[i] of a tensor that is moved as `from` says.
std::vector<int64_t> sourcesOf(llvm::ArrayRef<int64_t> extents,
                               llvm::function_ref<int64_t(llvm::ArrayRef<int64_t>)> from) {
  std::vector<int64_t> sources;
  for (int64_t i = 0; i < countOf(extents).value(); ++i)
    sources.push_back(from(indexOf(i, extents)));
  return sources;
}

TEST(MovementFits, AreCutIntoFactors) {
  // [B*H, T] of [B, T, H], H = 4, T = 3.
  const auto folded = fitMovement(
      {8, 3}, sourcesOf({8, 3}, [](auto i) { return i[0] / 4 * 12 + i[1] * 4 + i[0] % 4; }));
  ASSERT_TRUE(folded);
  EXPECT_EQ(folded->axes[0], (Factors{{2, 12}, {4, 1}}));
  EXPECT_EQ(folded->axes[1], (Factors{{3, 4}}));
  // Each of 2 heads three times, and both heads three times.
  const auto each = fitMovement({6}, sourcesOf({6}, [](auto i) { return i[0] / 3 * 5; }));
  const auto whole = fitMovement({6}, sourcesOf({6}, [](auto i) { return i[0] % 2 * 5; }));
  ASSERT_TRUE(each && whole);
  EXPECT_EQ(each->axes[0], (Factors{{2, 5}, {3, 0}}));
  EXPECT_EQ(whole->axes[0], (Factors{{3, 0}, {2, 5}}));
  // Axes of one index add nothing.
  const auto one = fitMovement({1, 2}, {7, 9});
  ASSERT_TRUE(one);
  EXPECT_EQ(one->offset, 7);
  EXPECT_THAT(one->axes[0], IsEmpty());
  EXPECT_EQ(one->axes[1], (Factors{{2, 2}}));
  EXPECT_FALSE(fitMovement({4}, {0, 1, 3, 2}));
  EXPECT_FALSE(fitMovement({5}, {0, 1, 2, 3, 5}));
  EXPECT_FALSE(fitMovement({2, 2}, {0, 1, 2, 4})) << "axes do not add up";
}

TEST(MovementFits, AreCutAlike) {
  Factors one{{8, 2}}, other{{2, 10}, {4, 1}};
  ASSERT_TRUE(cutAlike(one, other));
  EXPECT_EQ(one, (Factors{{2, 8}, {4, 2}}));
  EXPECT_EQ(other, (Factors{{2, 10}, {4, 1}}));
  Factors three{{3, 2}, {2, 1}}, two{{2, 3}, {3, 1}};
  EXPECT_FALSE(cutAlike(three, two));
  Factors longer{{8, 1}}, shorter{{4, 1}};
  EXPECT_FALSE(cutAlike(longer, shorter));
}

constexpr const char* joinedText = R"(
g (float[B, 2, P, 3] past, float[B, S, 6] given) => (float[B, 2, ?, 3] all)
<int64[4] split = {0, 0, 2, 3}, int64[1] from = {1}, int64[1] end = {1000}, int64[1] axis = {2},
 float two = {2.0}>
{
  new = Tanh (given)
  parted = Reshape (new, split)
  rows = Transpose <perm = [0, 2, 1, 3]> (parted)
  all = Concat <axis = 2> (past, rows)
  later = Slice (all, from, end, axis)
  turned = Transpose <perm = [0, 1, 3, 2]> (all)
  first = Concat <axis = 2> (rows, past)
  scaled = Mul (rows, two)
  mixed = Concat <axis = 2> (past, scaled)
  summed = Add (all, all)
})";

TEST_F(EvaluatedText, RowsOfCachesAndNewOnesAreToldApart) {
  Evaluation& at = evaluate(std::string(header) + joinedText, {{"B", 2}, {"P", 5}, {"S", 4}});
  const std::vector<const Value*> candidates = freshCandidates(value("turned"), at);
  EXPECT_THAT(candidates, testing::Contains(&value("rows")));
  EXPECT_THAT(candidates, testing::Contains(&value("parted")));
  const auto rows = cachedRows(value("turned"), &value("rows"), at);
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->past, &value("past"));
  EXPECT_EQ(rows->axis, 3U);
  EXPECT_EQ(rows->first, 5);
  EXPECT_EQ(rows->count, 4);
  EXPECT_TRUE(rows->isAppended());
  EXPECT_FALSE(cachedRows(value("turned"), nullptr, at)) << "not all are of the cache";
  EXPECT_EQ(joinedPast(value("all"), at), &value("past"));
  EXPECT_EQ(joinedPast(value("past"), at), nullptr);
  EXPECT_EQ(joinedPast(value("rows"), at), nullptr);

  const auto later = cachedRows(value("later"), &value("rows"), at);
  ASSERT_TRUE(later);
  EXPECT_EQ(later->first, 4);
  EXPECT_EQ(later->ofPast.offset, 3) << "one row is skipped";
  const auto first = cachedRows(value("first"), &value("rows"), at);
  ASSERT_TRUE(first);
  EXPECT_FALSE(first->isAppended());
  EXPECT_LT(first->ofPast.offset, 0) << "rows of the cache do not stand at their places";
  EXPECT_FALSE(cachedRows(value("mixed"), &value("rows"), at));
  const auto summed = cachedRows(value("summed"), &value("rows"), at);
  ASSERT_TRUE(summed);
  EXPECT_EQ(summed->factor, 2) << "each element is added to itself";
}

} // namespace
} // namespace kvopt
