// Decoders that compute something of all rows of a cache before attention reads them.
#include "support/format.h"
#include "support/string_ends.h"
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

/// How `keys` and `values` [B,2,P + S,4] and the presents `all_k` and `all_v` are made of `past_k`,
/// `past_v`, and the rows `x_k`, `x_v` [B,S,2,4] or `k`, `v` [B,2,S,4].
struct AttendedSpelling {
  const char* name;
  const char* past;
  const char* text;
  unsigned moved; ///< caches that hold other rows than before
};

const char* joinedHeadsFirst = R"(
  all_k = Concat <axis = 2> (past_k, k)
  all_v = Concat <axis = 2> (past_v, v))";

const AttendedSpelling attendedSpellings[] = {
    {"KeysRotatedByTheirIndex", "[B, 2, P, 4]", R"(
  all_k = Concat <axis = 2> (past_k, k)
  all_v = Concat <axis = 2> (past_v, v)
  extents = Shape (all_k)
  total = Gather <axis = 0> (extents, i2)
  index = Range (i0, total, i1)
  index_f = Cast <to = 1> (index)
  index_column = Unsqueeze (index_f, l1)
  key_angle = Mul (index_column, frequencies)
  cos = Cos (key_angle)
  sin = Sin (key_angle)
  left = Slice (all_k, l0, l2, l3)
  right = Slice (all_k, l2, l4, l3)
  left_cos = Mul (left, cos)
  right_sin = Mul (right, sin)
  right_cos = Mul (right, cos)
  left_sin = Mul (left, sin)
  first = Sub (left_cos, right_sin)
  second = Add (right_cos, left_sin)
  keys = Concat <axis = -1> (first, second)
  values = Identity (all_v))",
     1},
    {"KeysScaledByATableOfPlaces", "[B, P, 2, 4]", R"(
  all_k = Concat <axis = 1> (past_k, x_k)
  all_v = Concat <axis = 1> (past_v, x_v)
  extents = Shape (all_k)
  total = Slice (extents, l1, l2, l0)
  places = Slice (place_table, l0, total, l0)
  turned = Transpose <perm = [0, 2, 1, 3]> (all_k)
  keys = Mul (turned, places)
  values = Transpose <perm = [0, 2, 1, 3]> (all_v))",
     1},
    {"KeysNormalizedAndValuesScaledByHead", "[B, 2, P, 4]", R"(
  all_k = Concat <axis = 2> (past_k, k)
  all_v = Concat <axis = 2> (past_v, v)
  length = ReduceL2 <axes = [-1], keepdims = 1> (all_k)
  least = Max (length, tiny)
  extents = Shape (all_k)
  lengths = Expand (least, extents)
  keys = Div (all_k, lengths)
  values = Mul (all_v, head_gains))",
     2},
    {"KeysOfGatheredPlaces", "[P, B, 2, 4]", R"(
  new_k = Transpose <perm = [1, 0, 2, 3]> (x_k)
  new_v = Transpose <perm = [1, 0, 2, 3]> (x_v)
  all_k = Concat <axis = 0> (past_k, new_k)
  all_v = Concat <axis = 0> (past_v, new_v)
  extents = Shape (all_k)
  total = Gather <axis = 0> (extents, i0)
  index = Range (i0, total, i1)
  places = Gather <axis = 0> (place_table, index)
  rows = Transpose <perm = [1, 2, 0, 3]> (all_k)
  keys = Add (rows, places)
  values = Transpose <perm = [1, 2, 0, 3]> (all_v))",
     1},
};

std::string attendedText(const char* past, const std::string& caches) {
  std::string table;
  for (int i = 0; i < 64 * 4; ++i)
    table += formatted("{}{}", i == 0 ? "" : ", ", 1.0 - (i * 7 % 32) / 64.0);
  return formatted(R"(<ir_version: 8, opset_import: ["" : 17, "ai.kvopt" : 1]>
decoder (int64[B, S] input_ids, float{past} past_k, float{past} past_v, float[B, 1, 1, 4] given,
         float[1, 1, 16] table, float[1, 16, 16] wq, float[1, 16, 8] wk, float[1, 16, 8] wv, float[1, 16, 10] wo)
  => (float[B, S, 10] logits, float[] all_k, float[] all_v)
<int64 i0 = {{0}}, int64 i1 = {{1}}, int64 i2 = {{2}}, int64[1] l0 = {{0}}, int64[1] l1 = {{1}}, int64[1] l2 = {{2}},
 int64[1] l3 = {{3}}, int64[1] l4 = {{4}}, float[2] frequencies = {{1.0, 0.125}}, float tiny = {{0.001}},
 float[2, 1, 1] head_gains = {{0.5, -2.0}}, float[64, 4] place_table = {{{table}}}>
{{
{projections}
  k = Transpose <perm = [0, 2, 1, 3]> (x_k)
  v = Transpose <perm = [0, 2, 1, 3]> (x_v)
{caches}
{results}}})",
                   named("past", past), named("projections", decoderProjections),
                   named("caches", caches), named("table", table),
                   named("results", decoderResults));
}

