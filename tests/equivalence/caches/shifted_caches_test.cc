// Sessions that drop tokens from their middle: the rows of one layer are then those of a session
// that has never seen them.
#include "driver/synthetic/decoder.h"
#include "support/string_ends.h"
#include "tests/equivalence/caches/rotated_decoder_text.h"
#include "tests/equivalence/rewritten_model.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace pattern;
using namespace runtime;

namespace {

constexpr int64_t shiftCapacity = 48;

/// Token `i` of a batch row.
int64_t shiftToken(int64_t row, int64_t i) { return (i * 11 + row * 5 + 3) % 47; }

StepResult feedTokens(Session& session, llvm::ArrayRef<int64_t> places) {
  DecoderStep step;
  step.pastLength = session.length();
  for (int64_t row = 0; row < session.batch(); ++row) {
    step.tokens.emplace_back();
    for (int64_t place : places)
      step.tokens.back().push_back(shiftToken(row, place));
  }
  return valueOrThrow(stepDecoder(session, step));
}

std::vector<int64_t> placesFrom(int64_t begin, int64_t end) {
  std::vector<int64_t> places;
  for (int64_t i = begin; i < end; ++i)
    places.push_back(i);
  return places;
}

/// Drops places as Session::shift drops tokens.
void dropPlaces(std::vector<int64_t>& places, int64_t kept, int64_t dropped) {
  places.erase(places.begin() + kept, places.begin() + kept + dropped);
}

std::unique_ptr<Session> shiftSession(const DrivenModel& driven, const Toolkit& toolkit,
                                      int64_t batch) {
  SessionOptions options;
  options.batch = batch;
  options.capacity = shiftCapacity;
  return openSession(driven, toolkit.runner->kernels(), options);
}

void expectClose(const TensorView& a, const TensorView& b, double tolerance,
                 const std::string& what) {
  const auto compared = valueOrThrow(compareTensors(a, b, {tolerance, 0}));
  EXPECT_TRUE(compared.isWithin()) << what << " differs by " << compared.maxAbs;
  EXPECT_GT(compared.compared, 0) << what;
}

/// Expects that both sessions hold the same and compute the same of what comes next.
void expectSameContext(Session& a, Session& b, int64_t next, double tolerance,
                       double cacheTolerance) {
  ASSERT_EQ(a.length(), b.length());
  for (size_t i = 0; i < a.cacheCount(); ++i)
    if (a.cacheInfo(i).dtype != ElementType::Int8 && !isScale(a.cacheInfo(i).role))
      expectClose(valueOrThrow(a.cacheRows(i)).view, valueOrThrow(b.cacheRows(i)).view,
                  cacheTolerance, a.cacheInfo(i).past);
  for (int64_t count : {1, 2}) {
    const StepResult fromA = feedTokens(a, placesFrom(next, next + count));
    const StepResult fromB = feedTokens(b, placesFrom(next, next + count));
    ASSERT_FALSE(fromA.outputs.empty());
    for (const NamedTensor& output : fromA.outputs)
      expectClose(output.tensor.view, fromB.find(output.name)->view, tolerance, output.name);
    next += count;
  }
}

struct ShiftTolerance {
  double outputs = 1e-3;
  double caches = 1e-3;
};

/// Expects that shifted sessions of one layer are as sessions that were given what stays.
void expectShiftsLikePrefill(const DrivenModel& driven, const Toolkit& toolkit,
                             ShiftTolerance tolerance = {}) {
  ASSERT_TRUE(driven.manifest.rotations.has_value());
  struct Drop {
    int64_t kept, dropped;
  };
  const std::vector<std::vector<Drop>> plans = {{{0, 5}},         {{4, 7}},  {{1, 1}},
                                                {{4, 6}, {2, 3}}, {{3, 14}}, {{17, 3}}};
  for (int64_t batch : {1, 2})
    for (const std::vector<Drop>& plan : plans) {
      SCOPED_TRACE(formatted("batch {}, keeps {}, drops {}", batch, plan[0].kept, plan[0].dropped));
      auto shifted = shiftSession(driven, toolkit, batch);
      std::vector<int64_t> places = placesFrom(0, 20);
      feedTokens(*shifted, placesFrom(0, 12));
      for (int64_t i = 12; i < 20; ++i)
        feedTokens(*shifted, {i});
      for (const Drop& drop : plan) {
        successOrThrow(shifted->shift(drop.kept, drop.dropped));
        dropPlaces(places, drop.kept, drop.dropped);
      }
      ASSERT_EQ(shifted->length(), static_cast<int64_t>(places.size()));
      auto fresh = shiftSession(driven, toolkit, batch);
      feedTokens(*fresh, places);
      expectSameContext(*shifted, *fresh, 20, tolerance.outputs, tolerance.caches);
    }
}

class ShiftedCaches : public testing::Test {
protected:
  std::string written(const RotationSpelling& spelling, const RotatedDecoderParts& parts = {}) {
    return writtenModel(rotatedDecoderText(spelling, parts), toolkit, folder);
  }
  /// Why the context of the model cannot be shifted; empty where it can.
  std::string refusal(const std::string& path) {
    const RecoveredModel recovered = valueOrThrow(recoverModel(path, toolkit));
    if (contextRotationsOf(recovered))
      return "";
    return recovered.context->shiftFailure->str();
  }

