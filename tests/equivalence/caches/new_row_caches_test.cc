// Decoders that hand out the new rows of their caches only, for whoever drives them to append.
#include "passes/analysis/cache/cache_origins.h"
#include "support/format.h"
#include "tests/equivalence/caches/cache_plan.h"
#include "tests/equivalence/caches/decoder_text.h"
#include "tests/equivalence/rewritten_model.h"
#include "tests/ir/corpus.h"

#include "llvm/ADT/STLExtras.h"

#include <filesystem>

namespace kvopt {
using namespace analysis;
using namespace driver;
using namespace ir;
using namespace pattern;
using namespace runtime;

namespace {

/// How `keys`, `values` [B,2,P + S,4], `new_k` and `new_v` are made of `past_k`, `past_v`, and the
/// rows `x_k`, `x_v` [B,S,2,4] or `k`, `v` [B,2,S,4].
struct NewRowSpelling {
  const char* name;
  const char* past;
  const char* text;
  std::vector<const char*> targets = {"kvopt", "int8", "onnx24", "blocks:4", "primitive"};
};

const NewRowSpelling newRowSpellings[] = {
    {"heads_first", "[B, 2, P, 4]", R"(
  new_k = Identity (k)
  new_v = Transpose <perm = [0, 2, 1, 3]> (x_v)
  keys = Concat <axis = 2> (past_k, k)
  values = Concat <axis = -2> (past_v, new_v))"},
    {"tokens_first", "[B, P, 2, 4]", R"(
  new_k = Add (x_k, nothing)
  new_v = Identity (x_v)
  all_k = Concat <axis = 1> (past_k, new_k)
  all_v = Concat <axis = 1> (past_v, x_v)
  keys = Transpose <perm = [0, 2, 1, 3]> (all_k)
  values = Transpose <perm = [0, 2, 1, 3]> (all_v))"},
    {"sequence_first",
     "[P, B, 2, 4]",
     R"(
  new_k = Transpose <perm = [1, 0, 2, 3]> (x_k)
  new_v = Transpose <perm = [1, 0, 2, 3]> (x_v)
  all_k = Concat <axis = 0> (past_k, new_k)
  all_v = Concat <axis = 0> (past_v, new_v)
  keys = Transpose <perm = [1, 2, 0, 3]> (all_k)
  values = Transpose <perm = [1, 2, 0, 3]> (all_v))",
     {"kvopt", "blocks:4", "primitive"}},
};

std::string newRowText(const char* past, const std::string& caches) {
  return formatted(R"(<ir_version: 8, opset_import: ["" : 17, "ai.kvopt" : 1]>
decoder (int64[B, S] input_ids, float{past} past_k, float{past} past_v,
         float[1, 1, 16] table, float[1, 16, 16] wq, float[1, 16, 8] wk, float[1, 16, 8] wv, float[1, 16, 10] wo)
  => (float[B, S, 10] logits, float[] new_k, float[] new_v)
<float nothing = {{0.0}}>
{{
{projections}
  k = Transpose <perm = [0, 2, 1, 3]> (x_k)
  v = Transpose <perm = [0, 2, 1, 3]> (x_v)
{caches}
{results}}})",
                   named("past", past), named("projections", decoderProjections),
                   named("caches", caches), named("results", decoderResults));
}

class NewRowCaches : public testing::Test {
protected:
  Toolkit toolkit;
  TemporaryFolder folder;
};

TEST_F(NewRowCaches, AreDrivenAndBecomeWholeCaches) {
  for (const NewRowSpelling& spelling : newRowSpellings) {
    const std::string path =
        writtenModel(newRowText(spelling.past, spelling.text), toolkit, folder);
    const DrivenModel exported = asExported(path, toolkit);
    ASSERT_EQ(exported.manifest.caches.size(), 2U);
    for (const ManifestCache& cache : exported.manifest.caches) {
      EXPECT_TRUE(cache.givesNewRows());
      EXPECT_EQ(cache.update(), CacheUpdate::Grows);
    }
    for (const char* target : spelling.targets) {
      SCOPED_TRACE(formatted("{} --to {}", spelling.name, target));
      const DrivenModel whole = rewritten(path, toolkit, "capacity=32", target);
      for (const ManifestCache& cache : whole.manifest.caches)
        EXPECT_FALSE(cache.givesNewRows());
      EquivalencePlan plan = cachePlan(oneUlpOfLogits);
      if (target == std::string("int8"))
        plan.tolerance = {0.05, 0};
      const VerificationReport report = valueOrThrow(verifyModels(
          *exported.model, exported.manifest, *whole.model, whole.manifest, plan, 1, toolkit));
      EXPECT_TRUE(report.equal()) << verificationSummary(report);
      EXPECT_EQ(report.comparison.steps.size(), 9U);
    }
  }
}

TEST_F(NewRowCaches, CanBeSeededAndCropped) {
  const std::string path =
      writtenModel(newRowText(newRowSpellings[0].past, newRowSpellings[0].text), toolkit, folder);
  const DrivenModel exported = asExported(path, toolkit);
  const DrivenModel whole = rewritten(path, toolkit, "capacity=32", "kvopt");
  auto ours = openSession(exported, toolkit.runner->kernels(), {});
  auto theirs = openSession(whole, toolkit.runner->kernels(), {});
  stepAlike(*ours, 5);
  std::vector<NamedView> caches;
  for (size_t i = 0; i < ours->cacheCount(); ++i)
    caches.push_back({ours->cacheInfo(i).past, valueOrThrow(ours->exportedCacheRows(i)).view});
  successOrThrow(theirs->seed(caches, 5));
  successOrThrow(ours->crop(3));
  successOrThrow(theirs->crop(3));
  const StepResult expected = stepAlike(*ours, 2);
  const StepResult result = stepAlike(*theirs, 2);
  const auto compared = valueOrThrow(compareTensors(
      expected.outputs[0].tensor.view, result.outputs[0].tensor.view, Tolerance{1e-5, 0}));
  EXPECT_TRUE(compared.isWithin()) << compared.maxAbs;
  EXPECT_GT(compared.compared, 0);
  EXPECT_EQ(ours->length(), 5);
}