unsigned attendedCaches(const Manifest& manifest) {
  return static_cast<unsigned>(llvm::count_if(
      manifest.caches, [](const ManifestCache& cache) { return cache.holdsAttendedRows; }));
}

class AttendedRows : public testing::Test {
protected:
  std::string written(const AttendedSpelling& spelling) {
    return writtenModel(attendedText(spelling.past, spelling.text), toolkit, folder);
  }

  Toolkit toolkit;
  TemporaryFolder folder;
};

TEST_F(AttendedRows, AreCachedInEveryTarget) {
  for (const AttendedSpelling& spelling : attendedSpellings) {
    const std::string path = written(spelling);
    const DrivenModel exported = asExported(path, toolkit);
    ASSERT_EQ(exported.manifest.caches.size(), 2U);
    EXPECT_EQ(attendedCaches(exported.manifest), 0U);
    const bool isRowsFirst = startsWith(spelling.past, "[P");
    for (const char* target : {"kvopt", "onnx24", "blocks:4", "int8", "primitive"}) {
      if (isRowsFirst && (target == std::string("onnx24") || target == std::string("int8")))
        continue; // neither has caches in this order
      SCOPED_TRACE(formatted("{} --to {}", spelling.name, target));
      const DrivenModel moved = rewritten(path, toolkit, "capacity=32", target);
      EXPECT_EQ(attendedCaches(moved.manifest), spelling.moved);
      for (int64_t batch : {1, 2}) {
        EquivalencePlan plan = cachePlan(oneUlpOfLogits);
        plan.batch = batch;
        if (target == std::string("int8"))
          plan.tolerance = {0.05, 0};
        const VerificationReport report = valueOrThrow(verifyModels(
            *exported.model, exported.manifest, *moved.model, moved.manifest, plan, 1, toolkit));
        EXPECT_TRUE(report.equal()) << verificationSummary(report);
        EXPECT_EQ(report.comparison.steps.size(), 9U);
        EXPECT_TRUE(llvm::any_of(report.notCovered, [&](const std::string& gap) {
          return gap.find(formatted("rows of {} cache", spelling.moved)) != std::string::npos;
        })) << verificationSummary(report);
      }
    }
  }
}

TEST_F(AttendedRows, StayWhatTheyAreInAnotherTarget) {
  const std::string path = written(attendedSpellings[0]);
  const DrivenModel exported = asExported(path, toolkit);
  const DrivenModel first = rewritten(path, toolkit, "capacity=32", "kvopt");
  const std::string file = folder.path("first.onnx");
  successOrThrow(exportModel(*first.model, file));
  const DrivenModel second = rewritten(file, toolkit, "capacity=32", "onnx24");
  EXPECT_EQ(attendedCaches(second.manifest), 1U);
  const VerificationReport report =
      valueOrThrow(verifyModels(*first.model, first.manifest, *second.model, second.manifest,
                                cachePlan(oneUlpOfLogits), 1, toolkit));
  EXPECT_TRUE(report.equal()) << verificationSummary(report);
  EXPECT_EQ(report.comparison.steps.front().caches.size(), 2U);
}

TEST_F(AttendedRows, AreNotTakenFromTheExportedModel) {
  const std::string path = written(attendedSpellings[0]);
  const DrivenModel exported = asExported(path, toolkit);
  const DrivenModel moved = rewritten(path, toolkit, "capacity=32", "kvopt");
  auto ours = openSession(exported, toolkit.runner->kernels(), {});
  auto theirs = openSession(moved, toolkit.runner->kernels(), {});
  stepAlike(*ours, 5);
  std::vector<NamedView> caches;
  for (size_t i = 0; i < ours->cacheCount(); ++i)
    caches.push_back({ours->cacheInfo(i).past, valueOrThrow(ours->exportedCacheRows(i)).view});
  llvm::Error refused = theirs->seed(caches, 5);
  ASSERT_TRUE(static_cast<bool>(refused));
  EXPECT_NE(takeDiagnostic(std::move(refused)).message.find("as attention reads them"),
            std::string::npos);
  EXPECT_EQ(theirs->length(), 0);
  llvm::Error madeUp = theirs->preset(5);
  EXPECT_TRUE(static_cast<bool>(madeUp));
  llvm::consumeError(std::move(madeUp));
}

