// Decoders for beam search, whose caches are rearranged between steps.
#include "driver/forms/form_table.h"
#include "driver/rewrite/rewrite.h"
#include "support/format.h"
#include "tests/equivalence/caches/cache_plan.h"
#include "tests/equivalence/caches/decoder_text.h"
#include "tests/equivalence/rewritten_model.h"
#include "tests/ir/corpus.h"

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace pattern;
using namespace runtime;

namespace {

/// How `keys`, `values` [B,2,P + S,4], `present_k` and `present_v` are made of `past_k`, `past_v`,
/// the rows `x_k`, `x_v` [B,S,2,4] or `k`, `v` [B,2,S,4], and `beams`.
struct BeamSpelling {
  const char* name;
  const char* past;
  const char* beams; ///< their type
  const char* text;
  std::vector<const char*> targets = {"kvopt", "onnx24", "blocks:4", "primitive"};
};

const char* joinedPicks = R"(
  present_k = Concat <axis = 2> (picked_k, k)
  present_v = Concat <axis = 2> (picked_v, v)
  keys = Identity (present_k)
  values = Identity (present_v))";

std::string withJoin(const char* picks) { return std::string(picks) + joinedPicks; }

const std::pair<BeamSpelling, bool> beamSpellings[] = {
    {{"heads_first", "[B, 2, P, 4]", "int64[B]", R"(
  picked_k = Gather <axis = 0> (past_k, beams)
  picked_v = Gather <axis = 0> (past_v, beams))"},
     true},
    {{"narrow_numbers", "[B, 2, P, 4]", "int32[B]", R"(
  wide = Cast <to = 7> (beams)
  picked_k = Gather <axis = 0> (past_k, wide)
  picked_v = Gather <axis = 0> (past_v, beams))"},
     true},
    {{"sequence_first",
      "[P, B, 2, 4]",
      "int64[B]",
      R"(
  picked_k = Gather <axis = 1> (past_k, beams)
  picked_v = Gather <axis = -3> (past_v, beams)
  k_rows = Transpose <perm = [1, 0, 2, 3]> (x_k)
  v_rows = Transpose <perm = [1, 0, 2, 3]> (x_v)
  present_k = Concat <axis = 0> (picked_k, k_rows)
  present_v = Concat <axis = 0> (picked_v, v_rows)
  keys = Transpose <perm = [1, 2, 0, 3]> (present_k)
  values = Transpose <perm = [1, 2, 0, 3]> (present_v))",
      {"kvopt", "blocks:4", "primitive"}},
     false},
};

std::string beamText(const char* past, const char* beams, const std::string& caches) {
  return formatted(R"(<ir_version: 8, opset_import: ["" : 17, "ai.kvopt" : 1]>
decoder (int64[B, S] input_ids, {beams} beams, float{past} past_k, float{past} past_v,
         float[1, 1, 16] table, float[1, 16, 16] wq, float[1, 16, 8] wk, float[1, 16, 8] wv, float[1, 16, 10] wo)
  => (float[B, S, 10] logits, float[] present_k, float[] present_v)
{{
{projections}
  k = Transpose <perm = [0, 2, 1, 3]> (x_k)
  v = Transpose <perm = [0, 2, 1, 3]> (x_v)
{caches}
{results}}})",
                   named("past", past), named("beams", beams),
                   named("projections", decoderProjections), named("caches", caches),
                   named("results", decoderResults));
}

class ReorderedCaches : public testing::Test {
protected:
  static EquivalencePlan plan() {
    EquivalencePlan plan = cachePlan(oneUlpOfLogits);
    plan.batch = 3;
    return plan;
  }

  std::string written(const std::pair<BeamSpelling, bool>& spelling) {
    const auto& [spelled, isShort] = spelling;
    return writtenModel(
        beamText(spelled.past, spelled.beams, isShort ? withJoin(spelled.text) : spelled.text),
        toolkit, folder);
  }

  Toolkit toolkit;
  TemporaryFolder folder;
};

TEST_F(ReorderedCaches, ComputeTheSameWithRowsPickedAtRandom) {
  for (const auto& spelling : beamSpellings) {
    const std::string path = written(spelling);
    const DrivenModel exported = asExported(path, toolkit);
    for (const char* target : spelling.first.targets) {
      SCOPED_TRACE(formatted("{} --to {}", spelling.first.name, target));
      const DrivenModel lifted = rewritten(path, toolkit, "capacity=32", target);
      EXPECT_EQ(lifted.manifest.reorder, "beams");
      const VerificationReport report = valueOrThrow(verifyModels(
          *exported.model, exported.manifest, *lifted.model, lifted.manifest, plan(), 1, toolkit));
      EXPECT_TRUE(report.equal()) << verificationSummary(report);
      EXPECT_EQ(report.comparison.steps.size(), 9U);
      // The comparison would notice rows that are not rearranged.
      Manifest fixed = lifted.manifest;
      fixed.reorder.clear();
      const VerificationReport wrong = valueOrThrow(
          verifyModels(*lifted.model, lifted.manifest, *lifted.model, fixed, plan(), 1, toolkit));
      EXPECT_FALSE(wrong.equal());
    }
  }
}

