// Models as the target paged writes them: what they compute, and what sessions do with their pools.
#include "ir/manifest/manifest_check.h"
#include "support/format.h"
#include "tests/equivalence/caches/decoder_text.h"
#include "tests/equivalence/rewritten_model.h"

#include <cstring>

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace runtime;

namespace {

struct PagedDecoder {
  const char* name;
  const char* past;  ///< extents of both pasts
  const char* fresh; ///< order of axes that makes new rows [B,S,2,4] those of the cache
  int axis;          ///< of the sequence
  const char* read;  ///< order of axes that makes the cache [B,2,T,4]
  const char* attributes = "";
  const char* element = "float";
};

const PagedDecoder pagedDecoders[] = {
    {"rows_in_heads", "[B, 2, P, 4]", "[0, 2, 1, 3]", 2, "[0, 1, 2, 3]"},
    {"heads_in_rows", "[B, P, 2, 4]", "[0, 1, 2, 3]", 1, "[0, 2, 1, 3]"},
    {"sequence_first", "[P, B, 2, 4]", "[1, 0, 2, 3]", 0, "[1, 2, 0, 3]"},
    {"window", "[B, 2, P, 4]", "[0, 2, 1, 3]", 2, "[0, 1, 2, 3]", ", window = 7"},
    {"softcap", "[B, 2, P, 4]", "[0, 2, 1, 3]", 2, "[0, 1, 2, 3]", ", softcap = 1.5"},
    {"half", "[B, 2, P, 4]", "[0, 2, 1, 3]", 2, "[0, 1, 2, 3]", "", "float16"},
    {"bfloat16", "[B, P, 2, 4]", "[0, 1, 2, 3]", 1, "[0, 2, 1, 3]", "", "bfloat16"},
};

void replaceAll(std::string& text, const std::string& before, const std::string& after) {
  for (size_t at = text.find(before); at != std::string::npos;
       at = text.find(before, at + after.size()))
    text.replace(at, before.size(), after);
}

/// A decoder without padding.
std::string pagedDecoderText(const PagedDecoder& c) {
  std::string text = formatted(R"(<ir_version: 8, opset_import: ["" : 17, "ai.kvopt" : 1]>
decoder (int64[B, S] input_ids, float{0} past_k, float{0} past_v, float[1, 1, 16] table,
         float[1, 16, 16] wq, float[1, 16, 8] wk, float[1, 16, 8] wv, float[1, 16, 10] wo)
  => (float[B, S, 10] logits, float[] present_k, float[] present_v)
{{
{projections}
  f_k = Transpose <perm = {1}> (x_k)
  f_v = Transpose <perm = {1}> (x_v)
  present_k = Concat <axis = {2}> (past_k, f_k)
  present_v = Concat <axis = {2}> (past_v, f_v)
  keys = Transpose <perm = {3}> (present_k)
  values = Transpose <perm = {3}> (present_v)
  o = ai.kvopt.Sdpa <scale = 0.5, causal = 1{4}> (q, keys, values)
  ot = Transpose <perm = [0, 2, 1, 3]> (o)
  o_shape = Constant <value_ints = [0, 0, 16]> ()
  om = Reshape (ot, o_shape)
  logits = MatMul (om, wo)
}})",
                               c.past, c.fresh, c.axis, c.read, c.attributes,
                               named("projections", decoderProjections));
  if (std::strcmp(c.element, "float") != 0) {
    replaceAll(text, "float[", std::string(c.element) + "[");
    replaceAll(text, "Cast <to = 1>",
               std::strcmp(c.element, "float16") == 0 ? "Cast <to = 10>" : "Cast <to = 16>");
  }
  return text;
}

class PagedTarget : public testing::TestWithParam<PagedDecoder> {
protected:
  Toolkit toolkit;
  TemporaryFolder folder;
};

