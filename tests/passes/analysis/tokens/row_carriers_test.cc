// What carries the rows of hidden tokens to others, and what does not.
#include "passes/analysis/tokens/row_carriers.h"

#include "ir/shapes/shape_inference.h"
#include "support/format.h"
#include "tests/ir/text/text_fixture.h"

#include <gmock/gmock.h>

namespace kvopt {
using namespace analysis;
using namespace ir;

namespace {

std::string ones(int count) {
  std::string text = "1";
  for (int i = 1; i < count; ++i)
    text += ", 1";
  return text;
}

/// What carries rows in a decoder of one layer of attention whose result, x [B,S,8], `body` makes
/// y of. `next` is the next value of the state `past` [B,8,2]; it is read like a cache.
std::string carrierOf(const std::string& body, const std::string& next = "",
                      const std::string& tokens = "S") {
  std::string outputs = "float[] y, float[B, 2, T, 4] present_k, float[B, 2, T, 4] present_v";
  if (!next.empty())
    outputs += ", float[] " + next;
  auto model = readOrFail(formatted(
      R"(<ir_version: 8, opset_import: ["" : 18, "ai.kvopt" : 1, "com.microsoft" : 1]>
g (float[B, 2, {0}, 4] q, float[B, 2, {0}, 4] k, float[B, 2, {0}, 4] v, float[B, {0}, 8] h, bool[B, 1, 1, T] visible,
   float[B, 2, P, 4] past_k, float[B, 2, P, 4] past_v, float[B, 8, 2] past, float[B, 1, 8] before) => ({1})
<float[8, 8] w = {{{2}}}, float[8] g8 = {{{3}}}, float[8, 1, 3] kernel = {{{4}}}, float[3, 8, 8] experts = {{{5}}},
 int64 one = {{1}}, int64[1] first = {{0}}, int64[1] second = {{1}}, int64[1] minus = {{-1}}, int64[1] k1 = {{1}},
 int64[1] end = {{9223372036854775807}}, int64[3] whole = {{0, 0, 8}}, int64[2] flat = {{-1, 8}},
 int64[3] padding_axis = {{0, 1, 0}}, int64[6] pads = {{0, 1, 0, 0, -1, 0}}>
{{
  present_k = Concat <axis = 2> (past_k, k)
  present_v = Concat <axis = 2> (past_v, v)
  a = ai.kvopt.Sdpa <scale = 0.5, causal = 1> (q, present_k, present_v, visible)
  t = Transpose <perm = [0, 2, 1, 3]> (a)
  x = Reshape (t, whole)
{6}
}}
)",
      tokens, outputs, ones(64), ones(8), ones(24), ones(192), body));
  if (!model)
    return "unreadable";
  Graph& graph = model->graph();
  if (llvm::Error error = inferShapes(graph))
    return takeDiagnostic(std::move(error)).str();
  llvm::DenseSet<const Value*> states;
  if (!next.empty())
    states.insert(graph.findValue(next));
  const auto found = findRowCarrier(graph, findSites(graph), states);
  return found ? found->why : "";
}

TEST(RowCarriers, PlainDecodersKeepRowsApart) {
  const char* bodies[] = {
      "  m = MatMul (x, w)\n  s = Add (m, h)\n  y = Relu (s)",
      "  s = Add (h, x)\n  n = LayerNormalization <axis = -1> (s, g8)\n  y = MatMul (n, w)",
      "  y, mean, deviation, sum = com.microsoft.SkipLayerNormalization (h, x, g8)",
      // Batch rows and tokens on one axis, and back.
      "  f = Reshape (x, flat)\n  m = Gemm (f, w)\n  r = Reshape (m, whole_of_h)\n  y = Add (r, h)",
      // The last token's scores.
      "  l = Slice (x, minus, end, second)\n  y = MatMul (l, w)",
      "  l = Gather <axis = 1> (x, minus_one)\n  y = MatMul (l, w)",
      // An expert for each token.
      "  f = Reshape (x, flat)\n  best, expert = TopK (f, k1)\n  e = Gather (experts_flat, "
      "expert)\n"
      "  y = Mul (e, best)",
      ("  f = Reshape (x, flat)\n  best, expert = TopK (f, k1)\n  e = GatherND (experts, expert)\n"
       "  c = Unsqueeze (f, minus)\n  y = MatMul (e, c)"),
      // Numbers of each token's own row over others of it.
      "  best, expert = TopK (x, k1)\n  none = Sub (h, h)\n  y = ScatterElements <axis = 2> (none, "
      "expert, best)",
      "  f = Reshape (x, flat)\n  best, expert = TopK (f, k1)\n  n = Shape (expert)\n  c = "
      "ConstantOfShape (n)\n"
      "  s = ScatterElements <axis = -1> (f, expert, c)\n  y = MatMul (s, w)",
      // What is combined along the tokens is not a result of attention.
      "  c = CumSum (h, one)\n  y = Add (x, c)",
      "  c = ReduceMean <keepdims = 1> (h, second)\n  y = Add (x, c)",
  };
  for (std::string body : bodies) {
    if (body.find("whole_of_h") != std::string::npos)
      body = "  whole_of_h = Shape (h)\n" + body;
    if (body.find("minus_one") != std::string::npos)
      body = "  minus_one = Constant <value_int = -1> ()\n" + body;
    if (body.find("experts_flat") != std::string::npos)
      body = "  experts_flat = Squeeze (g8_row)\n" + body;
    if (body.find("g8_row") != std::string::npos)
      body = "  g8_row = Unsqueeze (g8, first)\n" + body;
    EXPECT_EQ(carrierOf(body), "") << body;
  }
}

struct Carrier {
  const char* body;
  const char* why; ///< a part of it
};

TEST(RowCarriers, WhatReadsSeveralTokensCarriesRows) {
  const Carrier carriers[] = {
      {"  c = Transpose <perm = [0, 2, 1]> (x)\n  y = Conv <group = 8, pads = [2, 0]> (c, kernel)",
       "Conv"},
      {"  y = CumSum (x, one)", "CumSum"},
      {"  y = ReduceMean <keepdims = 1> (x, second)", "ReduceMean"},
      {"  y = ReduceSum <keepdims = 0> (x)", "ReduceSum"},
      {"  y = Softmax <axis = 1> (x)", "Softmax"},
      {"  y = LayerNormalization <axis = 1> (x, g8)", "LayerNormalization"},
      {"  t2 = Transpose <perm = [0, 2, 1]> (x)\n  y = MatMul (x, t2)", "MatMul"},
      {"  t2 = Transpose <perm = [0, 2, 1]> (h)\n  y = MatMul (t2, x)", "MatMul"},
      // A shift by one token.
      {"  e = Slice (x, first, minus, second)\n  s = Concat <axis = 1> (before, e)\n  y = Add (x, "
       "s)",
       "it joins the rows of tokens with other rows"},
      {"  s = Pad (x, pads)\n  y = Sub (x, s)", "Pad"},
      {"  best, expert = TopK (x, k1)\n  y = ScatterElements <axis = 1> (x, expert, best)",
       "it selects tokens by position"},
      {"  e = Slice (x, first, minus, second)\n  f = Slice (x, second, end, second)\n  y = Sub (f, "
       "e)",
       "it combines the rows of several tokens"},
      // The last token's row for all of them.
      {"  l = Slice (x, minus, end, second)\n  y = Add (l, h)",
       "it broadcasts the rows of some tokens to all"},
      {"  l = Slice (x, minus, end, second)\n  n = Shape (h)\n  y = Expand (l, n)",
       "it broadcasts the rows of some tokens to all"},
      {"  i = Cast <to = 7> (h)\n  n = ReduceMax <keepdims = 0> (i)\n  r = ReduceMax <keepdims = "
       "0> (x)\n"
       "  y = Add (h, r)",
       "ReduceMax"},
      {"  codes, scale, zero = DynamicQuantizeLinear (x)\n"
       "  y = DequantizeLinear (codes, scale, zero)",
       "dynamic quantization has one scale over all tokens"},
      {"  y, last = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [1], body "
       "= "
       "step (float[B, 8] s, float[B, 8] i) => (float[B, 8] o, float[B, 8] p) "
       "{ o = Add (s, i)\n p = Identity (o) }> (start, x)",
       "Scan"},
  };
  for (const Carrier& carrier : carriers) {
    std::string body = carrier.body;
    if (body.find("(start, x)") != std::string::npos)
      body = "  start = Squeeze (before, second)\n" + body;
    EXPECT_THAT(carrierOf(body), testing::HasSubstr(carrier.why)) << body;
    EXPECT_NE(carrierOf(body), "unreadable") << body;
  }
}

TEST(RowCarriers, StatesCarryRowsToLaterSteps) {
  EXPECT_EQ(carrierOf("  r = ReduceSum <keepdims = 0> (h, second)\n"
                      "  u = Unsqueeze (r, minus)\n  next = Add (past, u)\n  y = Relu (x)",
                      "next"),
            "");
  // One token at a time: nothing is combined within a step.
  const char* updates[] = {
      "  c = Transpose <perm = [0, 2, 1]> (x)\n  next = Add (past, c)\n  y = Relu (x)",
      "  c = Transpose <perm = [0, 2, 1]> (x)\n  j = Concat <axis = 2> (past, c)\n"
      "  axis2 = Constant <value_ints = [2]> ()\n  next = Slice (j, second, end, axis2)\n"
      "  y = Relu (x)",
      "  r = ReduceSum <keepdims = 0> (x, second)\n  next = Mul (r, g8)\n  y = Relu (x)",
  };
  for (const char* update : updates)
    EXPECT_EQ(carrierOf(update, "next", "1"), "later steps read this state") << update;
}

TEST(RowCarriers, ExtentsOfOneTokenHaveNothingToCombine) {
  EXPECT_EQ(carrierOf("  r = ReduceMean <keepdims = 1> (x, second)\n  y = Add (r, h)", "", "1"),
            "");
  EXPECT_EQ(carrierOf("  y = CumSum (x, one)", "", "1"), "");
  EXPECT_NE(carrierOf("  y = CumSum (x, one)", "", "4"), "");
}

} // namespace
} // namespace kvopt
