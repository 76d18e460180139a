// Rings: caches of which attention reads the last rows only give the same as those that keep all.
#include "runtime/session/ring_rows.h"
#include "support/format.h"
#include "tests/equivalence/caches/decoder_text.h"
#include "tests/equivalence/rewritten_model.h"

#include <gmock/gmock.h>

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace runtime;

namespace {

struct RingCase {
  const char* name;
  const char* past; ///< type of both pasts
  /// The present `c_@` and the keys or values `a_@` [B,2,T,4], from `past_@` and the new rows
  /// `x_@` [B,S,2,4].
  const char* update;
  const char* attention; ///< attributes, and operands behind query, keys and values
  int64_t slots;
  int64_t window;
};

constexpr const char* growing = R"(
  f_@ = Transpose <perm = [0, 2, 1, 3]> (x_@)
  c_@ = Concat <axis = 2> (past_@, f_@)
  a_@ = Identity (c_@))";

const RingCase ringCases[] = {
    {"SliceOfConcat", "[B, 2, P, 4]", R"(
  f_@ = Transpose <perm = [0, 2, 1, 3]> (x_@)
  a_@ = Concat <axis = 2> (past_@, f_@)
  c_@ = Slice (a_@, last_five, end, axis_two))",
     "<scale = 0.5, causal = 1>|", 6, 0},
    {"SliceOfConcatWithAWindow", "[B, 2, P, 4]", R"(
  f_@ = Transpose <perm = [0, 2, 1, 3]> (x_@)
  a_@ = Concat <axis = 2> (past_@, f_@)
  c_@ = Slice (a_@, last_five, end, axis_two))",
     "<scale = 0.5, causal = 1, window = 6>|", 6, 6},
    {"SliceOfRowsBeforeHeads", "[B, P, 2, 4]", R"(
  j_@ = Concat <axis = 1> (past_@, x_@)
  a_@ = Transpose <perm = [0, 2, 1, 3]> (j_@)
  s_@ = Slice (j_@, last_five, short_end, axis_one)
  c_@ = Identity (s_@))",
     "<scale = 0.5, causal = 1>|", 6, 0},
    {"SliceOfTheLastRow", "[B, 2, P, 4]", R"(
  f_@ = Transpose <perm = [0, 2, 1, 3]> (x_@)
  a_@ = Concat <axis = -2> (past_@, f_@)
  c_@ = Slice (a_@, last_one, end, axis_two))",
     "<scale = 0.5, causal = 1, window = 2>|", 2, 2},
    {"SliceAndAMaskOfThePastsRows", "[B, 2, P, 4]", R"(
  f_@ = Transpose <perm = [0, 2, 1, 3]> (x_@)
  a_@ = Concat <axis = 2> (past_@, f_@)
  c_@ = Slice (a_@, last_five, end, axis_two))",
     "<scale = 0.5>|, near", 6, 4},
    {"Window", "[B, 2, P, 4]", growing, "<scale = 0.5, causal = 1, window = 7>|", 7, 7},
    {"WindowOfOne", "[B, 2, P, 4]", growing, "<scale = 0.5, causal = 1, window = 1>|", 1, 1},
    {"WindowAsAMask", "[B, 2, P, 4]", growing, "<scale = 0.5>|, near", 4, 4},
    {"WindowOfFiniteNumbers", "[B, 2, P, 4]", growing, "<scale = 0.5>|, filled", 4, 4},
};

std::string ofCache(llvm::StringRef text, char side) {
  std::string result = text.str();
  std::replace(result.begin(), result.end(), '@', side);
  return result;
}

