// Decoders that were exported for one number of batch rows, tokens and earlier tokens compute the
// same for others once those are symbols, and stay as they are where that is not known.
#include "driver/forms/form_table.h"
#include "driver/rewrite/rewrite.h"
#include "support/format.h"
#include "tests/equivalence/rewritten_model.h"
#include "tests/ir/corpus.h"

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace runtime;

namespace {

/// A step's extents, or their names.
struct Written {
  std::string batch;
  std::string tokens;
  std::string past;
  std::string keys;
};

const Written symbols = {"batch", "sequence", "past", "total"};
const Written oneToken = {"1", "1", "5", "6"};
const Written fourTokens = {"2", "4", "5", "9"};

std::string replaced(std::string text, const Written& step) {
  const std::pair<const char*, const std::string*> names[] = {
      {"{B}", &step.batch}, {"{S}", &step.tokens}, {"{P}", &step.past}, {"{T}", &step.keys}};
  for (const auto& [name, value] : names)
    for (size_t at = text.find(name); at != std::string::npos; at = text.find(name))
      text.replace(at, 3, *value);
  return text;
}

/// Nodes between the inputs and the logits that exporters write in several ways.
struct Spelling {
  std::string positions; ///< make `angle`, [B, S, 16]
  std::string heads;     ///< make `q`, `k` and `v`, [B, 4, S, 4], of `hidden` [B, S, 16]
  std::string mask;      ///< make `mask`, which is added to the scores
  std::string merged;    ///< make `om`, [B, S, 16], of `o` [B, 4, S, 4]
  std::string last = "  last = Identity (hidden_2)\n";
};

std::string tableText(int rows) {
  std::string text = "0.5";
  for (int i = 1; i < rows * 16; ++i)
    text += formatted(", {}", ((i * 37) % 101 - 50) / 64.0);
  return text;
}

std::string modelText(const Spelling& spelling) {
  return R"(<ir_version: 8, opset_import: ["" : 17]>
decoder (int64[{B}, {S}] input_ids, int64[{B}, {T}] attention_mask, int64[{B}, {S}] position_ids,
         float[{B}, 4, {P}, 4] past_key, float[{B}, 4, {P}, 4] past_value)
  => (float[{B}, {S}, 10] logits, float[{B}, 4, {T}, 4] present_key, float[{B}, 4, {T}, 4] present_value)
<float[50, 16] table = {)" +
         tableText(50) + R"(}, float[48, 16] places = {)" + tableText(48) + R"(}>
{
  none = Constant <value_int = 0> ()
  one = Constant <value_int = 1> ()
  half = Constant <value_float = 0.5> ()
  visible_fill = Constant <value_float = 0.0> ()
  hidden_fill = Constant <value_float = -3.4e38> ()
  first = Constant <value_ints = [0]> ()
  second = Constant <value_ints = [1]> ()
  third = Constant <value_ints = [2]> ()
  heads_and_queries = Constant <value_ints = [1, 2]> ()
  width = Constant <value_ints = [16]> ()
  w = Slice (table, first, width, first)
  scores = Constant <value_ints = [10]> ()
  wo = Slice (w, first, scores, second)
  frequency_row = Slice (table, first, second, first)
  frequencies = Reshape (frequency_row, width)
)" + spelling.positions +
         spelling.mask + R"(
  embedded = Gather (table, input_ids)
  hidden = Add (embedded, angle)
)" + spelling.heads +
         R"(
  present_key = Concat <axis = 2> (past_key, k)
  present_value = Concat <axis = 2> (past_value, v)
  kt = Transpose <perm = [0, 1, 3, 2]> (present_key)
  product = MatMul (q, kt)
  scaled = Mul (product, half)
  masked = Add (scaled, mask)
  weights = Softmax <axis = -1> (masked)
  o = MatMul (weights, present_value)
)" + spelling.merged +
         R"(
  hidden_2 = Add (hidden, om)
)" + spelling.last +
         R"(
  logits = MatMul (last, wo)
}
)";
}

/// Angles of positions, with an axis for their factors.
const std::string angles = R"(
  positions_f = Cast <to = 1> (position_ids)
  column = Unsqueeze (positions_f, third)
  turned = Mul (column, frequencies)
  angle = Sin (turned)
)";

/// Entries of a table for positions.
const std::string learnedPositions = R"(
  angle = Gather (places, position_ids)
)";

