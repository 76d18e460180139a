// Manifests that were edited: each claim is proved of what a rewrite wrote, and refused or named
// where it was changed.
#include "driver/forms/form_table.h"
#include "driver/rewrite/proof.h"
#include "driver/rewrite/rewrite.h"
#include "driver/synthetic/decoder.h"
#include "driver/verify/claims.h"
#include "support/json.h"
#include "support/string_ends.h"
#include "tests/equivalence/caches/decoder_text.h"
#include "tests/equivalence/rewritten_model.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace runtime;

namespace {

/// A decoder whose second attention reads the caches of the first one.
std::string sharedText() {
  return formatted(R"(<ir_version: 8, opset_import: ["" : 17, "ai.kvopt" : 1]>
decoder (int64[B, S] input_ids, float[B, 2, P, 4] past_k, float[B, 2, P, 4] past_v,
         float[1, 1, 16] table, float[1, 16, 16] wq, float[1, 16, 8] wk, float[1, 16, 8] wv, float[1, 16, 10] wo)
  => (float[B, S, 10] logits, float[B, 2, "P + S", 4] keys, float[B, 2, "P + S", 4] values)
{{
{0}
  o_shape = Constant <value_ints = [0, 0, 16]> ()
  k = Transpose <perm = [0, 2, 1, 3]> (x_k)
  v = Transpose <perm = [0, 2, 1, 3]> (x_v)
  keys = Concat <axis = 2> (past_k, k)
  values = Concat <axis = 2> (past_v, v)
  o1 = ai.kvopt.Sdpa <scale = 0.5, causal = 1> (q, keys, values)
  o2 = ai.kvopt.Sdpa <scale = 0.25, causal = 1> (q, keys, values)
  o = Add (o1, o2)
  ot = Transpose <perm = [0, 2, 1, 3]> (o)
  om = Reshape (ot, o_shape)
  logits = MatMul (om, wo)
}})",
                   decoderProjections);
}

/// A decoder that keeps keys and values in one cache.
std::string splitText() {
  return formatted(R"(<ir_version: 8, opset_import: ["" : 17, "ai.kvopt" : 1]>
decoder (int64[B, S] input_ids, float[2, B, 2, P, 4] past,
         float[1, 1, 16] table, float[1, 16, 16] wq, float[1, 16, 8] wk, float[1, 16, 8] wv, float[1, 16, 10] wo)
  => (float[B, S, 10] logits, float[] present)
{{
{0}
  zero = Constant <value_ints = [0]> ()
  first = Constant <value_int = 0> ()
  second = Constant <value_int = 1> ()
  k = Transpose <perm = [0, 2, 1, 3]> (x_k)
  v = Transpose <perm = [0, 2, 1, 3]> (x_v)
  past_k = Gather <axis = 0> (past, first)
  past_v = Gather <axis = 0> (past, second)
  keys = Concat <axis = 2> (past_k, k)
  values = Concat <axis = 2> (past_v, v)
  k5 = Unsqueeze (keys, zero)
  v5 = Unsqueeze (values, zero)
  present = Concat <axis = 0> (k5, v5)
{1}}})",
                   decoderProjections, decoderResults);
}

/// A decoder that picks the batch rows of its caches by `beams`.
std::string beamText() {
  return formatted(R"(<ir_version: 8, opset_import: ["" : 17, "ai.kvopt" : 1]>
decoder (int64[B, S] input_ids, int64[B] beams, float[B, 2, P, 4] past_k, float[B, 2, P, 4] past_v,
         float[1, 1, 16] table, float[1, 16, 16] wq, float[1, 16, 8] wk, float[1, 16, 8] wv, float[1, 16, 10] wo)
  => (float[B, S, 10] logits, float[] present_k, float[] present_v)
{{
{0}
  k = Transpose <perm = [0, 2, 1, 3]> (x_k)
  v = Transpose <perm = [0, 2, 1, 3]> (x_v)
  picked_k = Gather <axis = 0> (past_k, beams)
  picked_v = Gather <axis = 0> (past_v, beams)
  present_k = Concat <axis = 2> (picked_k, k)
  present_v = Concat <axis = 2> (picked_v, v)
  keys = Identity (present_k)
  values = Identity (present_v)
{1}}})",
                   decoderProjections, decoderResults);
}

