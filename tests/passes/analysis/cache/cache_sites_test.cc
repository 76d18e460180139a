// Caches found by data flow: layouts, ways of updating, and what is refused.
#include "ir/shapes/shape_inference.h"
#include "ir/text/reader.h"
#include "passes/analysis/cache/site.h"
#include "passes/analysis/cache/site_words.h"
#include "support/format.h"

#include <gtest/gtest.h>

namespace kvopt {
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

const OpRegistry& operators() {
  static const std::unique_ptr<const OpRegistry> registry = [] {
    auto filled = std::make_unique<OpRegistry>();
    registerAll(*filled);
    return filled;
  }();
  return *registry;
}

/// One line a site: kind, policy, layouts with their axes, or the reason with what was found.
std::string describe(const AttentionSite& site) {
  std::string text = siteKindName(site).str();
  if (site.failure)
    return formatted("{} MISSED {} at {}: {}", text, reasonName(site.failure->code),
                     site.failure->node, site.failure->found);
  text += " " + sitePolicyName(site).str();
  for (const auto* update : {&site.key, &site.value})
    if (*update)
      text += formatted(" {}@{}{}", (*update)->layout.text(), (*update)->axis,
                        (*update)->present ? "" : " only read");
  if (site.owner)
    text += formatted(" of L{}", *site.owner);
  for (unsigned reader : site.readers)
    text += formatted(" read by L{}", reader);
  return text;
}

class CacheSitesTest : public testing::Test {
protected:
  /// The sites of `signature { body }`, one line each.
  std::string sites(const std::string& signature, const std::string& body) {
    auto read =
        readText("<ir_version: 8, opset_import: [\"\" : 17, \"ai.kvopt\" : 1]>\nattention " +
                     signature + "\n{\n" + body + "\n}\n",
                 operators());
    if (!read)
      return llvm::toString(read.takeError());
    model = std::move(*read);
    if (llvm::Error error = inferShapes(model->graph()))
      return llvm::toString(std::move(error));
    found = findSites(model->graph());
    std::string text;
    for (const AttentionSite& site : found)
      text += (text.empty() ? "" : "\n") + describe(site);
    return text;
  }

  /// The same for one attention over caches of the given types.
  std::string cached(const std::string& key, const std::string& value, const std::string& freshKey,
                     const std::string& freshValue, const std::string& body,
                     const std::string& presentKey = "pk", const std::string& presentValue = "pv") {
    return sites("(float[B, 8, S, 16] q, float" + freshKey + " k, float" + freshValue +
                     " v, float" + key + " past_k, float" + value +
                     " past_v) => (float[B, 8, S, "
                     "16] o, float[] " +
                     presentKey + ", float[] " + presentValue + ")",
                 body);
  }