/// What heads are made of: `qm`, and `split`, the shape of four of them.
const std::string headsOfProduct = R"(
  km = Sin (qm)
  vm = Tanh (qm)
  qr = Reshape (qm, split)
  kr = Reshape (km, split)
  vr = Reshape (vm, split)
  q = Transpose <perm = [0, 2, 1, 3]> (qr)
  k = Transpose <perm = [0, 2, 1, 3]> (kr)
  v = Transpose <perm = [0, 2, 1, 3]> (vr)
)";

/// `SHAPE` stands for the first two extents, as numbers or as a Reshape copies them.
const std::string splitHeads = R"(
  split = Constant <value_ints = [SHAPE, 4, 4]> ()
  qm = MatMul (hidden, w)
)" + headsOfProduct;
const std::string mergedHeads = R"(
  ot = Transpose <perm = [0, 2, 1, 3]> (o)
  merged = Constant <value_ints = [SHAPE, 16]> ()
  om = Reshape (ot, merged)
)";

/// Rows of all sequences as one matrix, as for Gemm.
const std::string flatHeads = R"(
  rows = Constant <value_ints = [-1, 16]> ()
  split = Constant <value_ints = [{B}, {S}, 4, 4]> ()
  flat = Reshape (hidden, rows)
  qm = MatMul (flat, w)
)" + headsOfProduct;

/// Padding alone: an export of one token needs no causal mask.
const std::string padding = R"(
  shown = Cast <to = 9> (attention_mask)
  shown_row = Unsqueeze (shown, heads_and_queries)
  mask = Where (shown_row, visible_fill, hidden_fill)
)";

/// Padding, and places of keys and queries that are compared: `LIMITS` makes scalars `past_count`
/// and `key_count`.
const std::string causal = R"(
  LIMITS
  key_places = Range (none, key_count, one)
  query_places = Range (past_count, key_count, one)
  query_column = Unsqueeze (query_places, second)
  is_earlier = LessOrEqual (key_places, query_column)
  shown = Cast <to = 9> (attention_mask)
  shown_row = Unsqueeze (shown, heads_and_queries)
  seen = And (is_earlier, shown_row)
  mask = Where (seen, visible_fill, hidden_fill)
)";
const std::string fixedLimits = R"(
  past_count = Constant <value_int = {P}> ()
  key_count = Constant <value_int = {T}> ()
)";
const std::string shapeLimits = R"(
  past_shape = Shape (past_key)
  past_list = Gather (past_shape, third)
  past_count = Squeeze (past_list, first)
  mask_shape = Shape (attention_mask)
  key_list = Gather (mask_shape, second)
  key_count = Squeeze (key_list, first)
)";

std::string with(std::string text, const std::string& name, const std::string& value) {
  for (size_t at = text.find(name); at != std::string::npos; at = text.find(name))
    text.replace(at, name.size(), value);
  return text;
}

/// The export for one step, and the model that it was made of.
std::string fixedText(const Spelling& spelling, const Written& step) {
  return replaced(with(with(modelText(spelling), "SHAPE", "{B}, {S}"), "LIMITS", fixedLimits),
                  step);
}
std::string dynamicText(Spelling spelling) {
  spelling.heads = splitHeads;
  if (spelling.mask == padding)
    spelling.mask = causal; // which one token does not need
  return replaced(with(with(modelText(spelling), "SHAPE", "0, 0"), "LIMITS", shapeLimits), symbols);
}

class FreedExtentsTest : public testing::Test {
protected:
  RewriteResult freed(const std::string& text, const std::string& target = "primitive") {
    RewriteRequest request;
    request.freeExtents = true;
    request.form = valueOrThrow(presetForm(target));
    request.verification = VerificationExtent::Quick;
    return valueOrThrow(rewrite(
        valueOrThrow(openModel(writtenModel(text, toolkit, folder), toolkit)), request, toolkit));
  }

  void expectFreed(const Spelling& spelling, const Written& step, const std::string& target,
                   VerificationPlan plan = fullVerification()) {
    SCOPED_TRACE(step.keys + " keys, --to " + target);
    expectFreed(fixedText(spelling, step), dynamicText(spelling), target, plan);
  }