/// A decoder of two layers: one whose mask hides padding, and one whose mask weighs it.
std::string paddedText() {
  return formatted(R"(<ir_version: 8, opset_import: ["" : 17, "ai.kvopt" : 1]>
decoder (int64[B, S] input_ids, int64[B, "P + S"] attention_mask, float[B, 2, P, 4] past_k, float[B, 2, P, 4] past_v,
         float[B, 2, P, 4] past_k2, float[B, 2, P, 4] past_v2,
         float[1, 1, 16] table, float[1, 16, 16] wq, float[1, 16, 8] wk, float[1, 16, 8] wv, float[1, 16, 10] wo)
  => (float[B, S, 10] logits, float[B, 2, "P + S", 4] keys, float[B, 2, "P + S", 4] values,
      float[B, 2, "P + S", 4] keys2, float[B, 2, "P + S", 4] values2)
{{
{0}
  o_shape = Constant <value_ints = [0, 0, 16]> ()
  head_axes = Constant <value_ints = [1, 2]> ()
  padding = Unsqueeze (attention_mask, head_axes)
  shown = Cast <to = 9> (padding)
  weight = Cast <to = 1> (padding)
  k = Transpose <perm = [0, 2, 1, 3]> (x_k)
  v = Transpose <perm = [0, 2, 1, 3]> (x_v)
  keys = Concat <axis = 2> (past_k, k)
  values = Concat <axis = 2> (past_v, v)
  o1 = ai.kvopt.Sdpa <scale = 0.5, causal = 1> (q, keys, values, shown)
  k2 = Sin (k)
  v2 = Sin (v)
  keys2 = Concat <axis = 2> (past_k2, k2)
  values2 = Concat <axis = 2> (past_v2, v2)
  o2 = ai.kvopt.Sdpa <scale = 0.25, causal = 1> (q, keys2, values2, weight)
  o = Add (o1, o2)
  ot = Transpose <perm = [0, 2, 1, 3]> (o)
  om = Reshape (ot, o_shape)
  logits = MatMul (om, wo)
}})",
                   decoderProjections);
}

enum class Source { Llama, Window, Latent, Shared, Split, Beams, Padded };

/// An edit of a claim in the manifest of a written model, and what comes of it.
struct ClaimEdit {
  const char* claim;
  Source source;
  const char* target;
  void (*edit)(Manifest& manifest);
  /// Part of the error, or of the sentence about what is not proved.
  const char* text;
  bool isRefused = false;
};

void PrintTo(const ClaimEdit& edit, std::ostream* out) { *out << edit.claim << edit.target; }

void turnFaster(Manifest& manifest) {
  for (double& theta : manifest.rotations->front().theta)
    theta *= 1.5;
}
void swapPairs(Manifest& manifest) {
  ManifestRotation& rotation = manifest.rotations->front();
  rotation.interleaved = !rotation.interleaved;
}
void dropPair(Manifest& manifest) { manifest.rotations->front().theta.pop_back(); }
void moveColumns(Manifest& manifest) {
  manifest.rotations->front().theta.pop_back();
  manifest.rotations->front().first = 1;
}
void dropRotation(Manifest& manifest) { manifest.caches.front().rotation.reset(); }
void rotateValues(Manifest& manifest) {
  for (ManifestCache& cache : manifest.caches)
    if (cache.role == CacheRole::Value)
      cache.rotation = 0;
}
void claimNoRotations(Manifest& manifest) {
  manifest.rotations.emplace();
  for (ManifestCache& cache : manifest.caches)
    cache.rotation.reset();
}
void seeFewerRows(Manifest& manifest) { manifest.caches.front().window = 1; }
void seeMoreRows(Manifest& manifest) { manifest.caches.front().window += 1; }
void limitToOne(Manifest& manifest) { manifest.stepLimit = 1; }
void limitToMore(Manifest& manifest) { manifest.stepLimit = 9; }
void excludePadding(Manifest& manifest) { manifest.unpadded = {"attention_mask"}; }
void limitChunks(Manifest& manifest) { manifest.chunkBatch = 1; }
void limitChunksToTwo(Manifest& manifest) { manifest.chunkBatch = 2; }
void excludeHiddenRows(Manifest& manifest) { manifest.hiddenRowsUndefined = true; }
void dropReader(Manifest& manifest) { manifest.caches.front().readers.clear(); }
void renameReader(Manifest& manifest) { manifest.caches.front().readers = {2}; }
void replaceAnother(Manifest& manifest) {
  manifest.caches.front().replaces = {{"another_past", "another_present"}};
}
void replaceItself(Manifest& manifest) {
  manifest.caches.front().replaces = {
      {manifest.caches.back().past, manifest.caches.back().present}};
}
void shareAPart(Manifest& manifest) { manifest.caches[0].part = manifest.caches[1].part; }
void movePart(Manifest& manifest) { manifest.caches[1].part->first[0] = 2; }
void renamePart(Manifest& manifest) {
  for (ManifestCache& cache : manifest.caches)
    cache.part->past = "another_past";
}