  std::unique_ptr<Model> model;
  SiteList found;
};

TEST_F(CacheSitesTest, RowsInHeads) {
  EXPECT_EQ(cached("[B, 8, P, 16]", "[B, 8, P, 16]", "[B, 8, S, 16]", "[B, 8, S, 16]", R"(
    pk = Concat <axis = -2> (past_k, k)
    pv = Concat <axis = 2> (past_v, v)
    o = ai.kvopt.Sdpa <scale = 0.25> (q, pk, pv))"),
            "self growing BHSD@2 BHSD@2");
}

TEST_F(CacheSitesTest, HeadsInRows) {
  EXPECT_EQ(cached("[B, P, 8, 16]", "[B, P, 8, 16]", "[B, S, 8, 16]", "[B, S, 8, 16]", R"(
    pk = Concat <axis = 1> (past_k, k)
    pv = Concat <axis = 1> (past_v, v)
    kt = Transpose <perm = [0, 2, 1, 3]> (pk)
    vt = Transpose <perm = [0, 2, 1, 3]> (pv)
    o = ai.kvopt.Sdpa <scale = 0.25> (q, kt, vt))"),
            "self growing BSHD@1 BSHD@1");
}

TEST_F(CacheSitesTest, SequenceFirst) {
  EXPECT_EQ(cached("[P, B, 8, 16]", "[P, B, 8, 16]", "[S, B, 8, 16]", "[S, B, 8, 16]", R"(
    pk = Concat <axis = 0> (past_k, k)
    pv = Concat <axis = 0> (past_v, v)
    kt = Transpose <perm = [1, 2, 0, 3]> (pk)
    vt = Transpose <perm = [1, 2, 0, 3]> (pv)
    o = ai.kvopt.Sdpa <scale = 0.25> (q, kt, vt))"),
            "self growing SBHD@0 SBHD@0");
}

TEST_F(CacheSitesTest, TransposedKeys) {
  EXPECT_EQ(cached("[B, 8, 16, P]", "[B, 8, P, 16]", "[B, 8, 16, S]", "[B, 8, S, 16]", R"(
    pk = Concat <axis = 3> (past_k, k)
    pv = Concat <axis = 2> (past_v, v)
    kt = Transpose <perm = [0, 1, 3, 2]> (pk)
    o = ai.kvopt.Sdpa <scale = 0.25> (q, kt, pv))"),
            "self growing BHDS@3 BHSD@2");
}

TEST_F(CacheSitesTest, HeadsFoldedIntoTheBatch) {
  EXPECT_EQ(
      cached("[\"8*B\", 16, P]", "[\"8*B\", P, 16]", "[\"8*B\", 16, S]", "[\"8*B\", S, 16]", R"(
    pk = Concat <axis = 2> (past_k, k)
    pv = Concat <axis = 1> (past_v, v)
    split = Constant <value_ints = [-1, 8, 16, 0]> ()
    shape_q = Shape <start = 0, end = 1> (q)
    shape_k = Shape <start = 2, end = 3> (pk)
    eight = Constant <value_ints = [8]> ()
    width = Constant <value_ints = [16]> ()
    target_k = Concat <axis = 0> (shape_q, eight, width, shape_k)
    target_v = Concat <axis = 0> (shape_q, eight, shape_k, width)
    kr = Reshape (pk, target_k)
    kt = Transpose <perm = [0, 1, 3, 2]> (kr)
    vr = Reshape (pv, target_v)
    o = ai.kvopt.Sdpa <scale = 0.25> (q, kt, vr))"),
      "self growing (BH)DS@2 (BH)SD@1");
  EXPECT_EQ(found[0].shapeReader, nullptr); // its readers only direct the Reshapes
}

TEST_F(CacheSitesTest, OneHeadWithoutAnAxis) {
  EXPECT_EQ(cached("[B, P, 16]", "[B, P, 16]", "[B, S, 16]", "[B, S, 16]", R"(
    pk = Concat <axis = 1> (past_k, k)
    pv = Concat <axis = -2> (past_v, v)
    one = Constant <value_ints = [1]> ()
    ku = Unsqueeze (pk, one)
    vu = Unsqueeze (pv, one)
    o = ai.kvopt.Sdpa <scale = 0.25> (q, ku, vu))"),
            "self growing BSD@1 BSD@1");
}

TEST_F(CacheSitesTest, BroadcastThatNobodyStripped) {
  const char* body = R"(
    pk = Concat <axis = 2> (past_k, k)
    pv = Concat <axis = 2> (past_v, v)
    axis = Constant <value_ints = [{}]> ()
    tiles = Constant <value_ints = [{}]> ()
    shape = Constant <value_ints = [0, 8, -1, 16]> ()
    ku = Unsqueeze (pk, axis)
    ke = Tile (ku, tiles)
    kr = Reshape (ke, shape)
    vu = Unsqueeze (pv, axis)
    ve = Tile (vu, tiles)
    vr = Reshape (ve, shape)
    o = ai.kvopt.Sdpa <scale = 0.25> (q, kr, vr))";
  auto run = [&](int axis, const char* tiles) {
    return cached("[B, 2, P, 16]", "[B, 2, P, 16]", "[B, 2, S, 16]", "[B, 2, S, 16]",
                  formattedAs(body, axis, tiles));
  };
  EXPECT_EQ(run(2, "1, 1, 4, 1, 1"), "self growing BHSD@2 BHSD@2");
  EXPECT_EQ(found[0].key->repeats, Dim::fixed(4));
  EXPECT_EQ(found[0].keyHeads, Dim::fixed(2));
  // Heads 0 1 0 1 …: not those of groups.
  EXPECT_EQ(run(1, "1, 4, 1, 1, 1").substr(0, 27), "self MISSED axis-unproven a");
}