std::string ringModelText(const RingCase& c) {
  const auto [attributes, operands] = llvm::StringRef(c.attention).split('|');
  return formatted(R"(<ir_version: 8, opset_import: ["" : 17, "ai.kvopt" : 1]>
decoder (int64[B, S] input_ids, float{0} past_k, float{0} past_v, float[1, 1, 16] table,
         float[1, 16, 16] wq, float[1, 16, 8] wk, float[1, 16, 8] wv, float[1, 16, 10] wo, int64[1] given)
  => (float[B, S, 10] logits, float[] c_k, float[] c_v)
{{
{projections}
  last_five = Constant <value_ints = [-5]> ()
  last_four = Constant <value_ints = [-4]> ()
  last_one = Constant <value_ints = [-1]> ()
  end = Constant <value_ints = [9223372036854775807]> ()
  short_end = Constant <value_ints = [2147483647]> ()
  axis_one = Constant <value_ints = [1]> ()
  axis_two = Constant <value_ints = [-2]> ()
  zero = Constant <value_int = 0> ()
  one = Constant <value_int = 1> ()
  two = Constant <value_int = 2> ()
  four = Constant <value_int = 4> ()
  past_shape = Shape (past_k)
  past = Gather (past_shape, two)
  ids_shape = Shape (input_ids)
  tokens = Gather (ids_shape, one)
  total = Add (past, tokens)
  key = Range (zero, total, one)
  query = Range (past, total, one)
  query_column = Unsqueeze (query, axis_one)
  distance = Sub (query_column, key)
  not_later = GreaterOrEqual (distance, zero)
  in_window = Less (distance, four)
  near_rows = And (not_later, in_window)
  mask_axes = Constant <value_ints = [0, 1]> ()
  near = Unsqueeze (near_rows, mask_axes)
  shown = Constant <value_float = 0.0> ()
  hidden_score = Constant <value_float = -3.4e38> ()
  filled = Where (near, shown, hidden_score)
{1}
{2}
  o = ai.kvopt.Sdpa {3} (q, a_k, a_v{4})
  ot = Transpose <perm = [0, 2, 1, 3]> (o)
  o_shape = Constant <value_ints = [0, 0, 16]> ()
  om = Reshape (ot, o_shape)
  logits = MatMul (om, wo)
}})",
                   c.past, ofCache(c.update, 'k'), ofCache(c.update, 'v'), attributes.str(),
                   operands.str(), named("projections", decoderProjections));
}

class RingCaches : public testing::Test {
protected:
  static EquivalencePlan plan() {
    EquivalencePlan plan;
    plan.prompt = 3;
    plan.chunks = {1, 5, 6, 7, 20, 2};
    plan.decodeSteps = 15;
    plan.vocabulary = 50;
    plan.tolerance = {1e-5, 0};
    return plan;
  }

  Toolkit toolkit;
  TemporaryFolder folder;
};

class SpelledRings : public RingCaches, public testing::WithParamInterface<RingCase> {
protected:
  /// That the target's rings, of so many slots more than a token sees, give what the model gives.
  void expectEqual(const std::string& target, int64_t spare) {
    const std::string path = writtenModel(ringModelText(GetParam()), toolkit, folder);
    const DrivenModel copied = raised(path, toolkit);
    const DrivenModel ring = rewritten(path, toolkit, "", target);
    ASSERT_EQ(ring.manifest.caches.size(), 2U);
    for (const ManifestCache& cache : ring.manifest.caches) {
      EXPECT_TRUE(cache.isOneBuffer());
      EXPECT_EQ(cache.update(), CacheUpdate::Ring);
      EXPECT_EQ(cache.window, GetParam().window);
      EXPECT_EQ(std::get<int64_t>(cache.shape[static_cast<size_t>(cache.sequenceAxis)]),
                GetParam().slots + spare);
    }
    EXPECT_TRUE(ring.manifest.capacitySymbol.empty());
    const VerificationReport report = valueOrThrow(verifyModels(
        *copied.model, copied.manifest, *ring.model, ring.manifest, plan(), 1, toolkit));
    EXPECT_TRUE(report.equal()) << verificationSummary(report);
    EXPECT_EQ(report.comparison.steps.size(), 22U);
    EXPECT_EQ(report.cacheBytesCopied, 0);
    for (const StepComparison& step : report.comparison.steps) {
      EXPECT_EQ(step.caches.size(), 2U);
      for (const TensorComparison& cache : step.caches) {
        EXPECT_TRUE(cache.comparison.bitExact) << step.phase << " " << cache.name;
        EXPECT_GT(cache.comparison.compared, 0);
      }
    }
  }
};

TEST_P(SpelledRings, GiveWhatAllRowsGive) {
  expectEqual("ring", 0);
  const std::string path = writtenModel(ringModelText(GetParam()), toolkit, folder);
  expectEqualBodies(rewritten(path, toolkit, "", "ring"), plan(), toolkit);
}

TEST_P(SpelledRings, GiveItInOperatorsOfOnnx) { expectEqual("onnx24-ring:20", 19); }