const ClaimEdit claimEdits[] = {
    {"caches[].window", Source::Llama, "kvopt", seeFewerRows, "all rows", true},
    {"caches[].window", Source::Window, "kvopt", seeFewerRows, "6 rows, not to 1", true},
    {"caches[].window", Source::Window, "kvopt", seeMoreRows, "", false},
    {"rotations", Source::Llama, "kvopt", turnFaster, "theta[0]", true},
    {"rotations", Source::Llama, "kvopt", swapPairs, "the pairs are halves", true},
    {"rotations", Source::Llama, "kvopt", dropPair, "pairs are rotated", true},
    {"rotations", Source::Llama, "kvopt", moveColumns, "the first rotated column is 0", true},
    {"rotations", Source::Llama, "kvopt", dropRotation, "has no rotation of them", true},
    {"rotations", Source::Llama, "kvopt", rotateValues, "its rows are not rotated", true},
    {"rotations", Source::Llama, "int8", turnFaster, "theta[0]", true},
    {"rotations", Source::Llama, "onnx24", turnFaster, "theta[0]", true},
    {"rotations", Source::Llama, "ort-gqa", dropRotation, "has no rotation of them", true},
    {"rotations", Source::Llama, "primitive", turnFaster, "theta[0]", true},
    {"rotations", Source::Llama, "blocks:8", turnFaster, "those of the other model differ"},
    {"rotations", Source::Window, "ring", turnFaster, "theta[0]", true},
    {"rotations", Source::Window, "onnx24-ring:4", turnFaster, "theta[0]", true},
    {"rotations", Source::Latent, "latent", turnFaster, "theta[0]", true},
    {"rotations", Source::Shared, "kvopt", claimNoRotations, ""},
    {"step_limit", Source::Llama, "kvopt", limitToOne, "steps of more than 1 tokens"},
    {"step_limit", Source::Window, "onnx24-ring:4", limitToOne, "the graph takes steps of up to 4"},
    {"step_limit", Source::Window, "onnx24-ring:4", limitToMore, "at most 4 tokens, not 9", true},
    {"unpadded", Source::Llama, "kvopt", excludePadding, "attention of the graph reads"},
    {"unpadded", Source::Padded, "kvopt", excludePadding, "attention of the graph reads"},
    {"unpadded", Source::Llama, "primitive", excludePadding, "attention of the graph reads"},
    {"unpadded", Source::Llama, "ort-gqa", excludePadding, "attention of the graph reads"},
    {"chunk_batch", Source::Llama, "kvopt", limitChunks, "no GroupQueryAttention"},
    {"chunk_batch", Source::Llama, "ort-gqa", limitChunksToTwo, "takes one batch row"},
    {"hidden_rows", Source::Llama, "kvopt", excludeHiddenRows, "hidden_rows"},
    {"hidden_rows", Source::Shared, "kvopt", excludeHiddenRows, "hidden_rows"},
    {"readers", Source::Shared, "kvopt", renameReader, "layers [1] read this cache", true},
    {"readers", Source::Shared, "primitive", dropReader, "layers [1] read this cache", true},
    {"replaces", Source::Latent, "latent", replaceAnother, "has no cache 'another_past'"},
    {"replaces", Source::Llama, "kvopt", replaceItself, "still has the cache", true},
    {"part", Source::Split, "kvopt", shareAPart, "has a part in common", true},
    {"part", Source::Split, "kvopt", movePart, "axis 0 of 'past' has extent 2", true},
    {"part", Source::Split, "kvopt", renamePart, "has no cache 'another_past'", true},
};