TEST_F(CacheSitesTest, LatentCache) {
  EXPECT_EQ(sites("(float[B, 8, S, 40] q, float[B, S, 40] row, float[B, P, 40] past) => "
                  "(float[B, 8, S, 32] o, float[B, T, 40] present)",
                  R"(
    present = Concat <axis = 1> (past, row)
    one = Constant <value_ints = [1]> ()
    three = Constant <value_ints = [3]> ()
    zero = Constant <value_ints = [0]> ()
    width = Constant <value_ints = [32]> ()
    k = Unsqueeze (present, one)
    v = Slice (k, zero, width, three)
    o = ai.kvopt.Sdpa <scale = 0.25> (q, k, v))"),
            "self latent BSD@1 BSD@1");
  EXPECT_EQ(found[0].value->columns, Dim::fixed(32));
  EXPECT_EQ(found[0].value->firstColumn, 0);
}

TEST_F(CacheSitesTest, PresentAndPastBehindTheSameMovement) {
  EXPECT_EQ(cached("[B, P, 8, 16]", "[B, P, 8, 16]", "[B, 8, S, 16]", "[B, 8, S, 16]", R"(
    pkt = Transpose <perm = [0, 2, 1, 3]> (past_k)
    pvt = Transpose <perm = [0, 2, 1, 3]> (past_v)
    kc = Concat <axis = 2> (pkt, k)
    vc = Concat <axis = 2> (pvt, v)
    pk = Transpose <perm = [0, 2, 1, 3]> (kc)
    pv = Transpose <perm = [0, 2, 1, 3]> (vc)
    o = ai.kvopt.Sdpa <scale = 0.25> (q, kc, vc))"),
            "self growing BSHD@1 BSHD@1");
  EXPECT_EQ(found[0].key->freshLayout.text(), "BHSD");
  // A present in another layout than the past cannot be the same buffer.
  EXPECT_EQ(cached("[B, 8, P, 16]", "[B, 8, P, 16]", "[B, 8, S, 16]", "[B, 8, S, 16]", R"(
    kc = Concat <axis = 2> (past_k, k)
    pk = Transpose <perm = [0, 2, 1, 3]> (kc)
    pv = Concat <axis = 2> (past_v, v)
    o = ai.kvopt.Sdpa <scale = 0.25> (q, kc, pv))"),
            "self MISSED layout-unsupported at pk: BSHD");
}

TEST_F(CacheSitesTest, StaticCapacity) {
  const char* body = R"(
    pk = ScatterElements <axis = 2> (past_k, at, k)
    pv = ScatterElements <axis = 2> (past_v, at, v)
    o = ai.kvopt.Sdpa <scale = 0.25> (q, pk, pv, mask))";
  EXPECT_EQ(sites("(float[B, 8, S, 16] q, float[B, 8, S, 16] k, float[B, 8, S, 16] v, int64[B, 8, "
                  "S, 16] at, float[B, 1, S, C] mask, float[B, 8, C, 16] past_k, float[B, 8, C, "
                  "16] past_v) => (float[B, 8, S, 16] o, float[B, 8, C, 16] pk, float[B, 8, C, "
                  "16] pv)",
                  body),
            "self static BHSD@2 BHSD@2");
}