TEST_F(ReorderedCaches, AreRearrangedBySessions) {
  const DrivenModel lifted = rewritten(written(beamSpellings[0]), toolkit, "capacity=32");
  SessionOptions options;
  options.batch = 3;
  auto session = openSession(lifted, toolkit.runner->kernels(), options);
  DecoderStep step;
  step.tokens = {{1}, {2}, {3}};
  (void)valueOrThrow(stepDecoder(*session, step));
  const Tensor before =
      valueOrThrow(Tensor::copyOf(session->allocator(), valueOrThrow(session->cacheRows(0)).view));
  step.pastLength = 1;
  step.batchRows = {2, 0, -2}; // which counts from the end
  (void)valueOrThrow(stepDecoder(*session, step));
  const Tensor afterRows = valueOrThrow(session->cacheRows(0));
  const TensorView after = sliceAxis(afterRows.view, 2, 0, 1);
  const int64_t from[] = {2, 0, 1};
  for (int64_t row = 0; row < 3; ++row)
    EXPECT_TRUE(valueOrThrow(compareTensors(sliceAxis(after, 0, row, row + 1),
                                            sliceAxis(before.view, 0, from[row], from[row] + 1),
                                            Tolerance{0, 0}))
                    .bitExact);
  step.pastLength = 2;
  step.batchRows = {0, 1, 3};
  auto outside = stepDecoder(*session, step);
  ASSERT_FALSE(static_cast<bool>(outside));
  EXPECT_NE(takeDiagnostic(outside.takeError()).message.find("no batch row 3"), std::string::npos);
  EXPECT_EQ(session->length(), 2);
}

TEST_F(ReorderedCaches, StayInTheGraphWhereTheyAreNotAllPickedAlike) {
  const BeamSpelling misses[] = {
      {"keys only", "[B, 2, P, 4]", "int64[B]", R"(
  picked_k = Gather <axis = 0> (past_k, beams)
  picked_v = Identity (past_v))"},
      {"changed numbers", "[B, 2, P, 4]", "int64[B]", R"(
  next = Abs (beams)
  picked_k = Gather <axis = 0> (past_k, next)
  picked_v = Gather <axis = 0> (past_v, beams))"},
      {"another number of rows", "[C, 2, P, 4]", "int64[B]", R"(
  picked_k = Gather <axis = 0> (past_k, beams)
  picked_v = Gather <axis = 0> (past_v, beams))"},
      {"two reorders", "[B, 2, P, 4]", "int64[B]", R"(
  first_k = Gather <axis = 0> (past_k, beams)
  picked_k = Gather <axis = 0> (first_k, beams)
  picked_v = Gather <axis = 0> (past_v, beams))"},
  };
  for (const BeamSpelling& miss : misses) {
    SCOPED_TRACE(miss.name);
    const RecoveredModel recovered = valueOrThrow(recoverModel(
        writtenModel(beamText(miss.past, miss.beams, withJoin(miss.text)), toolkit, folder),
        toolkit));
    EXPECT_TRUE(recovered.context->reorder.empty());
    ASSERT_EQ(recovered.context->sites.size(), 1U);
    ASSERT_TRUE(recovered.context->sites[0].failure);
    EXPECT_EQ(reasonName(recovered.context->sites[0].failure->code), "cache-reordered");
  }
}

/// What `inspect` counts is what `rewrite` takes.
TEST_F(ReorderedCaches, AreRefusedByTargetsThatChangePadding) {
  const std::string path =
      (corpusFolder() / ".." / "corpus2" / "o_beam-dynamo20-own" / "model.onnx").string();
  if (!std::filesystem::exists(path))
    GTEST_SKIP() << "set KVOPT_CORPUS to a folder of models";
  const RecoveredModel recovered = valueOrThrow(recoverModel(path, toolkit));
  EXPECT_FALSE(recovered.context->reorder.empty());
  for (const char* target : {"kvopt", "ort-gqa"}) {
    SCOPED_TRACE(target);
    RewriteRequest request;
    request.form = valueOrThrow(presetForm(target));
    request.verification = VerificationExtent::Off;
    const RewriteResult result =
        valueOrThrow(rewrite(valueOrThrow(openModel(path, toolkit)), request, toolkit));
    const bool isTaken = std::holds_alternative<RewrittenModel>(result);
    EXPECT_EQ(isTaken, llvm::StringRef(target) == "kvopt");
    for (const auto& failure :
         targets::refusals(*toolkit.targets.find(target), recovered.context->sites,
                           *recovered.model, recovered.context->reorder)) {
      EXPECT_EQ(isTaken, !failure);
      if (failure) {
        EXPECT_EQ(reasonName(failure->code), "cache-reordered");
      }
    }
  }
}

} // namespace
} // namespace kvopt
