// Decoders that cache what keys and values are computed of: the inputs of a layer, or compressed
// rows.
#include "support/format.h"
#include "tests/equivalence/caches/cache_plan.h"
#include "tests/equivalence/caches/decoder_text.h"
#include "tests/equivalence/rewritten_model.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt {
using namespace analysis;
using namespace driver;
using namespace ir;
using namespace pattern;
using namespace runtime;

namespace {

/// How `keys` and `values` [B,2 or 4,T,4] and the present `all` are made of `past` and `hidden`
/// [B,S,16].
struct RowsSpelling {
  const char* name;
  const char* past;
  const char* text;
  size_t replacing = 2; ///< caches that take the place of `past`
  size_t kept = 0;      ///< parts of `past` that stay
};

const RowsSpelling rowsSpellings[] = {
    {"Products", "[B, P, 16]", R"(
  all = Concat <axis = 1> (past, hidden)
  keys_t = MatMul (all, wk)
  keys_r = Reshape (keys_t, kv_shape)
  keys = Transpose <perm = [0, 2, 1, 3]> (keys_r)
  values_t = MatMul (all, wv)
  values_r = Reshape (values_t, kv_shape)
  values = Transpose <perm = [0, 2, 1, 3]> (values_r))"},
    {"ProductsOfNormalizedRowsWithABias", "[B, P, 16]", R"(
  all = Concat <axis = 1> (past, hidden)
  normal = LayerNormalization <axis = -1> (all, gains, shifts)
  keys_p = MatMul (normal, wk)
  keys_t = Add (keys_p, bias)
  keys_r = Reshape (keys_t, kv_shape)
  keys = Transpose <perm = [0, 2, 1, 3]> (keys_r)
  values_t = Einsum <equation = "btw,wd->btd"> (normal, wv)
  values_r = Reshape (values_t, kv_shape)
  values = Transpose <perm = [0, 2, 1, 3]> (values_r))"},
    {"RootMeanSquaresAndPlaces", "[B, P, 16]", R"(
  all = Concat <axis = 1> (past, hidden)
  squares = Mul (all, all)
  mean = ReduceMean <axes = [-1], keepdims = 1> (squares)
  some = Add (mean, tiny)
  root = Sqrt (some)
  normal = Div (all, root)
  keys_p = MatMul (normal, wk)
  extents = Shape (all)
  total = Gather <axis = 0> (extents, i1)
  index = Range (i0, total, i1)
  places = Gather <axis = 0> (place_table, index)
  keys_t = Add (keys_p, places)
  keys_r = Reshape (keys_t, kv_shape)
  keys = Transpose <perm = [0, 2, 1, 3]> (keys_r)
  gate_p = MatMul (all, wv)
  gate = Sigmoid (gate_p)
  values_t = Mul (gate_p, gate)
  values_r = Reshape (values_t, kv_shape)
  values = Transpose <perm = [0, 2, 1, 3]> (values_r))"},
    {"KeysAsTheyAreAndValuesComputed", "[B, P, 16]", R"(
  all = Concat <axis = 1> (past, hidden)
  four_heads = Constant <value_ints = [0, 0, 4, 4]> ()
  keys_r = Reshape (all, four_heads)
  keys = Transpose <perm = [0, 2, 1, 3]> (keys_r)
  doubled = Concat <axis = 1> (wv, wk)
  values_t = MatMul (all, doubled)
  values_r = Reshape (values_t, four_heads)
  values = Transpose <perm = [0, 2, 1, 3]> (values_r))"},
    {"ColumnsOfRowsJoinedTwice", "[B, P, 16]", R"(
  all = Concat <axis = 1> (past, hidden)
  eight = Constant <value_ints = [8]> ()
  sixteen = Constant <value_ints = [16]> ()
  more = Constant <value_ints = [24]> ()
  twice = Concat <axis = 2> (all, all)
  keys_t = Slice (twice, eight, sixteen, last)
  keys_r = Reshape (keys_t, kv_shape)
  keys = Transpose <perm = [0, 2, 1, 3]> (keys_r)
  values_t = Slice (twice, sixteen, more, last)
  values_r = Reshape (values_t, kv_shape)
  values = Transpose <perm = [0, 2, 1, 3]> (values_r))"},
    {"OneFunctionOfAnotherForm", "[B, P, 16]", R"(
  all = Concat <axis = 1> (past, hidden)
  keys_t = MatMul (all, wk)
  keys_r = Reshape (keys_t, kv_shape)
  keys = Transpose <perm = [0, 2, 1, 3]> (keys_r)
  values = Identity (keys))",
     1},
    {"RowsBeforeTheBatch", "[P, B, 16]", R"(
  new_rows = Transpose <perm = [1, 0, 2]> (hidden)
  all = Concat <axis = 0> (past, new_rows)
  keys_t = MatMul (all, wk)
  keys_r = Reshape (keys_t, kv_shape)
  keys = Transpose <perm = [1, 2, 0, 3]> (keys_r)
  values_t = MatMul (all, wv)
  values_r = Reshape (values_t, kv_shape)
  values = Transpose <perm = [1, 2, 0, 3]> (values_r))"},
    {"PartsOfAStack", "[B, 3, P, 16]", R"(
  first = Gather <axis = 1> (past, i0)
  second = Gather <axis = 1> (past, i1)
  third = Gather <axis = 1> (past, i2)
  other = Neg (hidden)
  all_first = Concat <axis = 1> (first, hidden)
  all_second = Concat <axis = 1> (second, other)
  all_third = Concat <axis = 1> (third, hidden)
  one = Unsqueeze (all_first, l1)
  two = Unsqueeze (all_second, l1)
  three = Unsqueeze (all_third, l1)
  all = Concat <axis = 1> (one, two, three)
  normal = LayerNormalization <axis = -1> (all_first, gains, shifts)
  keys_t = MatMul (normal, wk)
  keys_r = Reshape (keys_t, kv_shape)
  keys = Transpose <perm = [0, 2, 1, 3]> (keys_r)
  values_t = MatMul (all_second, wv)
  values_r = Reshape (values_t, kv_shape)
  values = Transpose <perm = [0, 2, 1, 3]> (values_r))",
     2, 1},
};