  /// The same of two texts.
  void expectFreed(const std::string& fixed, const std::string& dynamic, const std::string& target,
                   const VerificationPlan& plan) {
    RewriteResult result = freed(fixed, target);
    auto* model = std::get_if<RewrittenModel>(&result);
    ASSERT_TRUE(model) << std::get<RefusedModel>(result).message;
    EXPECT_EQ(model->freed, "batch, sequence and past") << model->fixedBecause;
    ASSERT_TRUE(model->verification) << model->notVerified;
    EXPECT_TRUE(model->verification->equal()) << model->verification->summary(false);
    const DrivenModel before = asExported(writtenModel(dynamic, toolkit, folder), toolkit);
    successOrThrow(inferShapes(model->model->graph()));
    const VerificationReport report = valueOrThrow(verifyModels(
        *before.model, before.manifest, *model->model, model->manifest, plan, 1, toolkit));
    EXPECT_TRUE(report.equal()) << verificationSummary(report);
    EXPECT_GT(report.comparison.steps.size(), 30U);
  }

  /// Expects that the extents stay fixed, or those but the batch's, because of `why`.
  void expectFixed(const std::string& text, const std::string& why) {
    const RewriteResult result = freed(text);
    const auto* model = std::get_if<RewrittenModel>(&result);
    const std::string because =
        model ? model->fixedBecause : std::get<RefusedModel>(result).message;
    EXPECT_TRUE(!model || model->freed == "batch") << model->freed;
    EXPECT_NE(because.find("extent-fixed"), std::string::npos) << because;
    EXPECT_NE(because.find(why), std::string::npos) << because;
  }

  Toolkit toolkit;
  TemporaryFolder folder;
};

TEST_F(FreedExtentsTest, GiveTheResultsOfTheDynamicModel) {
  const Spelling spellings[] = {
      {angles, splitHeads, causal, mergedHeads},
      {learnedPositions, splitHeads, causal, mergedHeads},
      {angles, flatHeads, causal, mergedHeads},
  };
  for (const Spelling& spelling : spellings)
    for (const Written& step : {oneToken, fourTokens})
      for (const char* target : {"primitive", "kvopt", "onnx24"})
        expectFreed(spelling, step, target);
}

TEST_F(FreedExtentsTest, OneTokenSeesTheKeysBeforeIt) {
  VerificationPlan plan = fullVerification();
  // A token of padding averages over the keys up to its own, and in the dynamic model over all.
  for (EquivalencePlan& run : plan.runs)
    run.padding = Padding::None;
  expectFreed({angles, splitHeads, padding, mergedHeads}, oneToken, "primitive", plan);
}

/// A table with a number for each token and key; `number` says which.
std::string tableOf(const std::string& type, const std::string& leading, const Written& step,
                    llvm::function_ref<const char*(int, int)> number) {
  std::string numbers;
  for (int token = 0; token < std::stoi(step.tokens); ++token)
    for (int key = 0; key < std::stoi(step.keys); ++key)
      numbers +=
          formatted("{}{}", numbers.empty() ? "" : ", ", number(token + std::stoi(step.past), key));
  return formatted("  stored = Constant <value = {}[{}{}, {}] {{{}}}> ()\n", type, leading,
                   step.tokens, step.keys, numbers);
}

/// Places [B, 1, 1, keys, 2] of a mask's elements, and what they pick.
std::string gridOf(const Written& step) {
  std::string numbers;
  for (int row = 0; row < std::stoi(step.batch); ++row)
    for (int key = 0; key < std::stoi(step.keys); ++key)
      numbers += formatted("{}{}, {}", numbers.empty() ? "" : ", ", row, key);
  return formatted("  places_of_mask = Constant <value = int64[{}, 1, 1, {}, 2] {{{}}}> ()\n",
                   step.batch, step.keys, numbers) +
         "  shown = Cast <to = 9> (attention_mask)\n"
         "  shown_row = GatherND (shown, places_of_mask)\n";
}

const std::string paddedRow = R"(
  shown = Cast <to = 9> (attention_mask)
  shown_row = Unsqueeze (shown, heads_and_queries)
)";