TEST_F(CacheSitesTest, WindowOfTheLastRows) {
  EXPECT_EQ(cached("[B, 8, 32, 16]", "[B, 8, 32, 16]", "[B, 8, S, 16]", "[B, 8, S, 16]", R"(
    kc = Concat <axis = 2> (past_k, k)
    vc = Concat <axis = 2> (past_v, v)
    from = Constant <value_ints = [-32]> ()
    to = Constant <value_ints = [9223372036854775807]> ()
    axis = Constant <value_ints = [2]> ()
    pk = Slice (kc, from, to, axis)
    pv = Slice (vc, from, to, axis)
    o = ai.kvopt.Sdpa <scale = 0.25> (q, kc, vc))"),
            "self ring BHSD@2 BHSD@2");
}

TEST_F(CacheSitesTest, KeysAndValuesInOneTensor) {
  EXPECT_EQ(sites("(float[B, 8, S, 16] q, float[2, B, 8, S, 16] kv, float[2, B, 8, P, 16] past) => "
                  "(float[B, 8, S, 16] o, float[2, B, 8, T, 16] present)",
                  R"(
    present = Concat <axis = 3> (past, kv)
    zero = Constant <value_int = 0> ()
    one = Constant <value_int = 1> ()
    k = Gather <axis = 0> (present, zero)
    v = Gather <axis = 0> (present, one)
    o = ai.kvopt.Sdpa <scale = 0.25> (q, k, v))"),
            "self growing *BHSD@3 *BHSD@3");
}

TEST_F(CacheSitesTest, CrossAttention) {
  EXPECT_EQ(sites("(float[B, 8, S, 16] q, float[B, 8, E, 16] ek, float[B, 8, E, 16] ev) => "
                  "(float[B, 8, S, 16] o)",
                  "o = ai.kvopt.Sdpa <scale = 0.25> (q, ek, ev)"),
            "cross cross BHSD@2 only read BHSD@2 only read");
  EXPECT_EQ(sites("(float[B, 8, S, 16] q, float[B, E, 8, 16] states, float[16, 16] wk) => "
                  "(float[B, 8, S, 16] o)",
                  R"(
    w = Constant <value = float[1, 1] {1}> ()
    t = Transpose <perm = [0, 2, 1, 3]> (states)
    k = MatMul (t, wk)
    o = ai.kvopt.Sdpa <scale = 0.25> (q, k, k))"),
            "cross none");
}

TEST_F(CacheSitesTest, ACacheThatAMaskSelectsNewRowsIntoIsNotOnlyRead) {
  const char* signature =
      "(float[B, 8, 1, 16] q, float[1, 16] hidden, bool[C, 1] onehot, "
      "float[B, 8, C, 16] past) => (float[B, 8, 1, 16] o, float[B, 8, C, 16] present)";
  EXPECT_EQ(sites(signature, R"(
    k = Tanh (hidden)
    present = Where (onehot, k, past)
    o = ai.kvopt.Sdpa <scale = 0.25> (q, present, present))"),
            "self MISSED not-a-cache-concat at present: Where");
  // New rows that come from another input, which could be a cache as well.
  EXPECT_EQ(sites("(float[B, 8, 1, 16] q, float[B, 8, 1, 16] hidden, bool[C, 1] onehot, "
                  "float[B, 8, C, 16] past) => (float[B, 8, 1, 16] o, float[B, 8, C, 16] present)",
                  R"(
    present = Where (onehot, hidden, past)
    o = ai.kvopt.Sdpa <scale = 0.25> (q, present, present))"),
            "self MISSED not-a-cache-concat at present: Where");
  // Sums of a kept and a new part, which no operator by itself shows to be an update.
  EXPECT_EQ(sites(signature, R"(
    k = Tanh (hidden)
    one = Constant <value = float[1, 1] {1}> ()
    hot = Cast <to = 1> (onehot)
    cold = Sub (one, hot)
    kept = Mul (past, cold)
    new = Mul (k, hot)
    present = Add (kept, new)
    o = ai.kvopt.Sdpa <scale = 0.25> (q, present, present))"),
            "self MISSED not-a-cache-concat at present: Add");
}