std::string numbers(int count) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += formatted("{}{}", i == 0 ? "" : ", ", (i * 11 % 23 - 11) / 32.0);
  return text;
}

std::string rowsText(const char* past, const std::string& caches) {
  return formatted(R"(<ir_version: 8, opset_import: ["" : 17, "ai.kvopt" : 1]>
decoder (int64[B, S] input_ids, float{past} past, float[1, 1, 16] table, float[1, 16, 16] wq, float[16, 8] given,
         float[1, 16, 10] wo)
  => (float[B, S, 10] logits, float[] all)
<int64 i0 = {{0}}, int64 i1 = {{1}}, int64 i2 = {{2}}, int64[1] l1 = {{1}}, float tiny = {{0.001}},
 float[16] gains = {{{gains}}}, float[16] shifts = {{{gains}}}, float[8] bias = {{{bias}}}, float[16, 8] wk = {{{wk}}},
 float[16, 8] wv = {{{wv}}}, float[64, 8] place_table = {{{places}}}>
{{
{hidden}
  qm = MatMul (hidden, wq)
  q_shape = Constant <value_ints = [0, 0, 4, 4]> ()
  kv_shape = Constant <value_ints = [0, 0, 2, 4]> ()
  qr = Reshape (qm, q_shape)
  q = Transpose <perm = [0, 2, 1, 3]> (qr)
{caches}
{results}}})",
                   named("past", past), named("gains", numbers(16)), named("bias", numbers(8)),
                   named("wk", numbers(128)), named("wv", numbers(128)),
                   named("places", numbers(512)), named("hidden", decoderHidden),
                   named("caches", caches), named("results", decoderResults));
}

class ReplacedCaches : public testing::Test {
protected:
  std::string written(const RowsSpelling& spelling) {
    return writtenModel(rowsText(spelling.past, spelling.text), toolkit, folder);
  }

  Toolkit toolkit;
  TemporaryFolder folder;
};

size_t replacingCaches(const Manifest& manifest) {
  const std::vector<ManifestReplacement> whole{{"past", "all"}};
  return static_cast<size_t>(llvm::count_if(manifest.caches, [&](const ManifestCache& cache) {
    return cache.holdsAttendedRows && cache.replaces == whole;
  }));
}