TEST_F(FreedExtentsTest, TablesOfKeysAreComputedAgain) {
  const auto isSeen = [](int token, int key) { return key <= token ? "1" : "0"; };
  const auto isHidden = [](int token, int key) { return key <= token ? "0" : "1"; };
  const auto bias = [](int token, int key) { return key <= token ? "0" : "-3.4e38"; };
  const std::string seen = R"(
  seen = And (stored, shown_row)
  mask = Where (seen, visible_fill, hidden_fill)
)";
  for (const Written& step : {oneToken, fourTokens}) {
    std::vector<std::string> masks = {
        tableOf("bool", "1, 1, ", step, isSeen) + paddedRow + seen,
        tableOf("bool", "", step, isSeen) + gridOf(step) + seen,
    };
    if (step.tokens == "1")
      masks.push_back(tableOf("bool", "1, 1, ", step, isSeen) + R"(
  any_number = Constant <value_ints = [-1]> ()
  listed_places = Constant <value = int64[1, 1, 1, 6] {0, 1, 2, 3, 4, 5}> ()
  shown = Cast <to = 9> (attention_mask)
  list = Reshape (shown, any_number)
  shown_row = Gather (list, listed_places)
)" + seen);
    if (step.tokens != "1") {
      masks.push_back(tableOf("bool", "1, ", step, isHidden) + paddedRow + R"(
  unseen = Not (shown_row)
  hidden_keys = Or (unseen, stored)
  mask = Where (hidden_keys, hidden_fill, visible_fill)
)");
      masks.push_back(tableOf("float", "", step, bias) + paddedRow + R"(
  of_padding = Where (shown_row, visible_fill, hidden_fill)
  mask = Min (of_padding, stored)
)");
    }
    for (const std::string& mask : masks) {
      SCOPED_TRACE(mask);
      expectFreed(fixedText({angles, splitHeads, mask, mergedHeads}, step),
                  dynamicText({angles, splitHeads, causal, mergedHeads}), "primitive",
                  fullVerification());
    }
  }
}

TEST_F(FreedExtentsTest, TablesOfAWindowAreComputedAgain) {
  const auto isNear = [](int token, int key) {
    return key <= token && key > token - 3 ? "1" : "0";
  };
  const std::string stored = tableOf("bool", "1, 1, ", fourTokens, isNear) + paddedRow + R"(
  seen = And (stored, shown_row)
  mask = Where (seen, visible_fill, hidden_fill)
)";
  const std::string spelled = R"(
  LIMITS
  three = Constant <value_int = 3> ()
  key_places = Range (none, key_count, one)
  query_places = Range (past_count, key_count, one)
  query_column = Unsqueeze (query_places, second)
  is_earlier = LessOrEqual (key_places, query_column)
  distance = Sub (query_column, key_places)
  is_near = Less (distance, three)
)" + paddedRow + R"(
  in_window = And (is_earlier, is_near)
  seen = And (in_window, shown_row)
  mask = Where (seen, visible_fill, hidden_fill)
)";
  expectFreed(fixedText({angles, splitHeads, stored, mergedHeads}, fourTokens),
              dynamicText({angles, splitHeads, spelled, mergedHeads}), "primitive",
              fullVerification());
}

TEST_F(FreedExtentsTest, PlacesOfOneTokenMayHaveEveryAxis) {
  const std::string places = R"(
  key_places = Constant <value = int64[1, 1, 1, 6] {0, 1, 2, 3, 4, 5}> ()
  query_place = Constant <value = int64[1, 1, 1, 1] {5}> ()
  is_earlier = LessOrEqual (key_places, query_place)
)" + paddedRow + R"(
  seen = And (is_earlier, shown_row)
  mask = Where (seen, visible_fill, hidden_fill)
)";
  expectFreed(fixedText({angles, splitHeads, places, mergedHeads}, oneToken),
              dynamicText({angles, splitHeads, causal, mergedHeads}), "primitive",
              fullVerification());
}

TEST_F(FreedExtentsTest, PlacesMayBeCountedFromTheLastKey) {
  const std::string counted = R"(
  mask_shape = Shape (attention_mask)
  key_list = Gather (mask_shape, second)
  key_count = Squeeze (key_list, first)
  four = Constant <value_int = 4> ()
  first_query = Sub (key_count, four)
  key_places = Range (none, key_count, one)
  query_places = Range (first_query, key_count, one)
  query_column = Unsqueeze (query_places, second)
  is_earlier = LessOrEqual (key_places, query_column)
)" + paddedRow + R"(
  seen = And (is_earlier, shown_row)
  mask = Where (seen, visible_fill, hidden_fill)
)";
  const RewriteResult result = freed(
      fixedText({angles, splitHeads, counted, mergedHeads}, {"1", "4", "past", "\"past + 4\""}));
  const auto* model = std::get_if<RewrittenModel>(&result);
  ASSERT_TRUE(model) << std::get<RefusedModel>(result).message;
  EXPECT_EQ(model->freed, "batch and sequence") << model->fixedBecause;
  ASSERT_TRUE(model->verification) << model->notVerified;
  EXPECT_TRUE(model->verification->equal()) << model->verification->summary(false);
}