TEST_F(CacheSitesTest, ACacheThatLeavesTheModelAsItCameIsOnlyRead) {
  EXPECT_EQ(sites("(float[B, 8, S, 16] q, float[B, 8, E, 16] ek) => "
                  "(float[B, 8, S, 16] o, float[B, 8, E, 16] present)",
                  R"(
    present = Identity (ek)
    o = ai.kvopt.Sdpa <scale = 0.25> (q, ek, ek))"),
            "cross cross BHSD@2 only read BHSD@2 only read");
}

TEST_F(CacheSitesTest, HiddenStatesAreNoCache) {
  EXPECT_EQ(sites("(float[B, 8, S, 16] hidden, float[16, 16] w) => (float[B, 8, S, 16] o)", R"(
    x = Relu (hidden)
    q = MatMul (x, w)
    k = MatMul (x, w)
    o = ai.kvopt.Sdpa <scale = 0.25> (q, k, k))"),
            "none none");
}

TEST_F(CacheSitesTest, UnequalPastLengths) {
  EXPECT_EQ(cached("[B, 8, P, 16]", "[B, 8, R, 16]", "[B, 8, S, 16]", "[B, 8, S, 16]", R"(
    pk = Concat <axis = 2> (past_k, k)
    pv = Concat <axis = 2> (past_v, v)
    zero = Constant <value_ints = [0]> ()
    o = ai.kvopt.Sdpa <scale = 0.25> (q, pk, pv))")
                .substr(0, 41),
            "self MISSED shape-mismatch at past_v: R");
}

TEST_F(CacheSitesTest, AnotherLayersPastOfAnotherLength) {
  EXPECT_EQ(sites("(float[B, 8, S, 16] q, float[B, 8, S, 16] k, float[B, 8, P, 16] a, float[B, 8, "
                  "P, 16] b, float[B, 8, R, 16] c, float[B, 8, R, 16] d) => (float[B, 8, S, 16] o, "
                  "float[B, 8, T, 16] pa, float[B, 8, T, 16] pb, float[B, 8, U, 16] pc, float[B, "
                  "8, U, 16] pd)",
                  R"(
    pa = Concat <axis = 2> (a, k)
    pb = Concat <axis = 2> (b, k)
    x = ai.kvopt.Sdpa <scale = 0.25> (q, pa, pb)
    pc = Concat <axis = 2> (c, k)
    pd = Concat <axis = 2> (d, k)
    o = ai.kvopt.Sdpa <scale = 0.25> (x, pc, pd))"),
            "self growing BHSD@2 BHSD@2\nself MISSED shape-mismatch at c: R");
}

TEST_F(CacheSitesTest, MoreRowsThanQueries) {
  EXPECT_EQ(cached("[B, 8, P, 16]", "[B, 8, P, 16]", "[B, 8, N, 16]", "[B, 8, N, 16]", R"(
    pk = Concat <axis = 2> (past_k, k)
    pv = Concat <axis = 2> (past_v, v)
    o = ai.kvopt.Sdpa <scale = 0.25> (q, pk, pv))"),
            "self MISSED shape-mismatch at k: N rows");
}

TEST_F(CacheSitesTest, KeysComputedFromTheCache) {
  EXPECT_EQ(cached("[B, 8, P, 16]", "[B, 8, P, 16]", "[B, 8, S, 16]", "[B, 8, S, 16]", R"(
    pk = Concat <axis = 2> (past_k, k)
    pv = Concat <axis = 2> (past_v, v)
    rotated = Neg (pk)
    o = ai.kvopt.Sdpa <scale = 0.25> (q, rotated, pv))"),
            "self MISSED cache-transformed at rotated: Neg of what 'pk' joined");
}

