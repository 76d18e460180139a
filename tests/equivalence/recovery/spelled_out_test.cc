// ai.kvopt::Sdpa with every option, against what the target primitive spells it as.
#include "tests/equivalence/recovery/spelled_graph.h"

namespace kvopt {
using namespace ir;
using namespace pattern;

namespace {

using SpelledOutTest = SpelledGraphTest;

TEST_P(SpelledOutTest, ComputesTheSameWithoutFusedOperators) {
  std::unique_ptr<Model> fused = read();
  run(*fused, "infer-shapes");
  std::unique_ptr<Model> spelled = read();
  run(*spelled, "infer-shapes,detect-sites,lower{to=primitive},eliminate-dead-nodes");
  EXPECT_EQ(count(*spelled, "Softmax"), 1u);
  EXPECT_EQ(count(*spelled, "MatMul"), 2u);
  for (const Node& node : spelled->graph().nodes())
    EXPECT_TRUE(node.op().isOnnx()) << node.op().str();
  EXPECT_EQ(spelled->opsets.count("ai.kvopt"), 0u);
  expectSame(*fused, *spelled, 2e-6f);
}

const SpelledCase fusedForms[] = {
    {"Grouped", "o = ai.kvopt.Sdpa <scale = 0.25> (q, k, v)", ""},
    {"Causal", "o = ai.kvopt.Sdpa <scale = 0.25, causal = 1> (q, k, v)", ""},
    {"Window", "o = ai.kvopt.Sdpa <scale = 0.25, causal = 1, window = 3> (q, k, v)", ""},
    {"WindowOnly", "o = ai.kvopt.Sdpa <scale = 0.25, window = 2> (q, k, v)", ""},
    {"OneGroup", "o = ai.kvopt.Sdpa <scale = 0.25, causal = 1> (q, k1, v1)", ""},
    {"EveryHead", "o = ai.kvopt.Sdpa <scale = 0.25, causal = 1> (q, k8, v8)", ""},
    {"NegativeScale", "o = ai.kvopt.Sdpa <scale = -0.5, causal = 1> (q, k, v)", ""},
    {"SoftCap", "o = ai.kvopt.Sdpa <scale = 0.25, causal = 1, softcap = 2.5> (q, k, v)", ""},
    {"AddedMask", "o = ai.kvopt.Sdpa <scale = 0.25> (q, k, v, mask)", ""},
    {"AddedMaskInAWindow",
     "o = ai.kvopt.Sdpa <scale = 0.25, causal = 1, window = 4, softcap = 3.0> (q, k, v, mask)", ""},
    // Random thresholds hide every key of some rows.
    {"BooleanMask", R"(
  threshold = Constant <value = float {0.5}> ()
  kept = Greater (mask, threshold)
  o = ai.kvopt.Sdpa <scale = 0.25, causal = 1> (q, k, v, kept)
)",
     ""},
    {"ForbiddingMask", R"(
  threshold = Constant <value = float {0.5}> ()
  kept = Greater (mask, threshold)
  allowed = Constant <value = float {0.0}> ()
  forbidden = Constant <value = float {-inf}> ()
  added = Where (kept, allowed, forbidden)
  o = ai.kvopt.Sdpa <scale = 0.25> (q, k, v, added)
)",
     ""},
    {"ALowestNumberAveragesOverAll", R"(
  threshold = Constant <value = float {0.5}> ()
  kept = Greater (mask, threshold)
  allowed = Constant <value = float {0.0}> ()
  lowest = Constant <value = float {-3.4028234e38}> ()
  added = Where (kept, allowed, lowest)
  o = ai.kvopt.Sdpa <scale = 0.25> (q, k, v, added)
)",
     ""},
    {"Sinks", R"(
  sinks = Constant <value = float[8] {0.5, -1.0, 2.0, 0.0, 9.0, -9.0, 1.0, 0.25}> ()
  o = ai.kvopt.Sdpa <scale = 0.25, causal = 1> (q, k, v, , sinks)
)",
     ""},
    {"SinksBesideAMaskThatHidesAll", R"(
  sinks = Constant <value = float[8] {0.5, -1.0, 2.0, 0.0, 9.0, -9.0, 1.0, 0.25}> ()
  threshold = Constant <value = float {1.0}> ()
  kept = Greater (mask, threshold)
  o = ai.kvopt.Sdpa <scale = 0.25> (q, k, v, kept, sinks)
)",
     ""},
    {"OneLength", R"(
  zero = Constant <value = int64[1] {0}> ()
  o = ai.kvopt.Sdpa <scale = 0.25, causal = 1> (q, k, v, , , zero)
)",
     ""},
    {"LengthsByBatchRow", sizes + R"(
  unit_step = Constant <value = int64 {1}> ()
  none = Constant <value = int64 {0}> ()
  b_scalar = Squeeze (b)
  rows = Range (none, b_scalar, unit_step)
  room = Sub (t, s)
  lengths = Min (rows, room)
  o = ai.kvopt.Sdpa <scale = 0.25, causal = 1, window = 5> (q, k, v, mask, , lengths)
)",
     ""},
};

INSTANTIATE_TEST_SUITE_P(All, SpelledOutTest, testing::ValuesIn(fusedForms), spellingName);

} // namespace
} // namespace kvopt