TEST_F(FreedExtentsTest, StayWhereATableIsNotThatOfEarlierKeys) {
  const auto inChunks = [](int token, int key) {
    return key <= token && key / 4 == token / 4 ? "1" : "0";
  };
  const auto ahead = [](int token, int key) { return key <= token + 1 ? "1" : "0"; };
  const auto all = [](int, int) { return "1"; };
  const auto few = [](int, int key) { return key > 2 ? "1" : "0"; };
  const std::string seen = paddedRow + R"(
  seen = And (stored, shown_row)
  mask = Where (seen, visible_fill, hidden_fill)
)";
  const auto text = [&](const Written& step, llvm::function_ref<const char*(int, int)> number) {
    return fixedText(
        {angles, splitHeads, tableOf("bool", "1, 1, ", step, number) + seen, mergedHeads}, step);
  };
  expectFixed(text(fourTokens, inChunks), "has numbers for 9 rows");
  expectFixed(text(fourTokens, ahead), "has numbers for 9 rows");
  expectFixed(text(fourTokens, all), "has numbers for 9 rows");
  expectFixed(text(oneToken, few), "has numbers for 6 rows");
  // Of two tables that say the same of one token, some other token sees less in one.
  const std::string two = with(tableOf("bool", "", oneToken, all), "stored", "of_window") +
                          tableOf("bool", "", oneToken, all) + paddedRow + R"(
  near = And (of_window, shown_row)
  seen = And (stored, near)
  mask = Where (seen, visible_fill, hidden_fill)
)";
  expectFixed(fixedText({angles, splitHeads, two, mergedHeads}, oneToken),
              "has numbers for 6 rows");
}

TEST_F(FreedExtentsTest, StayWhereThePositionIsANumber) {
  // As an exporter for one step writes position 5.
  const std::string constantPosition = R"(
  five = Constant <value_floats = [5.0]> ()
  turned = Mul (five, frequencies)
  angle = Sin (turned)
)";
  expectFixed(fixedText({constantPosition, splitHeads, padding, mergedHeads}, oneToken),
              "no input determines the positions");
  // A table that is too short for positions tells none.
  const std::string kinds = R"(
  two_rows = Constant <value_ints = [2]> ()
  kind_table = Slice (table, first, two_rows, first)
  angle = Gather (kind_table, position_ids)
)";
  expectFixed(fixedText({kinds, splitHeads, padding, mergedHeads}, oneToken),
              "no input determines the positions");
}

TEST_F(FreedExtentsTest, StayWhereKindsAreTokens) {
  // Token types that are looked up in the table of the tokens do not tell positions.
  const std::string kinds = R"(
  angle = Gather (table, position_ids)
)";
  expectFixed(fixedText({kinds, splitHeads, padding, mergedHeads}, oneToken),
              "no input determines the positions");
}

TEST_F(FreedExtentsTest, StayWhereAMaskIsStored) {
  // Keys that one query sees do not say what another one would see: a window may be behind them.
  const std::string stored = R"(
  mask = Constant <value_floats = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0]> ()
)";
  expectFixed(fixedText({angles, splitHeads, stored, mergedHeads}, oneToken),
              "has numbers for 6 rows of past + sequence");
  const std::string limit = R"(
  six = Constant <value_int = 6> ()
  all_places = Range (none, six, one)
  three = Constant <value_int = 3> ()
  is_late = GreaterOrEqual (all_places, three)
  mask = Where (is_late, visible_fill, hidden_fill)
)";
  expectFixed(fixedText({angles, splitHeads, limit, mergedHeads}, oneToken), "not provably causal");
}