TEST_F(ReplacedCaches, HoldKeysAndValuesInEveryTarget) {
  for (const RowsSpelling& spelling : rowsSpellings) {
    const std::string path = written(spelling);
    const DrivenModel exported = asExported(path, toolkit);
    ASSERT_EQ(exported.manifest.caches.size(), 1U) << spelling.name;
    EXPECT_EQ(exported.manifest.caches.front().past, "past");
    EXPECT_EQ(replacingCaches(exported.manifest), 0U);
    for (const std::string target :
         {"kvopt", "onnx23", "onnx24", "blocks:4", "int8", "primitive"}) {
      const bool isOneCache = spelling.replacing == 1;
      if (isOneCache && target != "kvopt" && target != "primitive")
        continue; // keys and values are one cache
      SCOPED_TRACE(formatted("{} --to {}", spelling.name, target));
      const DrivenModel moved = rewritten(path, toolkit, "capacity=32", target);
      EXPECT_EQ(replacingCaches(moved.manifest), spelling.replacing);
      EXPECT_EQ(llvm::count_if(moved.manifest.caches,
                               [](const ManifestCache& cache) { return cache.part.has_value(); }),
                spelling.kept);
      EXPECT_EQ(moved.model->graph().findValue("past"), nullptr);
      for (int64_t batch : {1, 2}) {
        EquivalencePlan plan = cachePlan(oneUlpOfLogits);
        plan.batch = batch;
        if (target == "int8")
          plan.tolerance = {0.1, 0};
        const VerificationReport report = valueOrThrow(verifyModels(
            *exported.model, exported.manifest, *moved.model, moved.manifest, plan, 1, toolkit));
        EXPECT_TRUE(report.equal()) << verificationSummary(report);
        EXPECT_TRUE(llvm::any_of(report.notCovered, [&](const std::string& gap) {
          return gap.find(formatted("rows of {} cache", spelling.replacing)) != std::string::npos;
        })) << verificationSummary(report);
      }
    }
  }
}

TEST_F(ReplacedCaches, StayWhatTheyAreInAnotherTarget) {
  const std::string path = written(rowsSpellings[1]);
  const DrivenModel first = rewritten(path, toolkit, "capacity=32", "kvopt");
  const std::string file = folder.path("first.onnx");
  successOrThrow(exportModel(*first.model, file));
  const DrivenModel second = rewritten(file, toolkit, "capacity=32", "onnx24");
  EXPECT_EQ(replacingCaches(second.manifest), 2U);
  const VerificationReport report =
      valueOrThrow(verifyModels(*first.model, first.manifest, *second.model, second.manifest,
                                cachePlan(oneUlpOfLogits), 1, toolkit));
  EXPECT_TRUE(report.equal()) << verificationSummary(report);
  EXPECT_EQ(report.comparison.steps.front().caches.size(), 2U);
}

TEST_F(ReplacedCaches, AreReplacedOnceMoreByCompressedRows) {
  const std::string path = writtenModel(rowsText("[B, P, 16]", R"(
  all = Concat <axis = 1> (past, hidden)
  normal = LayerNormalization <axis = -1> (all, gains, shifts)
  four_heads = Constant <value_ints = [0, 0, 4, 4]> ()
  key_weights = Concat <axis = 1> (wk, wv)
  value_weights = Concat <axis = 1> (wv, wk)
  keys_t = MatMul (normal, key_weights)
  keys_r = Reshape (keys_t, four_heads)
  keys = Transpose <perm = [0, 2, 1, 3]> (keys_r)
  values_t = MatMul (normal, value_weights)
  values_r = Reshape (values_t, four_heads)
  values = Transpose <perm = [0, 2, 1, 3]> (values_r))"),
                                        toolkit, folder);
  const DrivenModel exported = asExported(path, toolkit);
  const DrivenModel latent = rewritten(path, toolkit, "capacity=32", "latent");
  ASSERT_EQ(latent.manifest.caches.size(), 1U);
  const ManifestCache& cache = latent.manifest.caches.front();
  EXPECT_EQ(cache.replaces, (std::vector<ManifestReplacement>{{"past", "all"}}));
  EXPECT_EQ(cache.shape.back(), ManifestExtent(int64_t{16}));
  const VerificationReport report =
      valueOrThrow(verifyModels(*exported.model, exported.manifest, *latent.model, latent.manifest,
                                cachePlan({0x1p-13, 0}), 1, toolkit));
  EXPECT_TRUE(report.equal()) << verificationSummary(report);
}

TEST_F(ReplacedCaches, TakeRowsOfThisModelOnly) {
  const std::string path = written(rowsSpellings[0]);
  const DrivenModel exported = asExported(path, toolkit);
  const DrivenModel moved = rewritten(path, toolkit, "capacity=32", "kvopt");
  auto ours = openSession(exported, toolkit.runner->kernels(), {});
  auto theirs = openSession(moved, toolkit.runner->kernels(), {});
  stepAlike(*ours, 5);
  llvm::Error refused = theirs->seed({{"past", valueOrThrow(ours->exportedCacheRows(0)).view}}, 5);
  ASSERT_TRUE(static_cast<bool>(refused));
  EXPECT_NE(takeDiagnostic(std::move(refused)).message.find("no cache 'past'"), std::string::npos);
  EXPECT_EQ(theirs->length(), 0);
}