TEST_F(AttendedRows, GoOnFromTheModelsOwnAndFromFewer) {
  const std::string path = written(attendedSpellings[0]);
  const DrivenModel exported = asExported(path, toolkit);
  const DrivenModel moved = rewritten(path, toolkit, "capacity=32", "kvopt");
  auto ours = openSession(exported, toolkit.runner->kernels(), {});
  auto theirs = openSession(moved, toolkit.runner->kernels(), {});
  stepAlike(*ours, 6);
  stepAlike(*theirs, 6);
  auto another = openSession(moved, toolkit.runner->kernels(), {});
  std::vector<NamedView> caches;
  for (size_t i = 0; i < theirs->cacheCount(); ++i)
    caches.push_back({theirs->cacheInfo(i).past, valueOrThrow(theirs->exportedCacheRows(i)).view});
  successOrThrow(another->seed(caches, 6, SeedOrigin::ThisModel));
  for (Session* session : {ours.get(), theirs.get(), another.get()})
    successOrThrow(session->crop(4));
  const StepResult expected = stepAlike(*ours, 3);
  for (Session* session : {theirs.get(), another.get()}) {
    const StepResult result = stepAlike(*session, 3);
    const auto compared = valueOrThrow(compareTensors(
        expected.outputs[0].tensor.view, result.outputs[0].tensor.view, oneUlpOfLogits));
    EXPECT_TRUE(compared.isWithin()) << compared.maxAbs;
    EXPECT_GT(compared.compared, 0);
  }
}

struct OtherFunction {
  const char* name;
  const char* text;
  const char* reason = "cache-transformed";
};

/// What is computed of `all_k` and `all_v`.
const OtherFunction otherFunctions[] = {
    {"ScaledByTheirNumber", R"(
  extents = Shape (all_k)
  total = Gather <axis = 0> (extents, i2)
  scale = Cast <to = 1> (total)
  keys = Div (all_k, scale)
  values = Identity (all_v))"},
    {"CountedFromTheEnd", R"(
  extents = Shape (all_k)
  total = Gather <axis = 0> (extents, i2)
  index = Range (i0, total, i1)
  back = Sub (total, index)
  back_f = Cast <to = 1> (back)
  back_column = Unsqueeze (back_f, l1)
  keys = Mul (all_k, back_column)
  values = Identity (all_v))"},
    {"ReadAsTheyAreToo", R"(
  keys = Mul (all_k, head_gains)
  values = Add (all_v, all_k))"},
    {"ScaledByAnInput", R"(
  keys = Mul (all_k, given)
  values = Identity (all_v))"},
    {"SummedOverTheRowsBefore", R"(
  keys = CumSum (all_k, i2)
  values = Identity (all_v))",
     "not-a-cache-concat"},
    {"ComparedWithOtherSequences", R"(
  mean = ReduceMean <axes = [0], keepdims = 1> (all_k)
  keys = Sub (all_k, mean)
  values = Identity (all_v))"},
    {"OfTwoCaches", R"(
  keys = Add (all_k, all_v)
  values = Identity (all_v))"},
};

TEST_F(AttendedRows, AreNoFunctionsOfAnythingElse) {
  for (const OtherFunction& other : otherFunctions) {
    SCOPED_TRACE(other.name);
    const std::string path = writtenModel(
        attendedText("[B, 2, P, 4]", std::string(joinedHeadsFirst) + other.text), toolkit, folder);
    RecoveredModel recovered = valueOrThrow(recoverModel(path, toolkit));
    ASSERT_EQ(recovered.context->sites.size(), 1U);
    EXPECT_TRUE(recovered.context->history.attendedPasts().empty());
    const targets::Target* target = toolkit.targets.find("kvopt");
    const auto failures = targets::refusals(*target, recovered.context->sites, *recovered.model);
    ASSERT_TRUE(failures[0].has_value());
    EXPECT_EQ(reasonName(failures[0]->code), other.reason);
  }
}

} // namespace
} // namespace kvopt
