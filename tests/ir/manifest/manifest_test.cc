// Manifests: the exact JSON, and what is refused.
#include "ir/manifest/manifest.h"

#include "ir/model.h"
#include "ir/op.h"
#include "support/diagnostic.h"
#include "support/format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvopt {
using namespace ir;

namespace {

using testing::HasSubstr;

constexpr const char* exampleJson = R"({
  "schema": "kvopt/manifest/1",
  "target": "ort-gqa",
  "contract": "shared-buffer",
  "capacity": {
    "symbol": "capacity",
    "value": null
  },
  "caches": [
    {
      "layer": 0,
      "kind": "self",
      "role": "key",
      "past": "past_key_values.0.key",
      "present": "present.0.key",
      "one_buffer": true,
      "shape": [
        "batch",
        2,
        "capacity",
        16
      ],
      "sequence_axis": 2,
      "dtype": "float32",
      "policy": "fixed",
      "window": 0
    }
  ],
  "lengths": [
    {
      "input": "past_length",
      "dtype": "int64",
      "shape": [
        1
      ],
      "feed": "past_length"
    }
  ]
})";

Manifest example() {
  Manifest manifest;
  manifest.target = "ort-gqa";
  manifest.contract = CacheUpdate::InPlace;
  manifest.capacitySymbol = "capacity";
  ManifestCache cache;
  cache.past = "past_key_values.0.key";
  cache.present = "present.0.key";
  cache.storage = BufferCache();
  cache.shape = {std::string("batch"), int64_t{2}, std::string("capacity"), int64_t{16}};
  manifest.caches.push_back(cache);
  ManifestLength length;
  length.input = "past_length";
  length.shape = {int64_t{1}};
  manifest.lengths.push_back(length);
  return manifest;
}

/// Every storage with a row per token, or without rows.
std::vector<CacheStorage> everyStorage() {
  return {GrowingCache(),    GrowingCache{true}, BufferCache(),
          RingCache(),       RingCache{true},    StaticCache(),
          StaticCache{true}, BlockCache(),       BlockCache{{"block_0", "block_tail"}},
          StateCache(),      ReadOnlyCache()};
}

/// The example with one text replaced by another, as parseManifest sees it: "" when it is accepted.
std::string refusal(const std::string& from, const std::string& to) {
  std::string json = exampleJson;
  size_t place = json.find(from);
  if (place == std::string::npos) {
    ADD_FAILURE() << from << " is not in the example";
    return "";
  }
  json.replace(place, from.size(), to);
  auto manifest = parseManifest(json);
  if (manifest)
    return "";
  return takeDiagnostic(manifest.takeError()).str();
}

TEST(Manifest, IsWrittenAsDocumented) { EXPECT_EQ(example().json(), exampleJson); }

TEST(Manifest, IsReadBack) {
  auto manifest = parseManifest(exampleJson);
  ASSERT_TRUE(static_cast<bool>(manifest));
  EXPECT_EQ(manifest->json(), exampleJson);
  EXPECT_EQ(manifest->contract, CacheUpdate::InPlace);
  EXPECT_EQ(std::get<int64_t>(manifest->caches[0].shape[1]), 2);
  EXPECT_FALSE(manifest->capacityValue);
}

TEST(Manifest, EveryWordSurvives) {
  for (auto contract :
       {CacheUpdate::Grows, CacheUpdate::InPlace, CacheUpdate::State, CacheUpdate::Blocks})
    for (const CacheStorage& storage : everyStorage())
      for (auto role : {CacheRole::Key, CacheRole::Value, CacheRole::Latent, CacheRole::KeyScale,
                        CacheRole::ValueScale})
        for (auto feed :
             {LengthFeed::PastLength, LengthFeed::TotalLength, LengthFeed::PastLengthPerBatch,
              LengthFeed::TotalLengthPerBatch, LengthFeed::TotalLengthMinusOne,
              LengthFeed::TotalLengthPerBatchMinusOne}) {
          Manifest manifest = example();
          manifest.contract = contract;
          manifest.capacityValue = 4096;
          manifest.caches[0].storage = storage;
          manifest.caches[0].role = role;
          manifest.caches[0].window = 128;
          manifest.caches[0].dtype = ElementType::Float16;
          manifest.lengths[0].feed = feed;
          auto again = parseManifest(manifest.json());
          ASSERT_TRUE(static_cast<bool>(again)) << manifest.json();
          EXPECT_EQ(again->json(), manifest.json());
          EXPECT_EQ(again->contract, contract);
          EXPECT_EQ(again->caches[0].storage, storage);
          EXPECT_EQ(again->caches[0].role, role);
          EXPECT_EQ(again->caches[0].dtype, ElementType::Float16);
          EXPECT_EQ(again->lengths[0].feed, feed);
          EXPECT_EQ(again->capacityValue, 4096);
        }
}