struct OtherOutput {
  const char* name;
  const char* text;
  const char* past = "[B, 2, P, 4]";
};

const OtherOutput otherOutputs[] = {
    {"InAnotherOrderOfAxes", R"(
  new_k = Identity (x_k)
  new_v = Identity (x_v)
  keys = Concat <axis = 2> (past_k, k)
  values = Concat <axis = 2> (past_v, v))"},
    {"OfAPastOfFixedRows", R"(
  new_k = Identity (k)
  new_v = Identity (v)
  keys = Concat <axis = 2> (past_k, k)
  values = Concat <axis = 2> (past_v, v))",
     "[B, 2, 7, 4]"},
    {"OfTwoPasts", R"(
  new_k = Identity (k)
  new_v = Mul (v, two)
  keys = Concat <axis = 2> (past_k, k)
  values = Concat <axis = 2> (past_v, k))"},
    {"ThatAreScaled", R"(
  new_k = Mul (k, two)
  new_v = Mul (v, two)
  keys = Concat <axis = 2> (past_k, k)
  values = Concat <axis = 2> (past_v, v))"},
    {"BeforeThePast", R"(
  new_k = Identity (k)
  new_v = Identity (v)
  keys = Concat <axis = 2> (k, past_k)
  values = Concat <axis = 2> (v, past_v))"},
    {"OfAPastThatIsReadElsewhere", R"(
  new_k = Identity (k)
  new_v = Identity (v)
  joined = Concat <axis = 2> (past_k, k)
  mean = ReduceMean <keepdims = 1> (past_k)
  keys = Add (joined, mean)
  values = Concat <axis = 2> (past_v, v))"},
};

TEST_F(NewRowCaches, AreNotSeenInOtherOutputs) {
  for (const OtherOutput& other : otherOutputs) {
    SCOPED_TRACE(other.name);
    std::string text = newRowText(other.past, other.text);
    text.replace(text.find("float nothing"), 13, "float two = {2.0}, float nothing");
    RecoveredModel recovered =
        valueOrThrow(recoverModel(writtenModel(text, toolkit, folder), toolkit));
    ASSERT_EQ(recovered.context->sites.size(), 1U);
    EXPECT_FALSE(recovered.context->history.hasNewRows("new_k"));
    const targets::Target* target = toolkit.targets.find("kvopt");
    const auto failures = targets::refusals(*target, recovered.context->sites, *recovered.model);
    EXPECT_TRUE(failures[0].has_value());
  }
}

/// The model with new rows for outputs where it gave them joined to the past's; how many there are.
unsigned handOutNewRows(Model& model) {
  Graph& graph = model.graph();
  unsigned count = 0;
  for (unsigned slot = 0; slot < graph.outputs().size(); ++slot) {
    Value& output = *graph.outputs()[slot];
    const Node* join = output.producer();
    if (!join || !join->is("Concat") || join->operands().size() != 2 ||
        !join->operand(0)->isGraphInput() || join->operand(1)->isGraphOutput() ||
        !join->operand(1)->producer())
      continue;
    const std::string name = output.name().str();
    graph.rename(output, graph.freshName(name + "_joined"));
    graph.rename(*join->operand(1), name);
    graph.setOutput(slot, *join->operand(1));
    ++count;
  }
  return count;
}

TEST(NewRowCorpus, DecodersComputeTheSame) {
  const auto models = sampleOf(corpusModels());
  if (models.empty())
    GTEST_SKIP() << "needs KVOPT_CORPUS";
  Toolkit toolkit;
  TemporaryFolder folder;
  unsigned changed = 0;
  for (const std::string& path : models) {
    SCOPED_TRACE(path);
    auto model = valueOrThrow(openModel(path, toolkit));
    const unsigned outputs = handOutNewRows(*model);
    if (outputs == 0)
      continue;
    const std::string file = folder.path("new_rows.onnx");
    successOrThrow(exportModel(*model, file));
    const DrivenModel before = asExported(path, toolkit);
    const DrivenModel after = asExported(file, toolkit);
    const auto found = llvm::count_if(
        after.manifest.caches, [](const ManifestCache& cache) { return cache.givesNewRows(); });
    // A cache that no attention was recognized to read is not known to be one.
    if (static_cast<unsigned>(found) != outputs)
      continue;
    ++changed;
    EquivalencePlan plan = quickVerification();
    plan.tolerance = toleranceFor(before.model->graph(), 2);
    plan = fittedPlan(plan, after.model->graph(), after.manifest);
    const VerificationReport report = valueOrThrow(verifyModels(
        *before.model, before.manifest, *after.model, after.manifest, plan, 1, toolkit));
    EXPECT_TRUE(report.equal()) << verificationSummary(report);
    EXPECT_GT(report.comparison.steps.size(), 0U);
  }
  EXPECT_GE(changed, leastInSample(25));
}

} // namespace
} // namespace kvopt