class ClaimedModels : public testing::Test {
protected:
  std::string exported(Source source) {
    switch (source) {
    case Source::Llama:
      return modelFolder("llama_gqa-ts14-eager") + "/model.onnx";
    case Source::Window:
    case Source::Latent:
      return generated(source == Source::Latent ? DecoderKind::Mla : DecoderKind::Window);
    case Source::Shared:
      return writtenModel(sharedText(), toolkit, folder);
    case Source::Split:
      return writtenModel(splitText(), toolkit, folder);
    case Source::Beams:
      return writtenModel(beamText(), toolkit, folder);
    case Source::Padded:
      return writtenModel(paddedText(), toolkit, folder);
    }
    return "";
  }

  std::string generated(DecoderKind kind) {
    DecoderSpec spec;
    spec.kind = kind;
    spec.hidden = 32;
    spec.vocabulary = 40;
    spec.window = kind == DecoderKind::Window ? 6 : 0;
    const auto model = generateDecoder(toolkit.ops, valueOrThrow(resolved(spec)));
    const std::string path = folder.path("generated.onnx");
    successOrThrow(exportModel(*model, path));
    return path;
  }

  PreparedModel written(const std::string& path, const std::string& target) {
    const bool hasCapacity = startsWith(target, "blocks");
    DrivenModel driven = rewritten(path, toolkit, hasCapacity ? "capacity=64" : "", target);
    return {std::move(driven.model), std::move(driven.manifest), nullptr};
  }

  PreparedModel original(const std::string& path) {
    DrivenModel driven = asExported(path, toolkit);
    return {std::move(driven.model), std::move(driven.manifest), nullptr};
  }

  static VerificationPlan plan() {
    EquivalencePlan run;
    run.batch = 2;
    run.prompt = 4;
    run.chunks = {3};
    run.decodeSteps = 2;
    run.tolerance = {1e-4, 1e-4};
    return run;
  }

  static void edit(PreparedModel& model, void (*change)(Manifest&)) {
    change(model.manifest);
    model.model->setMetadata(manifestKey, model.manifest.json());
  }

  Toolkit toolkit;
  TemporaryFolder folder;
};

class EditedClaims : public ClaimedModels, public testing::WithParamInterface<ClaimEdit> {};

TEST_P(EditedClaims, IsProvedUnlessItIsEdited) {
  const ClaimEdit& claim = GetParam();
  const std::string path = exported(claim.source);
  const PreparedModel before = original(path);
  PreparedModel after = written(path, claim.target);
  const VerificationReport honest = valueOrThrow(verifyPrepared(before, after, plan(), 1, toolkit));
  EXPECT_TRUE(honest.equal()) << verificationSummary(honest);
  EXPECT_TRUE(honest.unproved.empty());

  edit(after, claim.edit);
  auto report = verifyPrepared(before, after, plan(), 1, toolkit);
  if (claim.isRefused) {
    ASSERT_FALSE(report);
    const Diagnostic refused = takeDiagnostic(report.takeError());
    EXPECT_EQ(refused.kind, Diagnostic::Kind::Invalid);
    EXPECT_NE(refused.message.find(claim.text), std::string::npos) << refused.message;
    EXPECT_FALSE(refused.hint.empty());
    return;
  }
  ASSERT_TRUE(static_cast<bool>(report)) << takeDiagnostic(report.takeError()).str();
  if (llvm::StringRef(claim.text).empty()) {
    EXPECT_TRUE(report->equal()) << verificationSummary(*report);
    return;
  }
  EXPECT_FALSE(report->equal()) << verificationSummary(*report);
  EXPECT_FALSE(report->isConclusive());
  ASSERT_EQ(report->unproved.size(), 1U) << verificationSummary(*report);
  EXPECT_NE(report->unproved.front().find(claim.text), std::string::npos)
      << report->unproved.front();
  EXPECT_NE(verificationSummary(*report).find(report->unproved.front()), std::string::npos);
  EXPECT_EQ(verificationJson(*report)["unproved"].size(), 1U);
}