TEST(Manifest, WhatIsOnlyReadIsCrossAndStatic) {
  Manifest manifest = example();
  EXPECT_THAT(manifest.json(), HasSubstr("\"kind\": \"self\""));
  manifest.caches[0].storage = ReadOnlyCache();
  const std::string json = manifest.json();
  EXPECT_THAT(json, HasSubstr("\"kind\": \"cross\""));
  EXPECT_THAT(json, HasSubstr("\"policy\": \"static\""));
  // The kind decides.
  for (const char* policy : {"fixed", "ring", "block", "static", "state"}) {
    std::string other = json;
    other.replace(other.find("\"static\""), 8, "\"" + std::string(policy) + "\"");
    auto read = parseManifest(other);
    ASSERT_TRUE(bool(read)) << llvm::toString(read.takeError());
    EXPECT_EQ(read->caches[0].update(), CacheUpdate::ReadOnly) << policy;
    EXPECT_EQ(read->json(), json) << policy;
  }
}

TEST(Manifest, LayoutFollowsFromTheSequenceAxis) {
  ManifestCache cache = example().caches[0];
  EXPECT_EQ(cache.layout(), CacheLayout::ofAttention());
  cache.sequenceAxis = 1;
  EXPECT_EQ(cache.layout(), CacheLayout::parse("BSHD"));
  cache.shape.pop_back();
  EXPECT_EQ(cache.layout(), CacheLayout::parse("(BH)SD"));
  cache.shape.pop_back();
  EXPECT_EQ(cache.layout(), std::nullopt);
}

TEST(Manifest, WhatOnlySomeTargetsSaySurvives) {
  Manifest manifest = example();
  manifest.caches[0].permutation = {0, 2, 1, 3};
  manifest.caches[0].holdsAttendedRows = true;
  manifest.chunkBatch = 1;
  manifest.hiddenRowsUndefined = true;
  auto read = parseManifest(manifest.json());
  ASSERT_TRUE(bool(read)) << llvm::toString(read.takeError());
  EXPECT_EQ(read->caches[0].permutation, manifest.caches[0].permutation);
  EXPECT_TRUE(read->caches[0].holdsAttendedRows);
  EXPECT_EQ(read->chunkBatch, manifest.chunkBatch);
  EXPECT_TRUE(read->hiddenRowsUndefined);
  EXPECT_EQ(read->json(), manifest.json());
  EXPECT_THAT(refusal("\"target\"", "\"hidden_rows\": \"kept\", \"target\""),
              HasSubstr("'hidden_rows'"));
  for (const char* wrong : {"[0, 2, 1]", "[0, 2, 2, 3]", "[0, 2, 1, 4]", "[0, 2, 1, -1]", "3"})
    EXPECT_THAT(refusal("\"window\": 0", std::string("\"window\": 0, \"permutation\": ") + wrong),
                HasSubstr("'permutation'"))
        << wrong;
  EXPECT_THAT(refusal("\"target\"", "\"chunk_batch\": -1, \"target\""), HasSubstr("chunk_batch"));
}

