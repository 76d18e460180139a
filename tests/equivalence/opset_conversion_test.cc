// Graphs of old opsets compute bit for bit the same after they are brought to opset 24.
#include "tests/equivalence/recovery/spelled_graph.h"

namespace kvopt {
using namespace ir;

namespace {

using OpsetAdapterTest = SpelledGraphTest;

TEST_P(OpsetAdapterTest, ComputesTheSameBytes) {
  std::unique_ptr<Model> old = read();
  run(*old, "infer-shapes");
  std::unique_ptr<Model> raised = read();
  run(*raised, "infer-shapes,convert-opset{to=24}");
  EXPECT_EQ(raised->graph().opsetVersion(), 24);
  expectSame(*old, *raised);
}

const SpelledCase adapted[] = {
    {"SoftmaxOverThreeAxes", "o = Softmax (q)", "", 11},
    {"SoftmaxOverTwoAxes", "o = Softmax <axis = 2> (q)", "", 12},
    {"SoftmaxOverTheLastAxis", "o = Softmax <axis = 3> (q)", "", 11},
    {"SoftmaxOverAllAxes", "o = Softmax <axis = 0> (q)", "", 12},
    {"LogSoftmaxCountedFromTheEnd", "o = LogSoftmax <axis = -2> (q)", "", 11},
    {"AxesOfMovements", "u = Unsqueeze <axes = [0, 5]> (q) o = Squeeze <axes = [0, 5]> (u)", "",
     11},
    {"AxesOfASum", "o = ReduceSum <axes = [-1, 1]> (q)", "", 12},
    {"AxesOfAMean", "o = ReduceMean <axes = [2]> (q)", "", 17},
    {"ASumOfAll", "s = ReduceSum <keepdims = 1> (q) o = Add (q, s)", "", 11},
    {"EqualParts", "a, b = Split <axis = 1> (q) o = Sub (a, b)", "", 17},
    {"GivenParts", "a, b = Split <axis = 1, split = [3, 5]> (q) o = Concat <axis = 1> (b, a)", "",
     11},
    {"Bounds", "o = Clip <min = -0.25, max = 0.5> (q)", "", 9},
    {"OneBound", "o = Clip <min = 0.125> (q)", "", 7},
    {"Padding", "o = Pad <pads = [0, 1, 0, 0, 0, 0, 2, 3], value = 0.5> (q)", "", 9},
    {"Largest", "o, i = TopK <axis = 3, k = 5> (q)", "", 9},
};

INSTANTIATE_TEST_SUITE_P(Adapters, OpsetAdapterTest, testing::ValuesIn(adapted),
                         [](const testing::TestParamInfo<SpelledCase>& parameter) {
                           return parameter.param.name;
                         });

} // namespace
} // namespace kvopt