TEST_F(CacheSitesTest, AttentionThatReadsAWindowOfAGrowingCache) {
  EXPECT_EQ(cached("[B, 8, P, 16]", "[B, 8, P, 16]", "[B, 8, S, 16]", "[B, 8, S, 16]", R"(
    pk = Concat <axis = 2> (past_k, k)
    pv = Concat <axis = 2> (past_v, v)
    from = Constant <value_ints = [-8]> ()
    to = Constant <value_ints = [9223372036854775807]> ()
    axis = Constant <value_ints = [2]> ()
    kw = Slice (pk, from, to, axis)
    vw = Slice (pv, from, to, axis)
    o = ai.kvopt.Sdpa <scale = 0.25> (q, kw, vw))"),
            "self MISSED window-not-representable at pk: a slice of them");
}

TEST_F(CacheSitesTest, TwoAttentionsOverOneCache) {
  EXPECT_EQ(cached("[B, 8, P, 16]", "[B, 8, P, 16]", "[B, 8, S, 16]", "[B, 8, S, 16]", R"(
    pk = Concat <axis = 2> (past_k, k)
    pv = Concat <axis = 2> (past_v, v)
    x = ai.kvopt.Sdpa <scale = 0.25> (q, pk, pv)
    o = ai.kvopt.Sdpa <scale = 0.25> (x, pk, pv))"),
            "self growing BHSD@2 BHSD@2 read by L1\nself growing BHSD@2 BHSD@2 of L0");
}

TEST_F(CacheSitesTest, AttentionThatTakesTheKeysOfOneCacheForValues) {
  EXPECT_EQ(cached("[B, 8, P, 16]", "[B, 8, P, 16]", "[B, 8, S, 16]", "[B, 8, S, 16]", R"(
    pk = Concat <axis = 2> (past_k, k)
    pv = Concat <axis = 2> (past_v, v)
    x = ai.kvopt.Sdpa <scale = 0.25> (q, pk, pv)
    o = ai.kvopt.Sdpa <scale = 0.25> (x, pv, pk))"),
            "self MISSED shared-reader at past_v: L1 reads it differently\n"
            "self MISSED shared-reader at past_v: L0 reads it differently");
}

TEST_F(CacheSitesTest, BeamsThatAreIndexed) {
  EXPECT_EQ(sites("(float[B, 8, S, 16] q, float[B, 8, S, 16] x, float[B, 8, P, 16] past, "
                  "int64[B, 1] beams) => (float[B, 8, S, 16] o, float[B, 8, T, 16] present)",
                  R"(
    k = Relu (x)
    picked = GatherND (past, beams)
    present = Concat <axis = 2> (picked, k)
    o = ai.kvopt.Sdpa <scale = 0.25> (q, present, present))"),
            "self MISSED cache-reordered at picked: rows of 'past' picked by 'beams'");
}

/// A walk over the graph for each operand would take minutes.
TEST_F(CacheSitesTest, ThousandsOfLayers) {
  std::string signature = "(float[B, 8, S, 16] q";
  std::string results = ") => (float[B, 8, S, 16] o";
  std::string body = "  x0 = Identity (q)\n";
  constexpr int layers = 2000;
  for (int i = 0; i < layers; ++i) {
    signature += formatted(", float[B, 8, P, 16] k{0}, float[B, 8, P, 16] v{0}", i);
    results += formatted(", float[B, 8, T, 16] pk{0}, float[B, 8, T, 16] pv{0}", i);
    body += formatted("  n{0} = Relu (x{0})\n  pk{0} = Concat <axis = 2> (k{0}, n{0})\n"
                      "  pv{0} = Concat <axis = 2> (v{0}, n{0})\n"
                      "  x{1} = ai.kvopt.Sdpa <scale = 0.25> (n{0}, pk{0}, pv{0})\n",
                      i, i + 1);
  }
  body += formatted("  o = Identity (x{})\n", layers);
  sites(signature + results + ")", body);
  ASSERT_EQ(found.size(), static_cast<size_t>(layers));
  for (const AttentionSite& site : found)
    ASSERT_TRUE(site.isMatched() && site.grows());
}

} // namespace
} // namespace kvopt