TEST(Manifest, OperatorsSurvive) {
  Manifest manifest = example();
  manifest.operators = ManifestOperators{"ai.kvopt", 1, {"InPlaceKvSdpa", "Sdpa"}};
  auto read = parseManifest(manifest.json());
  ASSERT_TRUE(bool(read)) << llvm::toString(read.takeError());
  EXPECT_EQ(read->operators, manifest.operators);
  EXPECT_EQ(read->json(), manifest.json());
  for (const char* wrong : {R"({"domain": "ai.kvopt", "version": 1})",
                            R"({"domain": "", "version": 1, "names": ["Sdpa"]})",
                            R"({"domain": "ai.kvopt", "version": 0, "names": ["Sdpa"]})", "[]"})
    EXPECT_THAT(refusal("\"target\"", std::string("\"operators\": ") + wrong + ", \"target\""),
                HasSubstr("operators"))
        << wrong;
}

TEST(Manifest, ComparisonsSurvive) {
  Manifest manifest = example();
  manifest.comparison = ManifestComparison{
      EqualityVerdict::ProvedReduced, ComparisonMeans::Check, "ab", "cd", {"a"}, {"b", ""}};
  auto read = parseManifest(manifest.json());
  ASSERT_TRUE(bool(read)) << llvm::toString(read.takeError());
  EXPECT_EQ(read->comparison, manifest.comparison);
  EXPECT_EQ(read->json(), manifest.json());
  for (const char* wrong :
       {R"({"verdict": "different", "by": "check", "before_sha256": ""})",
        R"({"verdict": "proved", "by": "someone", "before_sha256": ""})",
        R"({"verdict": "proved", "by": "check"})",
        R"({"verdict": "proved", "by": "check", "before_sha256": "", "assumptions": [1]})", "[]"})
    EXPECT_THAT(refusal("\"target\"", std::string("\"comparison\": ") + wrong + ", \"target\""),
                HasSubstr("comparison"))
        << wrong;
}

TEST(Manifest, FlagsAreBoolOrIntegers) {
  for (auto feed : {LengthFeed::HasPast, LengthFeed::NoPast})
    for (auto dtype : {ElementType::Bool, ElementType::Int8, ElementType::Int64}) {
      Manifest manifest = example();
      manifest.lengths[0].feed = feed;
      manifest.lengths[0].dtype = dtype;
      auto flag = parseManifest(manifest.json());
      ASSERT_TRUE(static_cast<bool>(flag));
      EXPECT_EQ(flag->lengths[0].feed, feed);
      EXPECT_EQ(flag->json(), manifest.json());
      manifest.lengths[0].dtype = ElementType::Float;
      auto number = parseManifest(manifest.json());
      ASSERT_FALSE(static_cast<bool>(number));
      EXPECT_THAT(takeDiagnostic(number.takeError()).str(), HasSubstr("neither bool nor"));
    }
  EXPECT_THAT(refusal("int64", "bool"), HasSubstr("integer type"));
}

TEST(Manifest, PaddingIsOnTheRightOrAnywhere) {
  Manifest manifest = example();
  EXPECT_EQ(manifest.json().find("padding"), std::string::npos);
  manifest.padsRight = true;
  auto read = parseManifest(manifest.json());
  ASSERT_TRUE(static_cast<bool>(read));
  EXPECT_TRUE(read->padsRight);
  EXPECT_THAT(refusal("\"target\"", "\"padding\": \"left\", \"target\""), HasSubstr("'padding'"));
}

TEST(Manifest, RefusesWhatItDoesNotKnow) {
  EXPECT_THAT(refusal("kvopt/manifest/1", "kvopt/manifest/2"), HasSubstr("schema"));
  EXPECT_THAT(refusal("shared-buffer", "shared"), HasSubstr("'contract' is 'shared'"));
  EXPECT_THAT(refusal("\"self\"", "\"both\""), HasSubstr("caches[0] 'kind' is 'both'"));
  EXPECT_THAT(refusal("\"key\",", "\"keys\","), HasSubstr("'role'"));
  EXPECT_THAT(refusal("\"fixed\"", "\"free\""), HasSubstr("'policy'"));
  EXPECT_THAT(refusal("\"window\": 0", "\"window\": 0, \"rows\": \"exported\""),
              HasSubstr("'rows' is 'exported', not 'attended'"));
  EXPECT_THAT(refusal("float32", "float31"), HasSubstr("not an element type"));
  EXPECT_THAT(refusal("\"feed\": \"past_length\"", "\"feed\": \"length\""),
              HasSubstr("lengths[0] 'feed'"));
  EXPECT_EQ(refusal("\"window\": 0", "\"window\": 0, \"later\": 1"), "");
}