TEST_P(SpelledRings, GiveItWithoutASlotToSpare) {
  const std::string path = writtenModel(ringModelText(GetParam()), toolkit, folder);
  const DrivenModel copied = raised(path, toolkit);
  const DrivenModel ring = rewritten(path, toolkit, "", "onnx24-ring:1");
  EquivalencePlan singles = plan();
  singles.prompt = 1;
  singles.chunks = {};
  singles.decodeSteps = 25;
  const VerificationReport report = valueOrThrow(verifyModels(
      *copied.model, copied.manifest, *ring.model, ring.manifest, singles, 1, toolkit));
  EXPECT_TRUE(report.equal()) << verificationSummary(report);
}

/// Two halves, as with all caches of codes: without rounding, and each attention by its definition.
TEST_P(SpelledRings, GiveItInCodes) {
  const std::string path = writtenModel(ringModelText(GetParam()), toolkit, folder);
  const DrivenModel copied = raised(path, toolkit);
  for (const char* target : {"int8-ring", "int4-ring"}) {
    SCOPED_TRACE(target);
    const DrivenModel ring = rewritten(path, toolkit, "", target);
    EXPECT_EQ(ring.manifest.target, target);
    ASSERT_EQ(ring.manifest.caches.size(), 4U);
    for (const ManifestCache& cache : ring.manifest.caches) {
      EXPECT_EQ(cache.update(), CacheUpdate::Ring);
      EXPECT_EQ(std::get<int64_t>(cache.shape[static_cast<size_t>(cache.sequenceAxis)]),
                GetParam().slots);
    }
    const VerificationReport report = valueOrThrow(verifyModels(
        *copied.model, copied.manifest, *ring.model, ring.manifest, plan(), 1, toolkit));
    EXPECT_TRUE(report.equal()) << verificationSummary(report);
    EXPECT_EQ(report.cacheBytesCopied, 0);
    ASSERT_TRUE(report.quantization);
    EXPECT_EQ(report.quantization->sites, 1);
    EXPECT_TRUE(report.quantization->rowsIdentical);
    EXPECT_LT(report.quantization->siteDifference, 1e-6);
    EXPECT_GT(report.quantization->deviation.largest, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(All, SpelledRings, testing::ValuesIn(ringCases),
                         [](const testing::TestParamInfo<RingCase>& parameter) {
                           return std::string(parameter.param.name);
                         });

TEST_F(RingCaches, TakeNoMoreTokensThanTheyHaveRoomFor) {
  const DrivenModel ring = rewritten(writtenModel(ringModelText(ringCases[5]), toolkit, folder),
                                     toolkit, "", "onnx24-ring:3");
  EXPECT_EQ(ring.manifest.stepLimit, 3);
  auto session = openSession(ring, toolkit.runner->kernels(), {});
  stepAlike(*session, 3);
  EXPECT_THAT([&] { stepAlike(*session, 4); },
              testing::Throws<std::exception>(testing::Property(
                  &std::exception::what, testing::HasSubstr("takes at most 3 at a time"))));
  // An engine that does not read the manifest fails in the graph.
  Manifest unlimited = ring.manifest;
  unlimited.stepLimit = std::nullopt;
  auto unaware =
      valueOrThrow(Session::create(*ring.model, toolkit.runner->kernels(), unlimited, {}));
  EXPECT_THAT([&] { stepAlike(*unaware, 4); },
              testing::Throws<std::exception>(
                  testing::Property(&std::exception::what, testing::HasSubstr("Gather"))));
}

TEST_F(RingCaches, TakeNoMemoryForMoreTokens) {
  const DrivenModel ring =
      rewritten(writtenModel(ringModelText(ringCases[5]), toolkit, folder), toolkit, "", "ring");
  auto session = openSession(ring, toolkit.runner->kernels(), {});
  stepAlike(*session, 3);
  const int64_t bytes = session->cacheBytes();
  for (int step = 0; step < 300; ++step)
    stepAlike(*session, 1 + step % 9);
  EXPECT_EQ(session->cacheBytes(), bytes);
  // Keys and values of two heads, four numbers each.
  EXPECT_EQ(bytes, 2 * 2 * 4 * 4 * 7);
}

TEST_F(RingCaches, HoldTheWindowAfterTenThousandTokens) {
  const RingCase windowOfSix{
      "", "[B, 2, P, 4]", growing, "<scale = 0.5, causal = 1, window = 6>|", 6, 6};
  const std::string path = writtenModel(ringModelText(windowOfSix), toolkit, folder);
  const DrivenModel kept = raised(path, toolkit);
  for (const auto& [target, slots] : {std::pair("ring", 6), std::pair("onnx24-ring:20", 25)}) {
    SCOPED_TRACE(target);
    const DrivenModel ring = rewritten(path, toolkit, "", target);
    auto all = openSession(kept, toolkit.runner->kernels(), {});
    auto last = openSession(ring, toolkit.runner->kernels(), {});
    constexpr int64_t chunks[] = {1, 5, 6, 7, 20};
    for (int64_t step = 0; all->length() < 10000; ++step) {
      const int64_t count = std::min(chunks[step % 5], 10000 - all->length());
      const StepResult ours = stepAlike(*all, count);
      const StepResult theirs = stepAlike(*last, count);
      const auto compared = valueOrThrow(
          compareTensors(ours.outputs[0].tensor.view, theirs.outputs[0].tensor.view, {1e-5, 0}));
      ASSERT_TRUE(compared.isWithin()) << compared.maxAbs << " at " << all->length();
    }
    for (size_t i = 0; i < all->cacheCount(); ++i) {
      EXPECT_EQ(valueOrThrow(last->cacheRows(i)).view.shape[2], slots);
      const Tensor rows = valueOrThrow(lastRowsInOrder(last->caches(), i, 6));
      const auto compared = valueOrThrow(compareTensors(
          sliceAxis(valueOrThrow(all->cacheRows(i)).view, 2, 9994, 10000), rows.view, {1e-5, 0}));
      EXPECT_TRUE(compared.isWithin()) << compared.maxAbs;
      EXPECT_EQ(compared.compared, 6 * 2 * 4);
    }
  }
}

TEST_F(RingCaches, GoOnFromTheRowsOfAModelThatKeepsAll) {
  const std::string path = writtenModel(ringModelText(ringCases[5]), toolkit, folder);
  const DrivenModel kept = raised(path, toolkit);
  for (const auto& [target, tokens] :
       {std::pair("ring", 1), std::pair("ring", 6), std::pair("ring", 7), std::pair("ring", 8),
        std::pair("ring", 23), std::pair("onnx24-ring:3", 6), std::pair("onnx24-ring:3", 23)}) {
    SCOPED_TRACE(formatted("{} tokens, {}", tokens, target));
    const DrivenModel ring = rewritten(path, toolkit, "", target);
    auto all = openSession(kept, toolkit.runner->kernels(), {});
    auto last = openSession(ring, toolkit.runner->kernels(), {});
    stepAlike(*all, tokens);
    std::vector<NamedView> caches;
    for (size_t i = 0; i < all->cacheCount(); ++i)
      caches.push_back({all->cacheInfo(i).past, valueOrThrow(all->exportedCacheRows(i)).view});
    successOrThrow(last->seed(caches, tokens));
    for (int64_t count : {1, 1, 3, 1}) {
      const StepResult ours = stepAlike(*all, count);
      const StepResult theirs = stepAlike(*last, count);
      const auto compared = valueOrThrow(
          compareTensors(ours.outputs[0].tensor.view, theirs.outputs[0].tensor.view, {1e-5, 0}));
      EXPECT_TRUE(compared.isWithin()) << compared.maxAbs;
      EXPECT_GT(compared.compared, 0);
    }
  }
}

class CroppedRings : public RingCaches, public testing::WithParamInterface<const char*> {};

TEST_P(CroppedRings, GoBackAsLongAsNothingIsOverwritten) {
  const DrivenModel ring = rewritten(writtenModel(ringModelText(ringCases[5]), toolkit, folder),
                                     toolkit, "", GetParam());
  auto session = openSession(ring, toolkit.runner->kernels(), {});
  stepAlike(*session, 4);
  const StepResult expected = stepAlike(*session, 1);
  stepAlike(*session, 2);
  successOrThrow(session->crop(4));
  const StepResult again = stepAlike(*session, 1);
  EXPECT_TRUE(valueOrThrow(compareTensors(expected.outputs[0].tensor.view,
                                          again.outputs[0].tensor.view, {0, 0}))
                  .isWithin());
  stepAlike(*session, 5);
  llvm::Error error = session->crop(9);
  ASSERT_TRUE(static_cast<bool>(error));
  EXPECT_NE(takeDiagnostic(std::move(error)).str().find("keeps the last 7 rows only"),
            std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(All, CroppedRings, testing::Values("ring", "int8-ring", "int4-ring"),
                         [](const testing::TestParamInfo<const char*>& parameter) {
                           std::string name = parameter.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

/// A ring of codes that attention reads one row less of.
TEST_F(RingCaches, OfForgedCodesAreFound) {
  const std::string path = writtenModel(ringModelText(ringCases[5]), toolkit, folder);
  const DrivenModel copied = raised(path, toolkit);
  DrivenModel ring = rewritten(path, toolkit, "", "int8-ring");
  Node* attention = nullptr;
  for (Node& node : ring.model->graph().nodes())
    if (node.is("ai.kvopt::RingQuantizedKvSdpa"))
      attention = &node;
  ASSERT_NE(attention, nullptr);
  attention->setAttribute("window", Attribute::ofInt(6));
  const VerificationReport report = valueOrThrow(
      verifyModels(*copied.model, copied.manifest, *ring.model, ring.manifest, plan(), 1, toolkit));
  EXPECT_FALSE(report.equal());
}

struct RefusedRing {
  const char* name;
  const char* update;
  const char* valueUpdate; ///< null: as the keys'
  const char* attention;
  const char* reason;
};

const RefusedRing refusedRings[] = {
    {"OfRowsThatAreNotTheLast", R"(
  f_@ = Transpose <perm = [0, 2, 1, 3]> (x_@)
  a_@ = Concat <axis = 2> (past_@, f_@)
  c_@ = Slice (a_@, last_five, last_one, axis_two))",
     nullptr, "<scale = 0.5, causal = 1>|", "cache-not-in-place"},
    {"OfKeysAndValuesThatDiffer", R"(
  f_@ = Transpose <perm = [0, 2, 1, 3]> (x_@)
  a_@ = Concat <axis = 2> (past_@, f_@)
  c_@ = Slice (a_@, last_five, end, axis_two))",
     R"(
  f_@ = Transpose <perm = [0, 2, 1, 3]> (x_@)
  a_@ = Concat <axis = 2> (past_@, f_@)
  c_@ = Slice (a_@, last_four, end, axis_two))",
     "<scale = 0.5, causal = 1>|", "cache-not-in-place"},
    {"OfAsManyRowsAsTheInputSays", R"(
  f_@ = Transpose <perm = [0, 2, 1, 3]> (x_@)
  a_@ = Concat <axis = 2> (past_@, f_@)
  c_@ = Slice (a_@, given, end, axis_two))",
     nullptr, "<scale = 0.5, causal = 1>|", "layout-unsupported"},
    {"OfAttentionToAllRows", growing, nullptr, "<scale = 0.5, causal = 1>|", "no-window"},
};

class UnprovedRings : public RingCaches, public testing::WithParamInterface<RefusedRing> {};

TEST_P(UnprovedRings, AreRefused) {
  RingCase model{"", "[B, 2, P, 4]", GetParam().update, GetParam().attention, 0, 0};
  std::string text = ringModelText(model);
  if (GetParam().valueUpdate) {
    const std::string from = ofCache(GetParam().update, 'v');
    text.replace(text.find(from), from.size(), ofCache(GetParam().valueUpdate, 'v'));
  }
  const std::string path = writtenModel(text, toolkit, folder);
  RecoveredModel recovered = valueOrThrow(recoverModel(path, toolkit));
  const targets::Target* target = toolkit.targets.find("ring");
  ASSERT_NE(target, nullptr);
  const auto failures = targets::refusals(*target, recovered.context->sites, *recovered.model);
  ASSERT_EQ(failures.size(), 1U);
  ASSERT_TRUE(failures[0].has_value());
  EXPECT_EQ(pattern::reasonName(failures[0]->code).str(), GetParam().reason) << failures[0]->str();
}

INSTANTIATE_TEST_SUITE_P(All, UnprovedRings, testing::ValuesIn(refusedRings),
                         [](const testing::TestParamInfo<RefusedRing>& parameter) {
                           return std::string(parameter.param.name);
                         });

} // namespace
} // namespace kvopt