TEST_P(PagedTarget, EqualsGrowingCaches) {
  const std::string path = writtenModel(pagedDecoderText(GetParam()), toolkit, folder);
  const DrivenModel growing = raised(path, toolkit);
  for (const char* target : {"paged:16", "paged:32"}) {
    SCOPED_TRACE(target);
    for (const char* options : {"", "capacity=40"}) {
      SCOPED_TRACE(options);
      const DrivenModel paged = rewritten(path, toolkit, options, target);
      ASSERT_EQ(paged.manifest.caches.size(), 2U);
      for (const ManifestCache& cache : paged.manifest.caches)
        EXPECT_TRUE(cache.isPool() && cache.isOneBuffer()) << cache.past;
      for (const Node& node : paged.model->graph().nodes())
        EXPECT_NE(node.op().domain(), "ai.kvopt") << node.describe();
      for (int64_t batch : {1, 3}) {
        SCOPED_TRACE(batch);
        EquivalencePlan plan;
        plan.batch = batch;
        plan.prompt = 15;
        plan.chunks = {3, 1, 5};
        plan.decodeSteps = 9;
        plan.vocabulary = 50;
        plan.tolerance = {0, 0};
        const VerificationReport report = valueOrThrow(verifyModels(
            *growing.model, growing.manifest, *paged.model, paged.manifest, plan, 1, toolkit));
        EXPECT_TRUE(report.equal()) << verificationSummary(report);
        EXPECT_EQ(report.comparison.steps.size(), 13U);
        EXPECT_EQ(report.cacheBytesCopied, 0);
        const int64_t bytes = *byteWidth(paged.manifest.caches[0].dtype);
        EXPECT_EQ(report.cacheBytesWritten, 2 * batch * 2 * 33 * 4 * bytes);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, PagedTarget, testing::ValuesIn(pagedDecoders),
                         [](const testing::TestParamInfo<PagedDecoder>& parameter) {
                           return std::string(parameter.param.name);
                         });

class PagedSessions : public testing::Test {
protected:
  PagedSessions()
      : path(writtenModel(pagedDecoderText(pagedDecoders[0]), toolkit, folder)),
        paged(rewritten(path, toolkit, "", "paged:16")) {}

  std::unique_ptr<Session> open(int64_t batch, int64_t capacity = 40,
                                SessionOptions::Mode mode = SessionOptions::Mode::AsManifest) {
    SessionOptions options;
    options.batch = batch;
    options.capacity = capacity;
    options.mode = mode;
    return openSession(paged, toolkit.runner->kernels(), options);
  }

  static StepResult feed(Session& session, const std::vector<std::vector<int64_t>>& tokens) {
    DecoderStep step;
    step.pastLength = session.length();
    step.tokens = tokens;
    // Weights are inputs that are made up alike for every session.
    return valueOrThrow(stepDecoder(session, step));
  }

  static void expectRow(const StepResult& found, int64_t row, const StepResult& wanted,
                        int64_t other) {
    const TensorView a = found.outputs[0].tensor.view;
    const TensorView b = wanted.outputs[0].tensor.view;
    const auto compared = valueOrThrow(
        compareTensors(sliceAxis(a, 0, row, row + 1), sliceAxis(b, 0, other, other + 1), {0, 0}));
    EXPECT_TRUE(compared.bitExact) << compared.maxAbs;
    EXPECT_GT(compared.compared, 0);
  }

  Toolkit toolkit;
  TemporaryFolder folder;
  std::string path;
  DrivenModel paged;
};

/// Room is a number of whole blocks.
TEST_F(PagedSessions, RoundTheirCapacityUpToBlocks) {
  const auto session = open(2, 40);
  EXPECT_EQ(session->capacity(), 48);
  EXPECT_EQ(session->cacheBuffer(0).shape, (Extents{2, 48, 2, 4}));
  const DrivenModel fixed = rewritten(path, toolkit, "capacity=40", "paged:16");
  EXPECT_EQ(fixed.manifest.capacityValue, 48);
}

TEST_F(PagedSessions, TakeRowsOfDifferentLengths) {
  const auto both = open(2);
  ASSERT_TRUE(both->hasLengthPerRow());
  feed(*both, {{1, 2, 3, 4, 5}, {6, 7, 8, 9, 1}});
  successOrThrow(both->cropRows({5, 2}));
  const StepResult together = feed(*both, {{3, 4}, {5, 6}});
  const std::vector<std::vector<int64_t>> alone[] = {{{1, 2, 3, 4, 5}}, {{6, 7}}};
  const std::vector<std::vector<int64_t>> next[] = {{{3, 4}}, {{5, 6}}};
  for (int64_t row : {0, 1}) {
    SCOPED_TRACE(row);
    const auto one = open(1);
    feed(*one, alone[row]);
    expectRow(together, row, feed(*one, next[row]), 0);
  }
}

TEST_F(PagedSessions, GrowByWholeBlocks) {
  const auto growing = open(2, 16, SessionOptions::Mode::Stateful);
  const auto fixed = open(2, 160);
  for (int64_t i = 0; i < 11; ++i) {
    std::vector<std::vector<int64_t>> tokens(2);
    for (int64_t j = 0; j < 13; ++j) {
      tokens[0].push_back((i * 13 + j) % 50);
      tokens[1].push_back((i * 5 + j * 3) % 50);
    }
    const StepResult found = feed(*growing, tokens);
    const StepResult wanted = feed(*fixed, tokens);
    for (int64_t row : {0, 1})
      expectRow(found, row, wanted, row);
    EXPECT_EQ(growing->capacity() % 16, 0);
  }
  EXPECT_GE(growing->capacity(), 143);
  EXPECT_GT(growing->statistics().cacheReallocations, 0);
}

TEST_F(PagedSessions, ForkReorderSaveAndLoad) {
  const auto session = open(2);
  feed(*session, {{1, 2, 3}, {4, 5, 6}});
  const auto fork = valueOrThrow(session->fork());
  const StepResult first = feed(*session, {{7}, {8}});
  const StepResult second = feed(*fork, {{7}, {8}});
  for (int64_t row : {0, 1})
    expectRow(first, row, second, row);
  const std::string file = folder.path("session.kv");
  successOrThrow(fork->save(file));
  const auto loaded = open(2);
  successOrThrow(loaded->load(file));
  successOrThrow(session->reorder({1, 1}));
  successOrThrow(loaded->reorder({1, 0}));
  const StepResult swapped = feed(*session, {{9}, {3}});
  const StepResult again = feed(*loaded, {{9}, {2}});
  expectRow(swapped, 0, again, 0);
  successOrThrow(loaded->freeze());
  successOrThrow(loaded->thaw());
  successOrThrow(session->reorder({0, 0, 1}));
  const StepResult three = feed(*session, {{5}, {5}, {5}});
  expectRow(three, 0, feed(*loaded, {{5}, {5}}), 0);
  expectRow(three, 0, three, 1);
}

/// A pool that a manifest describes wrongly is an error before anything runs.
TEST_F(PagedSessions, RefuseManifestsThatDoNotFit) {
  const std::string json = paged.manifest.json();
  ASSERT_TRUE(static_cast<bool>(parseManifest(json)));
  const auto expectRefused = [&](const std::string& before, const std::string& after,
                                 const char* text) {
    SCOPED_TRACE(after);
    std::string changed = json;
    replaceAll(changed, before, after);
    ASSERT_NE(changed, json);
    llvm::Expected<Manifest> parsed = parseManifest(changed);
    ASSERT_FALSE(static_cast<bool>(parsed));
    const std::string message = llvm::toString(parsed.takeError());
    EXPECT_NE(message.find(text), std::string::npos) << message;
  };
  expectRefused("\"form\": \"pool\"", "\"form\": \"puddle\"", "'form' is 'puddle', not 'pool'");
  expectRefused("\"one_buffer\": true", "\"one_buffer\": false", "'form' is 'pool', but");
  expectRefused("\"feed\": \"block_table\"", "\"feed\": \"past_length\"",
                "0 inputs are fed a block table");
  expectRefused("  \"block_size\": 16,\n", "", "no 'block_size'");
  expectRefused("\"value\": null", "\"value\": 40", "not a multiple");
  expectRefused("\"form\": \"pool\",", "", "1 inputs are fed a block table");
  Manifest larger = paged.manifest;
  larger.blockSize = 32;
  const std::string contradiction = llvm::toString(checkManifest(larger, paged.model->graph()));
  EXPECT_NE(contradiction.find("axis 1 has extent 16, not 32"), std::string::npos) << contradiction;
}

} // namespace
} // namespace kvopt