TEST(Manifest, RefusesValuesThatMakeNoSense) {
  EXPECT_THAT(refusal("\"sequence_axis\": 2", "\"sequence_axis\": 4"), HasSubstr("4 axes"));
  EXPECT_THAT(refusal("\"sequence_axis\": 2", "\"sequence_axis\": -1"), HasSubstr("integer"));
  EXPECT_THAT(refusal("\"sequence_axis\": 2", "\"sequence_axis\": 2.5"), HasSubstr("integer"));
  EXPECT_THAT(refusal("\"window\": 0", "\"window\": 18446744073709551615"), HasSubstr("integer"));
  EXPECT_THAT(refusal("\"layer\": 0", "\"layer\": \"0\""), HasSubstr("'layer'"));
  EXPECT_THAT(refusal("\"layer\": 0,", ""), HasSubstr("has no 'layer'"));
  EXPECT_THAT(refusal("\"batch\"", "-2"), HasSubstr("extent"));
  EXPECT_THAT(refusal("\"batch\"", "\"\""), HasSubstr("extent"));
  EXPECT_THAT(refusal("\"present.0.key\"", "\"\""), HasSubstr("'present'"));
  EXPECT_THAT(refusal("\"one_buffer\": true", "\"one_buffer\": 1"), HasSubstr("'one_buffer'"));
  EXPECT_THAT(refusal("\"value\": null", "\"value\": \"x\""), HasSubstr("capacity"));
  EXPECT_THAT(refusal("\"input\": \"past_length\"", "\"input\": \"past_key_values.0.key\""),
              HasSubstr("named twice"));
  EXPECT_THAT(refusal("int64", "string"), HasSubstr("integer type"));
}

TEST(Manifest, RefusesWhatIsNoManifest) {
  for (const char* text : {"", "{", "[]", "null", "{}", "\"text\"", "\xff\xfe", "{\"schema\":1}"}) {
    auto manifest = parseManifest(text);
    ASSERT_FALSE(static_cast<bool>(manifest)) << text;
    EXPECT_THAT(takeDiagnostic(manifest.takeError()).str(), HasSubstr("manifest"));
  }
  for (const char* key : {"target", "contract", "capacity", "caches", "lengths"})
    EXPECT_THAT(refusal(std::string("\"") + key + "\":", "\"x\":"), HasSubstr(key));
  auto deep = parseManifest(std::string(100000, '['));
  ASSERT_FALSE(static_cast<bool>(deep));
  llvm::consumeError(deep.takeError());
}

TEST(Manifest, NamesThatAreNoUtf8DoNotThrow) {
  Manifest manifest = example();
  manifest.caches[0].past = "bad\xff";
  EXPECT_THAT(manifest.json(), HasSubstr("bad\xef\xbf\xbd"));
}

TEST(Manifest, OneCacheInOneBufferIsEnoughToShareBuffers) {
  Manifest manifest = example();
  for (ManifestCache& cache : manifest.caches)
    cache.storage = GrowingCache();
  EXPECT_FALSE(manifest.sharesBuffers());
  manifest.caches.back().storage = RingCache{true};
  EXPECT_TRUE(manifest.sharesBuffers());
}

TEST(Manifest, RotationsSurvive) {
  Manifest manifest = example();
  const auto readBack = [&] { return llvm::cantFail(parseManifest(manifest.json())); };
  EXPECT_FALSE(readBack().rotations);
  manifest.rotations.emplace();
  const std::optional<std::vector<ManifestRotation>> none = readBack().rotations;
  ASSERT_TRUE(none);
  EXPECT_TRUE(none->empty());
  manifest.rotations = {ManifestRotation{16, 0, false, {1.0, 0.1, 1e-5, 0.0}},
                        ManifestRotation{8, 2, true, {0.1234567890123456789, -0.25, 3e-300}}};
  manifest.caches[0].rotation = 1;
  const Manifest read = readBack();
  EXPECT_EQ(read.rotations, manifest.rotations);
  EXPECT_EQ(read.caches[0].rotation, manifest.caches[0].rotation);
  EXPECT_EQ(read.json(), manifest.json());
}