INSTANTIATE_TEST_SUITE_P(Manifests, EditedClaims, testing::ValuesIn(claimEdits),
                         [](const auto& edit) {
                           std::string name = formatted("{}_{}_{}", edit.index, edit.param.claim,
                                                        edit.param.target);
                           for (char& letter : name)
                             letter =
                                 std::isalnum(static_cast<unsigned char>(letter)) ? letter : '_';
                           return name;
                         });

/// A limit that is not proved does not keep the steps that it excludes from being compared.
TEST_F(ClaimedModels, LimitsThatAreNotProvedAreIgnored) {
  const std::string path = exported(Source::Llama);
  const PreparedModel before = original(path);
  PreparedModel after = written(path, "kvopt");
  edit(after, [](Manifest& manifest) {
    manifest.stepLimit = 1;
    manifest.unpadded = {"attention_mask"};
    manifest.hiddenRowsUndefined = true;
  });
  EquivalencePlan padded = plan().runs.front();
  padded.padding = Padding::Left;
  const VerificationReport report = valueOrThrow(verifyPrepared(before, after, padded, 1, toolkit));
  EXPECT_EQ(report.unproved.size(), 3U) << verificationSummary(report);
  EXPECT_FALSE(report.isConclusive());
  EXPECT_FALSE(report.isDifferent()) << verificationSummary(report);
  ASSERT_EQ(report.runs.size(), 1U);
  EXPECT_EQ(report.runs.front().plan.prompt, 4);
  EXPECT_EQ(report.runs.front().plan.padding, Padding::Left);
  for (const StepComparison& step : report.comparison.steps)
    for (const TensorComparison& output : step.outputs)
      EXPECT_EQ(output.skipped, 0);
}

/// What `--padding none` and targets with limits write is proved, with the assumption in it.
TEST_F(ClaimedModels, LimitsOfTargetsAreProved) {
  for (const auto& [source, target] :
       {std::pair(Source::Window, "onnx24-ring:4"), std::pair(Source::Llama, "ort-gqa")}) {
    SCOPED_TRACE(target);
    const std::string path = exported(source);
    const PreparedModel after = written(path, target);
    EXPECT_TRUE(after.manifest.stepLimit || after.manifest.chunkBatch);
    successOrThrow(proveClaims({*after.model, after.manifest}, ClaimScope::All, toolkit));
  }
}

/// Padding may lose its meaning in some layers alone: the assumption is one all the same.
TEST_F(ClaimedModels, MasksThatWereDroppedAreProved) {
  for (const Source source : {Source::Llama, Source::Padded})
    for (const char* target : {"kvopt", "primitive", "onnx24"}) {
      SCOPED_TRACE(target);
      const std::string path = exported(source);
      const PreparedModel before = original(path);
      RewriteRequest request;
      request.form = valueOrThrow(presetForm(target));
      request.padding = PaddedRows::None;
      request.verification = VerificationExtent::Off;
      RewriteResult result =
          valueOrThrow(rewrite(valueOrThrow(openModel(path, toolkit)), request, toolkit));
      ASSERT_TRUE(std::holds_alternative<RewrittenModel>(result))
          << std::get<RefusedModel>(result).message;
      auto& unpadded = std::get<RewrittenModel>(result);
      ASSERT_EQ(unpadded.manifest.unpadded, std::vector<std::string>{"attention_mask"});
      PreparedModel after{std::move(unpadded.model), std::move(unpadded.manifest), nullptr};
      successOrThrow(inferShapes(after.model->graph()));
      successOrThrow(proveClaims({*after.model, after.manifest}, ClaimScope::All, toolkit));
      const VerificationReport report =
          valueOrThrow(verifyPrepared(before, after, plan(), 1, toolkit));
      EXPECT_TRUE(report.equal()) << verificationSummary(report);
      EXPECT_TRUE(valueOrThrow(verifyPrepared(after, after, plan(), 1, toolkit)).equal());
    }
}

