// What treats tokens apart, and what mixes them.
#include "passes/analysis/tokens/token_functions.h"

#include "ir/shapes/shape_inference.h"
#include "tests/ir/text/text_fixture.h"

#include "support/format.h"

namespace kvopt {
using namespace analysis;
using namespace ir;

namespace {

/// What is found of a graph that computes `y` from `x` [B,S,8] and `ids` [B,S]: its positions and
/// tables, or why it mixes tokens. Constants are `w` [8,8], `table` [64,8], and some numbers.
std::string found(const std::string& body, const std::string& output = "float[] y") {
  std::string ones = "1";
  for (int i = 1; i < 64; ++i)
    ones += ", 1";
  auto model = readOrFail(formatted(
      R"(<ir_version: 10, opset_import: ["" : 20]>
g (float[B, S, 8] x, int64[B, S] ids) => ({})
<float[8, 8] w = {{{}}}, int64 zero = {{0}}, int64 one = {{1}}, int64 last = {{-1}}, int64[1] minus = {{-1}},
 int64[1] first = {{0}}, int64[1] second = {{1}}, int64[1] third = {{2}}, int64[1] end = {{9223372036854775807}},
 int64[2] flat = {{-1, 8}}, int64[1, 4] places = {{0, 1, 2, 3}}, float half = {{0.5}}>
{{
  extents = Shape (x)
  count = Gather (extents, one)
  count_list = Gather (extents, second)
  range = Range (zero, count, one)
{}
}}
)",
      output, ones, body));
  if (!model)
    return "unreadable";
  if (llvm::Error error = inferShapes(model->graph()))
    return takeDiagnostic(std::move(error)).str();
  auto result = findTokenFunctions(model->graph(), {}, "S");
  if (const auto* mixing = std::get_if<TokenMixing>(&result))
    return formatted("{}: {}", mixing->node ? mixing->node->op().str() : "", mixing->why);
  const auto& functions = std::get<TokenFunctions>(result);
  return formatted("{} positions, {} tables", functions.positions.size(), functions.tables.size());
}

TEST(TokenFunctions, RowsThatAreTreatedApart) {
  const char* bodies[] = {
      "  m = MatMul (x, w)\n  n = Add (m, x)\n  y = Relu (n)",
      "  y = LayerNormalization <axis = -1> (x, w)",
      "  y = Softmax <axis = 2> (x)",
      "  y = ReduceMean <keepdims = 1> (x, third)",
      "  t = Transpose <perm = [1, 0, 2]> (x)\n  y = Mul (t, half)",
      // Batch rows and tokens on one axis, and back.
      "  f = Reshape (x, flat)\n  m = Gemm (f, w)\n  r = Reshape (m, extents)\n  y = Add (r, x)",
      // The last token, however many there are.
      "  l = Gather <axis = 1> (x, last)\n  y = MatMul (l, w)",
      "  l = Slice (x, minus, end, second)\n  y = Sigmoid (l)",
  };
  for (const char* body : bodies)
    EXPECT_EQ(found(body), "0 positions, 0 tables") << body;
}

TEST(TokenFunctions, PlacesOfTokens) {
  EXPECT_EQ(found("  e = Gather (w, ids)\n  p = Gather (w, range)\n  y = Add (e, p)"),
            "1 positions, 0 tables");
  EXPECT_EQ(found("  p = Slice (w, first, count_list, first)\n  y = Add (x, p)"),
            "0 positions, 1 tables");
  EXPECT_EQ(
      found("  p = Slice (range, first, count_list, first)\n  e = Gather (w, p)\n  y = Add (x, e)"),
      "Slice: it selects tokens by position");
  EXPECT_EQ(
      found(
          "  p = Slice (places, first, count_list, second)\n  e = Gather (w, p)\n  y = Add (x, e)"),
      "0 positions, 1 tables");
  // As rotary angles are made.
  EXPECT_EQ(found("  f = Cast <to = 1> (range)\n  r = Unsqueeze (f, first)\n"
                  "  c = Unsqueeze (r, first)\n  t = Slice (w, first, second, second)\n"
                  "  a = MatMul (t, c)\n  b = Transpose <perm = [0, 2, 1]> (a)\n"
                  "  s = Sin (b)\n  y = Mul (x, s)"),
            "1 positions, 0 tables");
}

TEST(TokenFunctions, WhatMixesTokens) {
  const std::pair<const char*, const char*> bodies[] = {
      {"  y = ReduceMean <keepdims = 1> (x, second)", "ReduceMean: it combines the tokens"},
      {"  y = ReduceMean <keepdims = 1> (x)",
       "ReduceMean: it is not known to treat tokens separately"},
      {"  y = Softmax <axis = 1> (x)", "Softmax: it combines the tokens"},
      {"  y = LayerNormalization <axis = 1> (x, x)", "LayerNormalization: it combines the tokens"},
      {"  y = CumSum (x, one)", "CumSum: it combines the tokens"},
      {"  t = Transpose <perm = [0, 2, 1]> (x)\n  y = MatMul (x, t)",
       "MatMul: it multiplies tokens with each other"},
      {"  t = Transpose <perm = [0, 2, 1]> (x)\n  y = Conv (t, t)",
       "Conv: it is not known to treat tokens separately"},
      {"  f = Gather <axis = 1> (x, zero)\n  y = Add (f, half)",
       "Gather: it selects tokens by position"},
      {"  y = Slice (x, first, second, second)", "Slice: it selects tokens by position"},
      {"  l = Gather <axis = 1> (x, minus)\n  y = Add (x, l)",
       "Add: it combines the last token with others"},
      {"  y = Concat <axis = 1> (x, x)", "Concat: it joins tokens with something else"},
      // A factor that depends on the length, as the logarithm of it.
      {"  f = Cast <to = 1> (count)\n  l = Log (f)\n  y = Mul (x, l)",
       "Cast: it computes with the number of tokens"},
      {"  r = Range (one, count, one)\n  c = Cast <to = 1> (r)\n  y = ReduceSum (c)",
       "Range: it counts something other than the tokens"},
      // One scale for the numbers of all tokens.
      {"  q, s, z = DynamicQuantizeLinear (x)\n  y = DequantizeLinear (q, s, z)",
       "DynamicQuantizeLinear: it is not known to treat tokens separately"},
  };
  for (const auto& [body, why] : bodies)
    EXPECT_EQ(found(body), why) << body;
  // Tokens and batch rows in another order than they were in.
  EXPECT_EQ(found("  t = Transpose <perm = [1, 0, 2]> (x)\n  f = Reshape (t, flat)\n"
                  "  y = Reshape (f, extents)"),
            "Reshape: it is not known to keep the order of the tokens");
}

} // namespace
} // namespace kvopt
