// The rule of Slice takes what ONNX says.
#include "check/arithmetic/call.h"
#include "tests/check/checked_models.h"
#include "tests/support/small_slices.h"

#include <limits>

namespace kvopt::check {
namespace {

/// The indices that the rule takes of an axis that holds its indices.
std::vector<int64_t> taken(const ir::Node& node, const SmallSlice& slice, Arithmetic& math) {
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < slice.extent; ++i)
    indices.push_back(i);
  const std::vector<Ref> operands{
      integerTensor({slice.extent}, indices), integerTensor({1}, {slice.start}),
      integerTensor({1}, {slice.end}), integerTensor({1}, {0}), integerTensor({1}, {slice.step})};
  Call call(node, nullptr, operands, math);
  const Results results = allRules()["Slice"](call);
  EXPECT_EQ(results.size(), 1U) << call.failure;
  return results.empty() ? std::vector<int64_t>{-1} : results[0]->integers;
}

TEST(CheckSlices, EverySmallOneTakesWhatOnnxSays) {
  const auto model = read(R"(<ir_version: 8, opset_import: ["" : 17]>
g (int64[N] x, int64[1] a, int64[1] b, int64[1] c, int64[1] d) => (y)
{ y = Slice (x, a, b, c, d) })");
  ASSERT_TRUE(model);
  const ir::Node& node = model->graph().nodes().front();
  Arithmetic math(0);
  forEachSmallSlice([&](const SmallSlice& slice) {
    EXPECT_EQ(taken(node, slice, math), slice.indices()) << slice.text();
  });
  constexpr int64_t least = std::numeric_limits<int64_t>::min();
  constexpr int64_t most = std::numeric_limits<int64_t>::max();
  using Indices = std::vector<int64_t>;
  EXPECT_EQ(taken(node, {most, least, -1, 3}, math), (Indices{2, 1, 0}));
  EXPECT_EQ(taken(node, {least, most, 1, 3}, math), (Indices{0, 1, 2}));
  EXPECT_EQ(taken(node, {least, least, -1, 3}, math), (Indices{0}));
  EXPECT_EQ(taken(node, {0, most, most, 3}, math), (Indices{0}));
  EXPECT_EQ(taken(node, {2, least, least, 3}, math), (Indices{2}));
}

} // namespace
} // namespace kvopt::check
