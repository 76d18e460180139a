// Caches that hold several in one, cut into one for each.
#include "support/format.h"
#include "tests/equivalence/caches/cache_plan.h"
#include "tests/equivalence/caches/decoder_text.h"
#include "tests/equivalence/rewritten_model.h"

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace pattern;
using namespace runtime;

namespace {

/// How `keys`, `values` [B,2,P + S,4] and `present` are made of `past` and the new rows `k`, `v`
/// [B,2,S,4].
struct SplitSpelling {
  const char* name;
  const char* past; ///< its type
  const char* text;
  std::vector<const char*> targets = {"kvopt", "onnx24", "blocks:4", "primitive"};
};

const SplitSpelling splitSpellings[] = {
    {"pair", "[2, B, 2, P, 4]", R"(
  past_k = Gather <axis = 0> (past, first)
  past_v = Gather <axis = 0> (past, second)
  keys = Concat <axis = 2> (past_k, k)
  values = Concat <axis = 2> (past_v, v)
  k5 = Unsqueeze (keys, zero)
  v5 = Unsqueeze (values, zero)
  present = Concat <axis = 0> (k5, v5))"},
    {"pair_cut_from_the_end", "[2, B, P, 2, 4]", R"(
  past_v1, past_k1 = Split <axis = 0> (past, ones)
  past_k = Squeeze (past_k1, zero)
  past_v = Squeeze (past_v1, zero)
  keys4 = Concat <axis = 1> (past_k, x_k)
  values4 = Concat <axis = 1> (past_v, x_v)
  keys = Transpose <perm = [0, 2, 1, 3]> (keys4)
  values = Transpose <perm = [0, 2, 1, 3]> (values4)
  k5 = Unsqueeze (keys4, zero)
  v5 = Unsqueeze (values4, zero)
  present = Concat <axis = 0> (v5, k5))"},
    {"pair_cut_behind_the_update", "[2, B, 2, P, 4]", R"(
  k5 = Unsqueeze (k, zero)
  v5 = Unsqueeze (v, zero)
  kv = Concat <axis = 0> (k5, v5)
  present = Concat <axis = 3> (past, kv)
  keys = Gather <axis = 0> (present, first)
  values = Gather <axis = 0> (present, last_index))"},
    {"behind_one_another_in_heads", "[B, 4, P, 4]", R"(
  kv = Concat <axis = 1> (k, v)
  present = Concat <axis = 2> (past, kv)
  keys, values = Split <axis = 1> (present, twos))"},
    {"behind_one_another_in_columns", "[B, 2, P, 8]", R"(
  kv = Concat <axis = -1> (k, v)
  present = Concat <axis = -2> (past, kv)
  keys = Slice (present, zero, four, three)
  values = Slice (present, four, eight, three))"},
    {"columns_of_one_projection",
     "[B, P, 16]",
     R"(
  flat_shape = Constant <value_ints = [0, 0, 8]> ()
  flat_k = Reshape (x_k, flat_shape)
  flat_v = Reshape (x_v, flat_shape)
  kv = Concat <axis = 2> (flat_k, flat_v)
  present = Concat <axis = 1> (past, kv)
  keys3 = Slice (present, zero, eight, last)
  values3 = Slice (present, eight, sixteen, last)
  split = Constant <value_ints = [0, 0, 2, 4]> ()
  keys4 = Reshape (keys3, split)
  values4 = Reshape (values3, split)
  keys = Transpose <perm = [0, 2, 1, 3]> (keys4)
  values = Transpose <perm = [0, 2, 1, 3]> (values4))",
     {"kvopt", "primitive"}},
    {"rows_of_pairs", "[B, P, 2, 2, 4]", R"(
  k5 = Unsqueeze (x_k, last)
  v5 = Unsqueeze (x_v, last)
  kv = Concat <axis = 2> (k5, v5)
  present = Concat <axis = 1> (past, kv)
  keys1, values1 = Split <axis = 2> (present, ones)
  keys2 = Squeeze (keys1, last)
  values2 = Squeeze (values1, last)
  keys = Transpose <perm = [0, 2, 1, 3]> (keys2)
  values = Transpose <perm = [0, 2, 1, 3]> (values2))"},
};

