// States of fixed extents: which output is the next value of which input.
#include "passes/analysis/cache/state_pairs.h"

#include "ir/shapes/shape_inference.h"
#include "tests/ir/text/text_fixture.h"

namespace kvopt {
using namespace analysis;
using namespace ir;

namespace {

/// `past->present`, in the order of the inputs, of a graph `inputs => outputs { body }`.
std::string pairs(const std::string& inputs, const std::string& outputs, const std::string& body,
                  const std::string& constants = "") {
  auto model = readOrFail("<ir_version: 8, opset_import: [\"\" : 17]>\ng (" + inputs + ") => (" +
                          outputs + ")" + constants + "\n{\n" + body + "\n}\n");
  if (!model)
    return "unreadable";
  llvm::cantFail(inferShapes(model->graph()));
  std::string text;
  for (const StatePair& pair : statesByDataFlow(model->graph(), {}, {}))
    text += (text.empty() ? "" : " ") + pair.past->name().str() + "->" + pair.present->name().str();
  return text;
}

const std::string ids = "int64[B, S] ids, ";

TEST(StatePairs, ARecurrenceAndAConvolutionWindow) {
  EXPECT_EQ(
      pairs(ids + "float[B, 4, 3] conv, float[B, 4, 2] state, float[B, 4, 1] x",
            "float[B, 4, 2] next_state, float[B, 4, 3] next_conv", R"(
  longer = Concat <axis = 2> (conv, x)
  next_conv = Slice (longer, one, end, two)
  decayed = Mul (state, half)
  next_state = Add (decayed, x)
)",
            "<int64[1] one = {1}, int64[1] end = {4}, int64[1] two = {2}, float half = {0.5}>"),
      "conv->next_conv state->next_state");
}

// The first layer's state reaches the second one's output as well.
TEST(StatePairs, TheNearestOutputIsTaken) {
  const std::string layers = R"(
  a_next = Add (a, x)
  y = Tanh (a_next)
  z = Mul (y, b)
  b_next = Add (z, b)
)";
  const std::string states = ids + "float[B, 1] x, float[B, 4] b, float[B, 4] a";
  EXPECT_EQ(pairs(states, "float[B, 4] b_next, float[B, 4] a_next", layers), "b->b_next a->a_next");
}

// Nothing tells a state from what is added to it.
TEST(StatePairs, AsNearAsAnotherInput) {
  EXPECT_EQ(pairs(ids + "float[B, 4] x, float[B, 4] a", "float[B, 4] next", "next = Add (a, x)"),
            "");
}

// The hidden state comes from the cell's: the cell is nearer to its own next value.
TEST(StatePairs, ACellAndItsHiddenState) {
  EXPECT_EQ(pairs(ids + "float[B, 4] h, float[B, 4] c", "float[B, 4] h_next, float[B, 4] c_next",
                  R"(
  mixed = MatMul (h, weights)
  gate = Sigmoid (mixed)
  kept = Mul (c, gate)
  c_next = Add (kept, gate)
  squashed = Tanh (c_next)
  h_next = Mul (squashed, gate)
)",
                  "<float[4, 4] weights = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}>"),
            "h->h_next c->c_next");
}

TEST(StatePairs, AnOperatorThatCarriesStates) {
  EXPECT_EQ(pairs(ids + "float[1, B, 2] h, float[1, B, 2] c, float[S, B, 1] x, float[1, 8, 1] w, "
                        "float[1, 8, 2] r",
                  "float[1, B, 2] c_next, float[1, B, 2] h_next, float[S, 1, B, 2] y", R"(
  y, h_next, c_next = LSTM <hidden_size = 2> (x, w, r, , , h, c)
)"),
            "h->h_next c->c_next");
}

TEST(StatePairs, NearMisses) {
  // Only the shape is read.
  EXPECT_EQ(pairs(ids + "float[B, 4] state, float[B, 1] x", "float[B, 4] next", R"(
  shape = Shape (state)
  next = Expand (x, shape)
)"),
            "");
  // Other extents, another element type, a repeated input.
  EXPECT_EQ(pairs(ids + "float[B, 4] state", "float[B, 5] next", R"(
  next = Concat <axis = 1> (state, one)
)",
                  "<float[1, 1] one = {1}>"),
            "");
  EXPECT_EQ(pairs(ids + "float[B, 4] state", "float16[B, 4] next", "next = Cast <to = 10> (state)"),
            "");
  EXPECT_EQ(pairs(ids + "float[B, 4] state", "float[B, 4] same", "same = Identity (state)"), "");
  // A cache that grows has two open extents.
  EXPECT_EQ(pairs(ids + "float[B, 2, P, 4] past, float[B, 2, 1, 4] x", "float[B, 2, T, 4] present",
                  "present = Concat <axis = 2> (past, x)"),
            "");
  // An encoder reads no token.
  EXPECT_EQ(pairs("float[B, 4, 8] x", "float[B, 4, 8] y", "y = Tanh (x)"), "");
}

} // namespace
} // namespace kvopt