struct OtherReadOfRows {
  const char* name;
  const char* past;
  const char* text;
};

const OtherReadOfRows otherReadsOfRows[] = {
    {"SummedOverTheRowsBefore", "[B, P, 16]", R"(
  all = Concat <axis = 1> (past, hidden)
  sums = CumSum (all, i1)
  keys_t = MatMul (sums, wk)
  keys_r = Reshape (keys_t, kv_shape)
  keys = Transpose <perm = [0, 2, 1, 3]> (keys_r)
  values_t = MatMul (all, wv)
  values_r = Reshape (values_t, kv_shape)
  values = Transpose <perm = [0, 2, 1, 3]> (values_r))"},
    {"DividedByTheirNumber", "[B, P, 16]", R"(
  all = Concat <axis = 1> (past, hidden)
  extents = Shape (all)
  total = Gather <axis = 0> (extents, i1)
  count = Cast <to = 1> (total)
  scaled = Div (all, count)
  keys_t = MatMul (scaled, wk)
  keys_r = Reshape (keys_t, kv_shape)
  keys = Transpose <perm = [0, 2, 1, 3]> (keys_r)
  values_t = MatMul (all, wv)
  values_r = Reshape (values_t, kv_shape)
  values = Transpose <perm = [0, 2, 1, 3]> (values_r))"},
    {"MultipliedByAnInput", "[B, P, 16]", R"(
  all = Concat <axis = 1> (past, hidden)
  keys_t = MatMul (all, given)
  keys_r = Reshape (keys_t, kv_shape)
  keys = Transpose <perm = [0, 2, 1, 3]> (keys_r)
  values_t = MatMul (all, wv)
  values_r = Reshape (values_t, kv_shape)
  values = Transpose <perm = [0, 2, 1, 3]> (values_r))"},
    {"WithTheirMeanBesideThem", "[B, P, 16]", R"(
  all = Concat <axis = 1> (past, hidden)
  keys_t = MatMul (all, wk)
  keys_r = Reshape (keys_t, kv_shape)
  keys = Transpose <perm = [0, 2, 1, 3]> (keys_r)
  mean = ReduceMean <axes = [1], keepdims = 1> (all)
  centered = Sub (all, mean)
  values_t = MatMul (centered, wv)
  values_r = Reshape (values_t, kv_shape)
  values = Transpose <perm = [0, 2, 1, 3]> (values_r))"},
    {"HeadsMixedWithRows", "[B, P, 16]", R"(
  all = Concat <axis = 1> (past, hidden)
  keys_t = MatMul (all, wk)
  flat = Constant <value_ints = [0, 2, -1, 4]> ()
  keys = Reshape (keys_t, flat)
  values_t = MatMul (all, wv)
  values_r = Reshape (values_t, kv_shape)
  values = Transpose <perm = [0, 2, 1, 3]> (values_r))"},
    {"SumsOfParts", "[B, 2, P, 16]", R"(
  first = Gather <axis = 1> (past, i0)
  second = Gather <axis = 1> (past, i1)
  all_first = Concat <axis = 1> (first, hidden)
  all_second = Concat <axis = 1> (second, hidden)
  one = Unsqueeze (all_first, l1)
  two = Unsqueeze (all_second, l1)
  all = Concat <axis = 1> (one, two)
  both = Add (all_first, all_second)
  keys_t = MatMul (both, wk)
  keys_r = Reshape (keys_t, kv_shape)
  keys = Transpose <perm = [0, 2, 1, 3]> (keys_r)
  values_t = MatMul (all_second, wv)
  values_r = Reshape (values_t, kv_shape)
  values = Transpose <perm = [0, 2, 1, 3]> (values_r))"},
};

TEST_F(ReplacedCaches, AreNoFunctionsOfAnythingElse) {
  for (const OtherReadOfRows& other : otherReadsOfRows) {
    SCOPED_TRACE(other.name);
    const std::string path = writtenModel(rowsText(other.past, other.text), toolkit, folder);
    RecoveredModel recovered = valueOrThrow(recoverModel(path, toolkit));
    ASSERT_EQ(recovered.context->sites.size(), 1U);
    EXPECT_TRUE(recovered.context->history.attendedPasts().empty());
    EXPECT_FALSE(recovered.context->history.hasReplacements());
    EXPECT_NE(recovered.model->graph().findValue("past"), nullptr);
    const targets::Target* target = toolkit.targets.find("kvopt");
    EXPECT_TRUE(targets::refusals(*target, recovered.context->sites, *recovered.model)[0]);
  }
}

} // namespace
} // namespace kvopt