std::string splitText(const char* past, const std::string& caches) {
  return formatted(R"(<ir_version: 8, opset_import: ["" : 17, "ai.kvopt" : 1]>
decoder (int64[B, S] input_ids, float{past} past,
         float[1, 1, 16] table, float[1, 16, 16] wq, float[1, 16, 8] wk, float[1, 16, 8] wv, float[1, 16, 10] wo)
  => (float[B, S, 10] logits, float[] present)
{{
{projections}
  zero = Constant <value_ints = [0]> ()
  three = Constant <value_ints = [3]> ()
  four = Constant <value_ints = [4]> ()
  eight = Constant <value_ints = [8]> ()
  sixteen = Constant <value_ints = [16]> ()
  first = Constant <value_int = 0> ()
  second = Constant <value_int = 1> ()
  last_index = Constant <value_int = -1> ()
  ones = Constant <value_ints = [1, 1]> ()
  twos = Constant <value_ints = [2, 2]> ()
  k = Transpose <perm = [0, 2, 1, 3]> (x_k)
  v = Transpose <perm = [0, 2, 1, 3]> (x_v)
{caches}
{results}}})",
                   named("past", past), named("projections", decoderProjections),
                   named("caches", caches), named("results", decoderResults));
}

/// Two layers whose caches are one input: [2,2,B,2,P,4], of which the first axis is the layers' and
/// the second one that of keys and values.
const std::string twoLayers = R"(
  past_0 = Gather <axis = 0> (past, first)
  slice_1 = Slice (past, one, two, zero)
  past_1 = Squeeze (slice_1, zero)
  past_k0 = Gather <axis = 0> (past_0, first)
  past_v0 = Gather <axis = 0> (past_0, second)
  past_k1 = Gather <axis = 0> (past_1, first)
  past_v1 = Gather <axis = 0> (past_1, last_index)
  keys0 = Concat <axis = 2> (past_k0, k)
  values0 = Concat <axis = 2> (past_v0, v)
  o0 = ai.kvopt.Sdpa <scale = 0.5, causal = 1> (q, keys0, values0)
  k1 = Slice (o0, zero, two, one)
  keys = Concat <axis = 2> (past_k1, k1)
  values = Concat <axis = 2> (past_v1, v)
  k5 = Unsqueeze (keys0, zero)
  v5 = Unsqueeze (values0, zero)
  layer0 = Concat <axis = 0> (k5, v5)
  k51 = Unsqueeze (keys, zero)
  v51 = Unsqueeze (values, zero)
  layer1 = Concat <axis = 0> (k51, v51)
  layer60 = Unsqueeze (layer0, zero)
  layer61 = Unsqueeze (layer1, zero)
  present = Concat <axis = 0> (layer60, layer61))";

const std::string oneAndTwo = R"(
  one = Constant <value_ints = [1]> ()
  two = Constant <value_ints = [2]> ())";

class SplitCaches : public testing::Test {
protected:
  static EquivalencePlan plan() { return cachePlan(oneUlpOfLogits); }

  /// The model as it was written and each form of it compute the same, and hold the same.
  void expectEqual(const std::string& path, size_t parts, llvm::ArrayRef<const char*> targets) {
    const DrivenModel exported = asExported(path, toolkit);
    ASSERT_EQ(exported.manifest.caches.size(), 1U);
    for (const char* target : targets) {
      SCOPED_TRACE(target);
      const DrivenModel split = rewritten(path, toolkit, "capacity=32", target);
      ASSERT_EQ(split.manifest.caches.size(), parts);
      for (const ManifestCache& cache : split.manifest.caches) {
        ASSERT_TRUE(cache.part);
        EXPECT_EQ(cache.part->past, "past");
        EXPECT_EQ(cache.part->present, "present");
      }
      const VerificationReport report = valueOrThrow(verifyModels(
          *exported.model, exported.manifest, *split.model, split.manifest, plan(), 1, toolkit));
      EXPECT_TRUE(report.equal()) << verificationSummary(report);
      EXPECT_EQ(report.cacheBytesCopied, 0);
      for (const StepComparison& step : report.comparison.steps) {
        ASSERT_EQ(step.caches.size(), parts);
        for (const TensorComparison& cache : step.caches)
          EXPECT_GT(cache.comparison.compared, 0);
      }
      // The other way round the parts are those of the first model.
      EXPECT_TRUE(valueOrThrow(verifyModels(*split.model, split.manifest, *exported.model,
                                            exported.manifest, plan(), 1, toolkit))
                      .equal());
      expectSeeded(exported, split);
    }
  }