  Toolkit toolkit;
  TemporaryFolder folder;
};

TEST_F(ShiftedCaches, AreThoseOfAPrefillInEverySpelling) {
  for (const RotationSpelling& spelling : rotationSpellings()) {
    SCOPED_TRACE(spelling.name);
    const std::string path = written(spelling);
    EXPECT_EQ(refusal(path), "");
    const DrivenModel exported = asExported(path, toolkit);
    expectShiftsLikePrefill(exported, toolkit);
    ASSERT_TRUE(exported.manifest.rotations);
    EXPECT_EQ(exported.manifest.rotations->size(),
              spelling.name == std::string("NotRotated") ? 0U : 1U);
    expectShiftsLikePrefill(rewritten(path, toolkit, "capacity=48"), toolkit);
  }
}

/// Layouts of caches, of which the first letters are those of the keys.
std::vector<std::pair<const char*, RotatedDecoderParts>> shiftLayouts() {
  const std::string rowsFirst = R"(
  k_t = Transpose <perm = [0, 2, 1, 3]> (new_k)
  v_t = Transpose <perm = [0, 2, 1, 3]> (new_v)
  all_k = Concat <axis = 1> (past_k, k_t)
  all_v = Concat <axis = 1> (past_v, v_t)
  keys = Transpose <perm = [0, 2, 1, 3]> (all_k)
  values = Transpose <perm = [0, 2, 1, 3]> (all_v)
)";
  const std::string sequenceFirst = R"(
  k_t = Transpose <perm = [2, 0, 1, 3]> (new_k)
  v_t = Transpose <perm = [2, 0, 1, 3]> (new_v)
  all_k = Concat <axis = 0> (past_k, k_t)
  all_v = Concat <axis = 0> (past_v, v_t)
  keys = Transpose <perm = [1, 2, 0, 3]> (all_k)
  values = Transpose <perm = [1, 2, 0, 3]> (all_v)
)";
  const std::string columnsFirst = R"(
  k_t = Transpose <perm = [0, 1, 3, 2]> (new_k)
  all_k = Concat <axis = 3> (past_k, k_t)
  all_v = Concat <axis = 2> (past_v, new_v)
  keys = Transpose <perm = [0, 1, 3, 2]> (all_k)
  values = Identity (all_v)
)";
  const std::string oneAxis = R"(
  flat = Constant <value_ints = [0, 0, 16]> ()
  apart = Constant <value_ints = [0, 0, 2, 8]> ()
  k_t = Transpose <perm = [0, 2, 1, 3]> (new_k)
  v_t = Transpose <perm = [0, 2, 1, 3]> (new_v)
  k_flat = Reshape (k_t, flat)
  v_flat = Reshape (v_t, flat)
  all_k = Concat <axis = 1> (past_k, k_flat)
  all_v = Concat <axis = 1> (past_v, v_flat)
  k_apart = Reshape (all_k, apart)
  v_apart = Reshape (all_v, apart)
  keys = Transpose <perm = [0, 2, 1, 3]> (k_apart)
  values = Transpose <perm = [0, 2, 1, 3]> (v_apart)
)";
  return {
      {"BHSD", {}},
      {"BSHD",
       {.pastKey = "float[B, P, 2, 8]", .pastValue = "float[B, P, 2, 8]", .joins = rowsFirst}},
      {"SBHD",
       {.pastKey = "float[P, B, 2, 8]", .pastValue = "float[P, B, 2, 8]", .joins = sequenceFirst}},
      {"BHDS", {.pastKey = "float[B, 2, 8, P]", .joins = columnsFirst}},
      {"BS(HD)", {.pastKey = "float[B, P, 16]", .pastValue = "float[B, P, 16]", .joins = oneAxis}}};
}