TEST(Manifest, RefusesRotationsThatFitNoRows) {
  const auto refused = [](const char* rotations, const char* rotation = "0") {
    return refusal(
        "\"window\": 0\n    }\n  ],",
        formatted("\"window\": 0, \"rotation\": {}}}], \"rotations\": {},", rotation, rotations));
  };
  constexpr const char* good =
      R"([{"width": 16, "first": 2, "pairs": "halves", "theta": [1, 0.5]}])";
  EXPECT_EQ(refused(good), "");
  EXPECT_THAT(refused(good, "1"), HasSubstr("no rotation 1"));
  EXPECT_THAT(refused(good, "-1"), HasSubstr("integer"));
  EXPECT_THAT(refused("{}"), HasSubstr("'rotations' is not a list"));
  EXPECT_THAT(refused("[]"), HasSubstr("no rotation 0"));
  EXPECT_THAT(refused("[1]"), HasSubstr("rotations[0] is not an object"));
  EXPECT_THAT(refused(R"([{"width": 16, "first": 0, "pairs": "thirds", "theta": [1]}])"),
              HasSubstr("'pairs' is 'thirds'"));
  EXPECT_THAT(refused(R"([{"width": 16, "first": 0, "pairs": "halves", "theta": ["1"]}])"),
              HasSubstr("'theta'"));
  EXPECT_THAT(refused(R"([{"width": 16, "first": 0, "pairs": "halves", "theta": [1e999]}])"),
              HasSubstr("manifest"));
  EXPECT_THAT(refused(R"([{"width": 16, "first": 0, "pairs": "halves", "theta": []}])"),
              HasSubstr("rotates 0 pairs"));
  EXPECT_THAT(refused(R"([{"width": 16, "first": 13, "pairs": "halves", "theta": [1, 2]}])"),
              HasSubstr("rotates 2 pairs from column 13"));
  EXPECT_THAT(refused(R"([{"width": 3, "first": 0, "pairs": "halves", "theta": [1, 2]}])"),
              HasSubstr("rotates 2 pairs"));
  EXPECT_THAT(
      refused(
          R"([{"width": 9223372036854775807, "first": 9223372036854775807, "pairs": "halves", "theta": [1]}])"),
      HasSubstr("rotates 1 pairs"));
  EXPECT_THAT(refused(R"([{"width": 12, "first": 0, "pairs": "halves", "theta": [1, 2]}])"),
              HasSubstr("not divided into rotated ones of 12"));
  // Without any rotation.
  EXPECT_THAT(refusal("\"window\": 0", "\"window\": 0, \"rotation\": 0"),
              HasSubstr("no rotation 0"));
}

TEST(Manifest, BlocksSurvive) {
  Manifest manifest = example();
  for (ManifestCache& cache : manifest.caches)
    cache.storage = GrowingCache();
  EXPECT_FALSE(manifest.ownsCaches());
  manifest.contract = CacheUpdate::Blocks;
  manifest.capacityValue = 70;
  manifest.blockSize = 64;
  manifest.caches[0].storage = BlockCache{{"key_block_0", "key_block_tail"}};
  EXPECT_TRUE(manifest.ownsCaches());
  EXPECT_FALSE(manifest.sharesBuffers());
  auto again = parseManifest(manifest.json());
  ASSERT_TRUE(static_cast<bool>(again)) << manifest.json();
  EXPECT_EQ(again->json(), manifest.json());
  EXPECT_EQ(again->blockSize, 64);
  EXPECT_EQ(again->caches[0].storage, manifest.caches[0].storage);

  auto problemOf = [](const Manifest& wrong) {
    auto parsed = parseManifest(wrong.json());
    return parsed ? "" : takeDiagnostic(parsed.takeError()).str();
  };
  Manifest wrong = manifest;
  wrong.blockSize = -1;
  EXPECT_THAT(problemOf(wrong), HasSubstr("block_size"));
  wrong = manifest;
  wrong.caches[0].storage = BlockCache{{"key_block_0", ""}};
  EXPECT_THAT(problemOf(wrong), HasSubstr("not a name"));
  wrong.caches[0].storage = BlockCache{{"key_block_0", "key_block_0"}};
  EXPECT_THAT(problemOf(wrong), HasSubstr("named twice"));
}