  /// A session continues from the cache of the model before it was split.
  void expectSeeded(const DrivenModel& exported, const DrivenModel& split) {
    SessionOptions options;
    options.batch = 2;
    options.capacity = 32;
    auto before = openSession(exported, toolkit.runner->kernels(), options);
    auto after = openSession(split, toolkit.runner->kernels(), options);
    stepAlike(*before, 6);
    const NamedView whole{"past", valueOrThrow(before->exportedCacheRows(0)).view};
    successOrThrow(after->seed({whole}, 6));
    for (int step = 0; step < 3; ++step) {
      const StepResult ours = stepAlike(*before, 1);
      const StepResult theirs = stepAlike(*after, 1);
      const auto compared = valueOrThrow(
          compareTensors(ours.find("logits")->view, theirs.find("logits")->view, plan().tolerance));
      EXPECT_TRUE(compared.isWithin()) << compared.maxAbs;
      EXPECT_GT(compared.compared, 0);
    }
    NamedView narrow = whole;
    narrow.view = sliceAxis(narrow.view, 0, 0, 1);
    llvm::Error error = after->seed({narrow}, after->length());
    ASSERT_TRUE(static_cast<bool>(error));
    EXPECT_NE(takeDiagnostic(std::move(error)).message.find("past"), std::string::npos);
  }

  Toolkit toolkit;
  TemporaryFolder folder;
};

TEST_F(SplitCaches, HoldKeysAndValues) {
  for (const SplitSpelling& spelling : splitSpellings) {
    SCOPED_TRACE(spelling.name);
    expectEqual(writtenModel(splitText(spelling.past, spelling.text), toolkit, folder), 2,
                spelling.targets);
  }
}

TEST_F(SplitCaches, HoldAllLayers) {
  const std::string text = splitText("[2, 2, B, 2, P, 4]", oneAndTwo + twoLayers);
  expectEqual(writtenModel(text, toolkit, folder), 4, splitSpellings[0].targets);
}

TEST_F(SplitCaches, AreNamedByTheirPlaces) {
  const std::string path =
      writtenModel(splitText("[2, 2, B, 2, P, 4]", oneAndTwo + twoLayers), toolkit, folder);
  const DrivenModel split = rewritten(path, toolkit);
  std::vector<std::string> names;
  for (const ManifestCache& cache : split.manifest.caches)
    names.push_back(formatted("{} {}", cache.past, cache.part->text("past")));
  EXPECT_EQ(names, (std::vector<std::string>{"past.0.0 past[0, 0]", "past.0.1 past[0, 1]",
                                             "past.1.0 past[1, 0]", "past.1.1 past[1, 1]"}));
  // What is written is read again.
  const Manifest again = valueOrThrow(parseManifest(split.manifest.json()));
  for (size_t i = 0; i < again.caches.size(); ++i)
    EXPECT_EQ(again.caches[i].part, split.manifest.caches[i].part);
}