/// Models that were written are compared with each other, too, whatever form their caches have.
TEST_F(ClaimedModels, WrittenModelsNeedNoExportedOne) {
  const std::string path = exported(Source::Llama);
  const char* targets[] = {"kvopt",   "int8",     "onnx23",         "onnx24",
                           "ort-gqa", "blocks:8", "blocks-plain:8", "primitive"};
  for (const char* target : targets) {
    SCOPED_TRACE(target);
    const PreparedModel one = written(path, target);
    const PreparedModel other = written(path, target);
    ASSERT_TRUE(other.manifest.rotations.has_value());
    const VerificationReport report = valueOrThrow(verifyPrepared(one, other, plan(), 1, toolkit));
    EXPECT_TRUE(report.equal()) << verificationSummary(report);
  }
}

/// Where the graph shows no rotations, rows are not moved.
TEST_F(ClaimedModels, BlocksAreNotMoved) {
  const PreparedModel blocks = written(exported(Source::Llama), "blocks:8");
  EXPECT_TRUE(llvm::errorToBool(proveRotations({*blocks.model, blocks.manifest}, toolkit)));
}

/// The input of a reorder must be left to the program that drives the model.
TEST_F(ClaimedModels, AReorderThatTheGraphDoesItselfIsRefused) {
  const std::string path = exported(Source::Beams);
  const PreparedModel after = written(path, "kvopt");
  ASSERT_EQ(after.manifest.reorder, "beams");
  successOrThrow(proveClaims({*after.model, after.manifest}, ClaimScope::All, toolkit));
  PreparedModel before = original(path);
  edit(before, [](Manifest& manifest) { manifest.reorder = "beams"; });
  const Diagnostic refused =
      takeDiagnostic(proveClaims({*before.model, before.manifest}, ClaimScope::All, toolkit));
  EXPECT_EQ(refused.value, "beams");
  EXPECT_NE(refused.message.find("reads this input itself"), std::string::npos) << refused.message;
}

/// Alone, a model must prove what limits its steps and what another rewrite takes over.
TEST_F(ClaimedModels, AModelAloneIsRefusedForWhatItsGraphDoesNotShow) {
  const std::string path = exported(Source::Llama);
  for (void (*change)(Manifest&) :
       {limitToOne, excludePadding, limitChunks, excludeHiddenRows, replaceItself}) {
    PreparedModel after = written(path, "kvopt");
    successOrThrow(proveCarried(*after.model, after.manifest, toolkit));
    edit(after, change);
    for (auto* prove : {proveRewritten, proveCarried}) {
      llvm::Error error = prove(*after.model, after.manifest, toolkit);
      ASSERT_TRUE(static_cast<bool>(error));
      EXPECT_EQ(takeDiagnostic(std::move(error)).kind, Diagnostic::Kind::Invalid);
    }
  }
}

/// Cached rows are rotated only by what the graph shows.
TEST_F(ClaimedModels, RotationsAreProvedOfAModelAlone) {
  const std::string path = exported(Source::Llama);
  for (const char* target : {"kvopt", "int8", "int4", "onnx23", "onnx24", "ort-gqa", "primitive"})
    for (void (*change)(Manifest&) : {turnFaster, swapPairs, dropRotation, rotateValues}) {
      SCOPED_TRACE(target);
      PreparedModel after = written(path, target);
      successOrThrow(proveRotations({*after.model, after.manifest}, toolkit));
      edit(after, change);
      EXPECT_TRUE(llvm::errorToBool(proveRotations({*after.model, after.manifest}, toolkit)));
    }
}

} // namespace
} // namespace kvopt