TEST_F(ShiftedCaches, AreThoseOfAPrefillInEveryLayout) {
  const std::vector<RotationSpelling> spellings = rotationSpellings();
  for (const char* name : {"HalvesBySlice", "NeighborsByStrides", "LastColumns", "NotRotated"})
    for (const auto& [layout, parts] : shiftLayouts()) {
      SCOPED_TRACE(formatted("{} {}", name, layout));
      const auto spelling = llvm::find_if(
          spellings, [&](const RotationSpelling& each) { return each.name == std::string(name); });
      ASSERT_NE(spelling, spellings.end());
      const std::string path = written(*spelling, parts);
      EXPECT_EQ(refusal(path), "");
      expectShiftsLikePrefill(asExported(path, toolkit), toolkit);
      expectShiftsLikePrefill(rewritten(path, toolkit, "capacity=48"), toolkit);
    }
}

/// A change to a decoder with rotated halves that its context cannot be shifted with.
struct ShiftNearMiss {
  const char* name;
  const char* reason;
  RotationSpelling spelling;
  RotatedDecoderParts parts = {};
};

std::vector<ShiftNearMiss> shiftNearMisses() {
  const std::string ids = "int64[B, S] position_ids, ";
  const RotationSpelling halves{"", rotationWaves, turnedHalves + sumOfProducts};
  const RotationSpelling plain{"", "", "  @r = Identity (@)\n", ids};
  std::string positions;
  for (int i = 0; i < 64 * 16; ++i)
    positions += formatted("{}{}", i == 0 ? "" : ", ", (i * 7 % 32) / 64.0);
  RotationSpelling learned = plain;
  learned.constants = "float[64, 16] learned = {" + positions + "}, ";
  const RotatedDecoderParts added{.inner = R"(
  rows_of_places = Gather (learned, position_ids)
  inner = Add (hidden, rows_of_places)
)"};
  RotationSpelling oneRowOff = halves;
  oneRowOff.common = R"(
  cos_r = Gather (cos_table, position_ids)
  sin_r = Gather (sin_table, position_ids)
  cos = Unsqueeze (cos_r, l1)
  sin = Unsqueeze (sin_r, l1)
)";
  const std::string sines = waveTable(64, 8, true, 4);
  oneRowOff.constants = "float[64, 8] cos_table = {" + waveTable(64, 8, false, 4) +
                        "}, float[64, 8] sin_table = {" + sines.substr(0, sines.rfind(',')) +
                        ", 0.9}, ";
  RotationSpelling dynamicFrequencies = halves;
  dynamicFrequencies.common = R"(
  past_extents = Shape (past_k)
  past_length = Gather (past_extents, i2)
  past_f = Cast <to = 1> (past_length)
  limit = Constant <value_float = 8.0> ()
  ratio = Div (past_f, limit)
  one = Constant <value_float = 1.0> ()
  growth = Max (ratio, one)
  scaled = Div (frequencies, growth)
  positions_f = Cast <to = 1> (position_ids)
  positions_row = Unsqueeze (positions_f, l1)
  angles_t = MatMul (scaled, positions_row)
  angles = Transpose <perm = [0, 2, 1]> (angles_t)
  both = Concat <axis = -1> (angles, angles)
  cos_r = Cos (both)
  sin_r = Sin (both)
  cos = Unsqueeze (cos_r, l1)
  sin = Unsqueeze (sin_r, l1)
)";
  RotationSpelling switched = dynamicFrequencies;
  switched.common.replace(switched.common.find("  limit ="),
                          switched.common.find("  positions_f") - switched.common.find("  limit ="),
                          R"(  limit = Constant <value_float = 8.0> ()
  is_long = Greater (past_f, limit)
  scaled = Where (is_long, slow, frequencies)
)");
  switched.constants = "float[1, 4, 1] slow = {0.5, 0.25, 0.125, 0.0625}, ";
  RotationSpelling narrowAngles = halves;
  narrowAngles.common = R"(
  positions_h = Cast <to = 10> (position_ids)
  positions_f = Cast <to = 1> (positions_h)
  positions_row = Unsqueeze (positions_f, l1)
  angles_t = MatMul (frequencies, positions_row)
  angles = Transpose <perm = [0, 2, 1]> (angles_t)
  both = Concat <axis = -1> (angles, angles)
  cos_r = Cos (both)
  sin_r = Sin (both)
  cos = Unsqueeze (cos_r, l1)
  sin = Unsqueeze (sin_r, l1)
)";
  RotationSpelling squared = halves;
  squared.common = replacedAll(halves.common, '@', "");
  squared.common.replace(squared.common.find("positions_row = Unsqueeze (positions_f, l1)"), 43,
                         "squares = Mul (positions_f, positions_f)\n"
                         "  positions_row = Unsqueeze (squares, l1)");
  RotationSpelling twoCosines = halves;
  twoCosines.rotation = turnedHalves + R"(
  @straight = Mul (@, cos)
  @across = Mul (@turned, cos)
  @r = Add (@straight, @across)
)";
  RotationSpelling notTurned = halves;
  notTurned.rotation = R"(
  @lo = Slice (@, l0, l4, l3)
  @hi = Slice (@, l4, l8, l3)
  @turned = Concat <axis = -1> (@hi, @lo)
)" + sumOfProducts;
  RotationSpelling threeAxes = halves;
  threeAxes.inputs = "int64[B, S] position_ids, int64[B, S] rows_of_image, ";
  threeAxes.common = R"(
  places_f = Cast <to = 1> (position_ids)
  rows_f = Cast <to = 1> (rows_of_image)
  places_c = Unsqueeze (places_f, l2)
  rows_c = Unsqueeze (rows_f, l2)
  of_places = Mul (places_c, few)
  of_rows = Mul (rows_c, few)
  angles = Concat <axis = -1> (of_places, of_rows)
  both = Concat <axis = -1> (angles, angles)
  cos_r = Cos (both)
  sin_r = Sin (both)
  cos = Unsqueeze (cos_r, l1)
  sin = Unsqueeze (sin_r, l1)
)";
  threeAxes.constants = "float[2] few = {1.0, 0.25}, ";
  RotationSpelling given = halves;
  given.inputs = "float[B, 1, S, 8] cos, float[B, 1, S, 8] sin, int64[B, S] position_ids, ";
  given.common = "";
  return {
      {"CosinesThatAreInputs", "rotation-unknown", given},
      {"LearnedPositions", "position-absolute", learned, added},
      {"QueriesThatAreNotRotated",
       "position-absolute",
       halves,
       {.queries = "  new_q = Identity (q)\n"}},
      {"KeysThatAreNotRotated", "position-absolute", halves, {.keys = "  new_k = Identity (k)\n"}},
      {"QueriesAtTwiceTheAngle", "position-absolute", halves, {.queries = R"(
  cos_2 = Mul (cos, cos)
  sin_2 = Mul (sin, sin)
  both_2 = Add (both, both)
  cos_q = Cos (both_2)
  sin_q = Sin (both_2)
  cos_qu = Unsqueeze (cos_q, l1)
  sin_qu = Unsqueeze (sin_q, l1)
  q_straight = Mul (q, cos_qu)
  q_across = Mul (qturned, sin_qu)
  new_q = Add (q_straight, q_across)
)"}},
      {"ValuesThatAreRotated", "rotation-unknown", halves, {.values = R"(
  v_lo = Slice (v, l0, l4, l3)
  v_hi = Slice (v, l4, l8, l3)
  v_neg = Neg (v_hi)
  v_turned = Concat <axis = -1> (v_neg, v_lo)
  v_straight = Mul (v, cos)
  v_across = Mul (v_turned, sin)
  new_v = Add (v_straight, v_across)
)"}},
      {"QueriesScaledByPosition", "rotation-unknown", halves, {.queries = R"(
  positions_1 = Add (position_ids, i1)
  positions_1f = Cast <to = 1> (positions_1)
  logarithms = Log (positions_1f)
  per_row = Unsqueeze (logarithms, far_axes)
  new_q = Mul (qr, per_row)
)"}},
      {"KeysNormalizedAfterRotation", "position-absolute", halves, {.keys = R"(
  k_squares = Mul (kr, kr)
  k_mean = ReduceMean <axes = [-1]> (k_squares)
  k_root = Sqrt (k_mean)
  new_k = Div (kr, k_root)
)"}},
      {"ATableWithOneOtherEntry", "rotation-unknown", oneRowOff},
      {"FrequenciesThatDependOnTheLength", "rotation-unknown", dynamicFrequencies},
      {"FrequenciesThatSwitchWithTheLength", "rotation-unknown", switched},
      {"PositionsInSixteenBits", "rotation-unknown", narrowAngles},
      {"AnglesOfSquares", "rotation-unknown", squared},
      {"TwoCosines", "rotation-unknown", twoCosines},
      {"ReflectionsInsteadOfRotations", "rotation-unknown", notTurned},
      {"PositionsOfTwoInputs", "rotation-unknown", threeAxes},
      {"AMaskOfAbsolutePositions", "position-absolute", halves, {.attention = R"(
  places_of_bias = Cast <to = 1> (position_ids)
  bias = Unsqueeze (places_of_bias, bias_axes)
  bias_t = Expand (bias, bias_shape)
  o = ai.kvopt.Sdpa <scale = 0.5, causal = 1> (new_q, keys, values, bias_t)
)"}},
  };
}

TEST_F(ShiftedCaches, AreRefusedWherePositionsAreNotRelative) {
  for (ShiftNearMiss miss : shiftNearMisses()) {
    SCOPED_TRACE(miss.name);
    miss.spelling.constants += "int64[2] far_axes = {1, 3}, int64[2] bias_axes = {1, 3}, "
                               "int64[4] bias_shape = {1, 1, 1, 1}, ";
    const std::string path = written(miss.spelling, miss.parts);
    EXPECT_TRUE(startsWith(refusal(path), miss.reason)) << refusal(path);
    const DrivenModel exported = asExported(path, toolkit);
    EXPECT_FALSE(exported.manifest.rotations);
    auto session = shiftSession(exported, toolkit, 1);
    feedTokens(*session, placesFrom(0, 6));
    llvm::Error error = session->shift(1, 2);
    ASSERT_TRUE(static_cast<bool>(error));
    EXPECT_NE(takeDiagnostic(std::move(error)).str().find("the manifest does not say"),
              std::string::npos);
    EXPECT_EQ(session->length(), 6);
  }
}

/// A generated decoder of one layer.
struct ShiftedDecoder {
  const char* name;
  DecoderSpec spec;
};

DecoderSpec shiftedSpec(DecoderKind kind, DecoderSpelling spelling,
                        ElementType real = ElementType::Float) {
  DecoderSpec spec;
  spec.kind = kind;
  spec.spelling = spelling;
  spec.real = real;
  spec.layers = 1;
  spec.hidden = 32;
  spec.heads = 4;
  spec.vocabulary = 64;
  spec.maxPositions = shiftCapacity;
  return spec;
}

class ShiftedDecoders : public ShiftedCaches {
protected:
  std::string generated(const DecoderSpec& spec) {
    const auto model = generateDecoder(toolkit.ops, valueOrThrow(resolved(spec)));
    successOrThrow(inferShapes(model->graph()));
    std::string path = folder.path("generated.onnx");
    successOrThrow(exportModel(*model, path));
    return path;
  }
};

TEST_F(ShiftedDecoders, OfEverySpellingAndType) {
  for (DecoderSpelling spelling :
       {DecoderSpelling::TorchScript, DecoderSpelling::Dynamo, DecoderSpelling::Attention,
        DecoderSpelling::GroupQueryAttention})
    for (ElementType real : {ElementType::Float, ElementType::Float16, ElementType::BFloat16}) {
      SCOPED_TRACE(formatted("spelling {}, {}", static_cast<int>(spelling), onnxName(real)));
      const std::string path = generated(shiftedSpec(DecoderKind::Llama, spelling, real));
      EXPECT_EQ(refusal(path), "");
      // Units in the last place of numbers around 4, which rows and scores are.
      const double ulp = real == ElementType::Float     ? 0x1p-21
                         : real == ElementType::Float16 ? 0x1p-8
                                                        : 0x1p-5;
      const ShiftTolerance tolerance{16 * ulp, 4 * ulp};
      expectShiftsLikePrefill(asExported(path, toolkit), toolkit, tolerance);
      for (const char* target : {"kvopt", "primitive"}) {
        SCOPED_TRACE(target);
        expectShiftsLikePrefill(rewritten(path, toolkit, "capacity=48", target), toolkit,
                                tolerance);
      }
    }
}

TEST_F(ShiftedDecoders, OfEveryTarget) {
  const std::string path = generated(shiftedSpec(DecoderKind::Llama, DecoderSpelling::Dynamo));
  for (const char* target : {"kvopt", "onnx23", "onnx24", "ort-gqa", "primitive"}) {
    SCOPED_TRACE(target);
    expectShiftsLikePrefill(rewritten(path, toolkit, "capacity=48", target), toolkit);
  }
  // Rows of int8 are quantized again: half a code more of rows below 4.
  expectShiftsLikePrefill(rewritten(path, toolkit, "capacity=48", "int8"), toolkit, {0.1, 0.1});
  for (const char* target : {"blocks:4", "blocks-plain:4"}) {
    SCOPED_TRACE(target);
    const DrivenModel driven = rewritten(path, toolkit, "capacity=48", target);
    EXPECT_TRUE(driven.manifest.rotations);
    auto session = shiftSession(driven, toolkit, 1);
    feedTokens(*session, placesFrom(0, 9));
    llvm::Error error = session->shift(0, 4);
    ASSERT_TRUE(static_cast<bool>(error));
    EXPECT_NE(takeDiagnostic(std::move(error)).str().find("in blocks"), std::string::npos);
    EXPECT_EQ(session->length(), 9);
    feedTokens(*session, {9});
  }
}

TEST_F(ShiftedDecoders, WithWindows) {
  DecoderSpec spec = shiftedSpec(DecoderKind::Window, DecoderSpelling::Dynamo);
  spec.window = 6;
  const std::string path = generated(spec);
  EXPECT_EQ(refusal(path), "");
  expectShiftsLikePrefill(asExported(path, toolkit), toolkit);
  expectShiftsLikePrefill(rewritten(path, toolkit, "capacity=48"), toolkit);
  // A ring drops rows by itself.
  const DrivenModel ring = rewritten(path, toolkit, "", "ring");
  auto session = shiftSession(ring, toolkit, 1);
  feedTokens(*session, placesFrom(0, 9));
  llvm::Error error = session->shift(0, 4);
  ASSERT_TRUE(static_cast<bool>(error));
  EXPECT_NE(takeDiagnostic(std::move(error)).str().find("is a ring"), std::string::npos);
}

TEST_F(ShiftedDecoders, WithLatentRows) {
  for (DecoderKind kind : {DecoderKind::Mla, DecoderKind::MlaLatent}) {
    const std::string path = generated(shiftedSpec(kind, DecoderSpelling::Dynamo));
    EXPECT_EQ(refusal(path), "");
    const DrivenModel exported = asExported(path, toolkit);
    ASSERT_TRUE(exported.manifest.rotations);
    EXPECT_EQ(exported.manifest.rotations->size(), 1U);
    expectShiftsLikePrefill(exported, toolkit);
    const DrivenModel latent =
        rewritten(path, toolkit, "capacity=48", kind == DecoderKind::Mla ? "latent" : "kvopt");
    ASSERT_TRUE(latent.manifest.rotations);
    ASSERT_EQ(latent.manifest.rotations->size(), 1U);
    EXPECT_GT(latent.manifest.rotations->front().first, 0);
    expectShiftsLikePrefill(latent, toolkit);
  }
}

TEST_F(ShiftedDecoders, WithCachesOfFixedExtents) {
  DecoderSpec spec = shiftedSpec(DecoderKind::Llama, DecoderSpelling::Dynamo);
  spec.cache = DecoderCache::Static;
  const std::string path = generated(spec);
  EXPECT_EQ(refusal(path), "");
  const auto expectMoved = [&](const DrivenModel& driven) {
    ASSERT_TRUE(driven.manifest.rotations);
    auto shifted = shiftSession(driven, toolkit, 2);
    feedTokens(*shifted, placesFrom(0, 14));
    successOrThrow(shifted->shift(3, 5));
    std::vector<int64_t> places = placesFrom(0, 14);
    dropPlaces(places, 3, 5);
    auto fresh = shiftSession(driven, toolkit, 2);
    feedTokens(*fresh, places);
    expectSameContext(*shifted, *fresh, 14, 1e-3, 1e-3);
  };
  expectMoved(asExported(path, toolkit));
  expectMoved(rewritten(path, toolkit));
}

TEST_F(ShiftedDecoders, OfTwoBranches) {
  for (DecoderSpelling spelling : {DecoderSpelling::TorchScript, DecoderSpelling::Dynamo}) {
    DecoderSpec spec = shiftedSpec(DecoderKind::Llama, spelling);
    spec.merged = true;
    const std::string path = generated(spec);
    EXPECT_EQ(refusal(path), "");
    expectShiftsLikePrefill(asExported(path, toolkit), toolkit);
    expectShiftsLikePrefill(rewritten(path, toolkit, "capacity=48"), toolkit);
  }
}

TEST_F(ShiftedDecoders, OfOtherPositionsAreRefused) {
  EXPECT_TRUE(
      startsWith(refusal(generated(shiftedSpec(DecoderKind::PackedQkv, DecoderSpelling::Dynamo))),
                 "position-absolute"));
}

/// The first layer of models of several: its rows do not depend on the dropped tokens.
class ShiftedShippedModels : public ShippedModelTest {};

TEST_P(ShiftedShippedModels, HaveTheFirstLayerOfAPrefill) {
  const bool isLearned = GetParam().name == std::string("gpt2-dynamo18-eager");
  for (const char* target : {"", "kvopt"}) {
    const DrivenModel driven = *target == 0 ? asExported(path(), toolkit)
                                            : rewritten(path(), toolkit, "capacity=48", target);
    ASSERT_EQ(driven.manifest.rotations.has_value(), !isLearned);
    if (isLearned)
      continue;
    auto shifted = shiftSession(driven, toolkit, 2);
    feedTokens(*shifted, placesFrom(0, 20));
    successOrThrow(shifted->shift(4, 8));
    std::vector<int64_t> places = placesFrom(0, 20);
    dropPlaces(places, 4, 8);
    auto fresh = shiftSession(driven, toolkit, 2);
    feedTokens(*fresh, places);
    int seen = 0;
    for (size_t i = 0; i < shifted->cacheCount(); ++i)
      if (shifted->cacheInfo(i).layer == 0) {
        expectClose(valueOrThrow(shifted->cacheRows(i)).view,
                    valueOrThrow(fresh->cacheRows(i)).view, 1e-3, shifted->cacheInfo(i).past);
        ++seen;
      }
    EXPECT_EQ(seen, 2);
    feedTokens(*shifted, {20});
  }
}

INSTANTIATE_TEST_SUITE_P(Shipped, ShiftedShippedModels, shippedModels(), shippedModelName);

} // namespace
} // namespace kvopt