TEST(Manifest, RefusesStorageThatIsNone) {
  const auto refused = [](const std::string& keys) {
    return refusal("\"one_buffer\": true", keys);
  };
  EXPECT_THAT(refusal("\"fixed\"", "\"fixed\", \"blocks\": [\"block\"]"),
              HasSubstr("another policy"));
  for (const char* word : {"block", "state"})
    EXPECT_THAT(refusal("\"fixed\"", formatted("\"{}\"", word)), HasSubstr("do not stay in place"))
        << word;
  EXPECT_THAT(refusal("\"self\"", "\"cross\""), HasSubstr("do not stay in place"));
  EXPECT_THAT(refusal("\"fixed\"", "\"fixed\", \"present_rows\": \"new\""),
              HasSubstr("'present_rows' is 'new', but"));
  EXPECT_EQ(refused("\"one_buffer\": false, \"present_rows\": \"new\""), "");
  EXPECT_THAT(refused("\"one_buffer\": false, \"form\": \"pool\""), HasSubstr("'form' is"));
  EXPECT_THAT(refused("\"one_buffer\": true, \"form\": \"pool\""), HasSubstr("'form' is"));
  EXPECT_THAT(refused("\"one_buffer\": true, \"form\": \"row\""), HasSubstr("'form' is"));
}

/// A cache of 70 rows in blocks of 64.
Manifest exampleInBlocks() {
  Manifest manifest = example();
  manifest.contract = CacheUpdate::Blocks;
  manifest.capacityValue = 70;
  manifest.blockSize = 64;
  manifest.caches[0].storage = BlockCache{{"key_block_0", "key_block_tail"}};
  return manifest;
}

TEST(Manifest, VariantsSurvive) {
  Manifest manifest = exampleInBlocks();
  manifest.variants = {{"m.past0.onnx", 0, 0}, {"m.past1.onnx", 1, 64}, {"m.onnx", 2, 70}};
  auto again = parseManifest(manifest.json());
  ASSERT_TRUE(static_cast<bool>(again)) << manifest.json();
  EXPECT_EQ(again->json(), manifest.json());
  ASSERT_EQ(again->variants.size(), 3u);
  EXPECT_EQ(again->variants[1].file, "m.past1.onnx");
  EXPECT_EQ(again->variants[1].pastBlocks, 1);
  EXPECT_EQ(again->variants[2].pastRows, 70);

  auto problemOf = [](const Manifest& wrong) {
    auto parsed = parseManifest(wrong.json());
    return parsed ? "" : takeDiagnostic(parsed.takeError()).str();
  };
  for (const char* file : {"../m.onnx", "/etc/passwd", "a/b.onnx", "..", "a\\b.onnx"}) {
    Manifest wrong = manifest;
    wrong.variants[0].file = file;
    EXPECT_THAT(problemOf(wrong), HasSubstr("not the name of a file"));
  }
  Manifest wrong = manifest;
  wrong.variants[1].pastRows = 63;
  EXPECT_THAT(problemOf(wrong), HasSubstr("does not have 63 rows"));
  wrong = manifest;
  wrong.variants[1].pastBlocks = INT64_MAX;
  EXPECT_NE(problemOf(wrong), "");
  wrong = manifest;
  std::swap(wrong.variants[0], wrong.variants[1]);
  EXPECT_THAT(problemOf(wrong), HasSubstr("comes too late"));
  wrong = manifest;
  wrong.variants.pop_back();
  EXPECT_THAT(problemOf(wrong), HasSubstr("the last variant has 1 blocks"));
  wrong = manifest;
  wrong.contract = CacheUpdate::Grows;
  EXPECT_THAT(problemOf(wrong), HasSubstr("no blocks of a size"));
  wrong = manifest;
  wrong.capacityValue.reset();
  EXPECT_THAT(problemOf(wrong), HasSubstr("no blocks of a size"));
}