TEST_F(SplitCaches, AreLeftWholeWhereAPartIsNotItsOwn) {
  const SplitSpelling nearMisses[] = {
      {"keys become values", "[2, B, 2, P, 4]", R"(
  past_k = Gather <axis = 0> (past, first)
  past_v = Gather <axis = 0> (past, second)
  keys = Concat <axis = 2> (past_k, k)
  values = Concat <axis = 2> (past_v, v)
  k5 = Unsqueeze (keys, zero)
  v5 = Unsqueeze (values, zero)
  present = Concat <axis = 0> (v5, k5))"},
      {"all parts are read at once", "[2, B, 2, P, 4]", R"(
  all = ReduceSum <keepdims = 0> (past)
  past_k = Gather <axis = 0> (past, first)
  past_v = Gather <axis = 0> (past, second)
  more = Add (k, all)
  keys = Concat <axis = 2> (past_k, more)
  values = Concat <axis = 2> (past_v, v)
  k5 = Unsqueeze (keys, zero)
  v5 = Unsqueeze (values, zero)
  present = Concat <axis = 0> (k5, v5))"},
      {"parts overlap", "[B, 2, P, 8]", R"(
  kv = Concat <axis = -1> (k, v)
  present = Concat <axis = -2> (past, kv)
  keys = Slice (present, zero, four, three)
  six = Constant <value_ints = [6]> ()
  values = Slice (present, last, six, three))"},
      {"rows are of both", "[2, B, 2, P, 4]", R"(
  past_k = Gather <axis = 0> (past, first)
  past_v = Gather <axis = 0> (past, second)
  keys = Concat <axis = 2> (past_k, k)
  values = Concat <axis = 2> (past_v, v)
  mean = Add (keys, values)
  k5 = Unsqueeze (mean, zero)
  v5 = Unsqueeze (values, zero)
  present = Concat <axis = 0> (k5, v5))"},
  };
  for (const SplitSpelling& miss : nearMisses) {
    SCOPED_TRACE(miss.name);
    const std::string path = writtenModel(splitText(miss.past, miss.text), toolkit, folder);
    const RecoveredModel recovered = valueOrThrow(recoverModel(path, toolkit));
    EXPECT_TRUE(recovered.context->history.parts.empty());
    EXPECT_NE(recovered.model->graph().findValue("past"), nullptr);
    const auto refused = targets::refusals(*toolkit.targets.find("kvopt"), recovered.context->sites,
                                           *recovered.model);
    ASSERT_EQ(refused.size(), 1U);
    EXPECT_TRUE(refused[0]);
  }
}

/// A place to write at for each entry of the first axis does not go with a part of them.
TEST_F(SplitCaches, WrittenAtPlacesForEachPartAreLeftWhole) {
  const std::string text = R"(<ir_version: 10, opset_import: ["" : 24, "ai.kvopt" : 1]>
decoder (float[2, 2, S, 4] q, float[2, 2, 1, S, 4] kv, float[2, 2, 1, P, 4] past, int64[2] places)
  => (float[2, 2, S, 4] o, float[2, 2, 1, P, 4] present)
{
  first = Constant <value_int = 0> ()
  second = Constant <value_int = 1> ()
  present = TensorScatter <axis = 3> (past, kv, places)
  keys = Gather <axis = 0> (present, first)
  values = Gather <axis = 0> (present, second)
  o = ai.kvopt.Sdpa <scale = 0.5> (q, keys, values)
})";
  const RecoveredModel recovered =
      valueOrThrow(recoverModel(writtenModel(text, toolkit, folder), toolkit));
  EXPECT_TRUE(recovered.context->history.parts.empty());
  EXPECT_NE(recovered.model->graph().findValue("past"), nullptr);
}

/// New rows of the parts may be one value, of which they are different ranges.
TEST_F(SplitCaches, MayBePartsOfDifferentWidth) {
  const std::string text = splitText("[B, 6, P, 4]", R"(
  spare = Slice (k, zero, one, one)
  kv = Concat <axis = 1> (k, v, spare, spare)
  present = Concat <axis = 2> (past, kv)
  keys = Slice (present, zero, two, one)
  values = Slice (present, two, four, one)
  five = Constant <value_ints = [5]> ()
  six = Constant <value_ints = [6]> ()
  unread0 = Slice (present, four, five, one)
  unread1 = Slice (present, five, six, one))");
  const size_t at = text.find("  k = Transpose");
  expectEqual(
      writtenModel(text.substr(0, at) + oneAndTwo + "\n" + text.substr(at), toolkit, folder), 4,
      {"primitive"});
}

} // namespace
} // namespace kvopt