TEST_F(FreedExtentsTest, StayWhereAMaskHasALimitBesideWhatTheCallerSays) {
  const std::string limited = R"(
  five = Constant <value_int = 5> ()
  six = Constant <value_int = 6> ()
  all_places = Range (none, six, one)
  is_early = LessOrEqual (all_places, five)
  limit = Where (is_early, visible_fill, hidden_fill)
  mask = Add (bias, limit)
)";
  const std::string given = R"(
  mask = Identity (bias)
)";
  const auto text = [](const std::string& mask) {
    const std::string with = fixedText({angles, splitHeads, mask, mergedHeads}, oneToken);
    const std::string inputs = "int64[1, 1] position_ids,";
    std::string changed = with;
    return changed.replace(changed.find(inputs), inputs.size(),
                           inputs + " float[1, 1, 1, 6] bias,");
  };
  expectFixed(text(limited), "not provably causal");
  const RewriteResult result = freed(text(given));
  const auto* model = std::get_if<RewrittenModel>(&result);
  ASSERT_TRUE(model) << std::get<RefusedModel>(result).message;
  EXPECT_EQ(model->freed, "batch, sequence and past") << model->fixedBecause;
}

TEST_F(FreedExtentsTest, StayWhereRowsDependOnEachOther) {
  const std::string meanOfTokens = R"(
  mean = ReduceMean <axes = [1], keepdims = 1> (hidden_2)
  last = Sub (hidden_2, mean)
)";
  const std::string meanOfBatch = R"(
  mean = ReduceMean <axes = [0], keepdims = 1> (hidden_2)
  last = Sub (hidden_2, mean)
)";
  const std::string firstToken = R"(
  token = Gather <axis = 1> (hidden_2, first)
  last = Add (hidden_2, token)
)";
  expectFixed(fixedText({angles, splitHeads, causal, mergedHeads, meanOfTokens}, oneToken),
              "it combines the tokens");
  expectFixed(fixedText({angles, splitHeads, causal, mergedHeads, firstToken}, fourTokens),
              "selects rows of sequence by constant indices");
  const RewriteResult result =
      freed(fixedText({angles, splitHeads, causal, mergedHeads, meanOfBatch}, fourTokens));
  const auto* model = std::get_if<RewrittenModel>(&result);
  ASSERT_TRUE(model) << std::get<RefusedModel>(result).message;
  EXPECT_EQ(model->freed, "sequence and past");
  EXPECT_NE(model->fixedBecause.find("batch rows"), std::string::npos) << model->fixedBecause;
}

/// Exports for one token in one batch row, after any number of earlier ones.
TEST_F(FreedExtentsTest, ExportsForOneTokenTakeSeveral) {
  if (!std::filesystem::is_directory(corpusFolder()))
    GTEST_SKIP() << "set KVOPT_CORPUS to a folder of models";
  const std::pair<const char*, const char*> models[] = {
      {"llama_gqa-ts17-eager-b1s1", "batch and sequence"}, {"gptj-ts17-None-b1s1", "sequence"}};
  for (const auto& [name, expected] : models) {
    SCOPED_TRACE(name);
    RewriteRequest request;
    request.verification = VerificationExtent::Quick;
    request.freeExtents = true;
    request.form = valueOrThrow(presetForm("kvopt"));
    auto result = valueOrThrow(
        rewrite(valueOrThrow(openModel((corpusFolder() / name / "model.onnx").string(), toolkit)),
                request, toolkit));
    auto* model = std::get_if<RewrittenModel>(&result);
    ASSERT_TRUE(model) << std::get<RefusedModel>(result).message;
    EXPECT_EQ(model->freed, expected) << model->fixedBecause;
    const DrivenModel driven{std::move(model->model), model->manifest};
    SessionOptions options;
    options.capacity = 16;
    auto inOneStep = openSession(driven, toolkit.runner->kernels(), options);
    auto oneByOne = openSession(driven, toolkit.runner->kernels(), options);
    constexpr int64_t tokens = 7;
    const StepResult all = stepAlike(*inOneStep, tokens);
    for (int64_t i = 0; i < tokens; ++i) {
      const StepResult one = stepAlike(*oneByOne, 1);
      const Tensor* logits = all.find("logits");
      ASSERT_TRUE(logits);
      EXPECT_TRUE(valueOrThrow(compareTensors(one.find("logits")->view,
                                              sliceAxis(logits->view, 1, i, i + 1), {1e-4, 0}))
                      .isWithin());
    }
  }
}

TEST_F(FreedExtentsTest, SymbolsAreNotFreedAgain) {
  const RewriteResult result = freed(dynamicText({angles, splitHeads, causal, mergedHeads}));
  const auto* refused = std::get_if<RefusedModel>(&result);
  ASSERT_TRUE(refused);
  EXPECT_NE(refused->message.find("symbols already"), std::string::npos) << refused->message;
}

} // namespace
} // namespace kvopt