TEST(Manifest, TilesSurvive) {
  Manifest manifest = exampleInBlocks();
  manifest.variants = {{"m.onnx", 2, 70}};
  const std::string past = manifest.caches[0].past;
  ManifestTiles& tiles = manifest.tiles.emplace();
  tiles.state = ElementType::Float16;
  tiles.parts = {"m.part0.onnx", "m.part1.onnx"};
  tiles.tiles = {"m.tile0.onnx", "m.tile1.onnx", "m.tile2.onnx"};
  tiles.outputs = {"logits", "present"};
  tiles.attentions.push_back(
      {0, "q", "k", "v", "mask", "o", "m", "s", past, past, 0, 1, 2, "attended"});
  auto again = parseManifest(manifest.json());
  ASSERT_TRUE(static_cast<bool>(again)) << llvm::toString(again.takeError());
  EXPECT_EQ(again->json(), manifest.json());
  EXPECT_EQ(again->tiles, manifest.tiles);
  // Before they are written, files have no names.
  tiles.parts = {"", ""};
  EXPECT_TRUE(static_cast<bool>(parseManifest(manifest.json())));

  auto problemOf = [&](llvm::function_ref<void(Manifest&)> edit) {
    Manifest wrong = manifest;
    edit(wrong);
    auto parsed = parseManifest(wrong.json());
    return parsed ? "" : takeDiagnostic(parsed.takeError()).str();
  };
  using Edited = Manifest&;
  EXPECT_THAT(problemOf([](Edited wrong) { wrong.tiles->parts[0] = "../m.onnx"; }),
              HasSubstr("not the name of a file"));
  EXPECT_THAT(problemOf([](Edited wrong) { wrong.tiles->tiles[2] = "/m.onnx"; }),
              HasSubstr("not the name of a file"));
  EXPECT_THAT(problemOf([](Edited wrong) { wrong.tiles->attentions[0].afterPart = 1; }),
              HasSubstr("no part follows it"));
  EXPECT_THAT(problemOf([](Edited wrong) { wrong.tiles->attentions[0].afterPart = INT64_MAX; }),
              HasSubstr("no part follows it"));
  EXPECT_THAT(problemOf([](Edited wrong) { wrong.tiles->attentions[0].lastTile = 3; }),
              HasSubstr("tile 3 does not exist"));
  EXPECT_THAT(problemOf([](Edited wrong) { wrong.tiles->attentions[0].tailTile.reset(); }),
              HasSubstr("no tile for the last block"));
  EXPECT_THAT(problemOf([](Edited wrong) { wrong.tiles->attentions[0].keyCache = "other"; }),
              HasSubstr("is not the past of a cache in blocks"));
  EXPECT_THAT(problemOf([](Edited wrong) { wrong.tiles->state = ElementType::Int8; }),
              HasSubstr("int8"));
  EXPECT_THAT(problemOf([](Edited wrong) { wrong.variants.clear(); }), HasSubstr("0 variants"));
}

TEST(Manifest, IsFoundInMetadata) {
  OpRegistry registry;
  Model model(registry);
  auto none = manifestOf(model);
  ASSERT_TRUE(static_cast<bool>(none));
  EXPECT_FALSE(*none);
  Value& past = model.graph().addInput("past_key_values.0.key", TensorType(ElementType::Float));
  model.graph().addInput("past_length", TensorType::fixed(ElementType::Int64, {1}));
  Node& update = model.graph().create("Identity", {&past}, {"present.0.key"});
  model.graph().addOutput(update.result());
  model.setMetadata(manifestKey, example().json());
  auto found = manifestOf(model);
  ASSERT_TRUE(static_cast<bool>(found));
  ASSERT_TRUE(*found);
  EXPECT_EQ((*found)->json(), exampleJson);
  model.path = "some.onnx";
  model.setMetadata(manifestKey, "broken");
  auto broken = manifestOf(model);
  ASSERT_FALSE(static_cast<bool>(broken));
  EXPECT_EQ(takeDiagnostic(broken.takeError()).file, "some.onnx");
}

} // namespace
} // namespace kvopt
