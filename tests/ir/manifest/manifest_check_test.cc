// A manifest in a model's metadata must describe the model.
#include "ir/manifest/manifest_check.h"
#include "tests/ir/text/text_fixture.h"

namespace kvopt {
using namespace ir;

namespace {

constexpr const char* drivenDecoder = R"(<ir_version: 8, opset_import: ["" : 18]>
g (int64[B, S] input_ids, float[B, 2, 32, 16] past, int64[1] past_length, float[N] free)
  => (float[B, 2, 32, 16] present, float[B, S, 8] logits)
{
  present = Relu(past)
  logits = Cast <to = 1>(input_ids)
})";

/// A manifest that the decoder's graph agrees with.
Manifest fitting() {
  Manifest manifest;
  manifest.target = "kvopt";
  manifest.contract = CacheUpdate::InPlace;
  manifest.capacitySymbol = "capacity";
  manifest.capacityValue = 32;
  ManifestCache cache;
  cache.past = "past";
  cache.present = "present";
  cache.storage = BufferCache();
  cache.shape = {std::string("batch"), int64_t{2}, std::string("capacity"), int64_t{16}};
  manifest.caches.push_back(cache);
  ManifestLength length;
  length.input = "past_length";
  length.shape = {int64_t{1}};
  manifest.lengths.push_back(length);
  ManifestInput input;
  input.input = "free";
  input.dtype = ElementType::Float;
  input.shape = {std::string("batch")};
  manifest.inputs.push_back(input);
  return manifest;
}

/// What is said of the fitting manifest after `change`; "" where it still fits.
template <class Change> std::string refusalAfter(Change&& change) {
  auto model = readOrFail(drivenDecoder);
  Manifest manifest = fitting();
  change(manifest);
  model->setMetadata(manifestKey, manifest.json());
  auto read = manifestOf(*model);
  return read ? "" : takeDiagnostic(read.takeError()).str();
}

template <class Change> void expectRefusedAfter(Change&& change, const std::string& part) {
  const std::string said = refusalAfter(change);
  EXPECT_NE(said.find(part), std::string::npos) << "'" << said << "' instead of " << part;
}

TEST(ManifestCheckTest, AcceptsWhatTheGraphSays) {
  EXPECT_EQ(refusalAfter([](Manifest&) {}), "");
}

TEST(ManifestCheckTest, MayFixWhatTheGraphLeavesOpen) {
  EXPECT_EQ(refusalAfter([](Manifest& manifest) { manifest.inputs[0].shape = {int64_t{7}}; }), "");
}

TEST(ManifestCheckTest, CachesAreInputsAndOutputs) {
  expectRefusedAfter([](Manifest& manifest) { manifest.caches[0].past = "nothing"; },
                     "value 'nothing': the manifest contradicts");
  expectRefusedAfter([](Manifest& manifest) { manifest.caches[0].past = "logits"; },
                     "there is no such input");
  expectRefusedAfter([](Manifest& manifest) { manifest.caches[0].present = "nothing"; },
                     "there is no such output");
  expectRefusedAfter([](Manifest& manifest) { manifest.caches[0].present = "past"; },
                     "there is no such output");
}

TEST(ManifestCheckTest, CachesHaveTheTypesOfTheGraph) {
  expectRefusedAfter([](Manifest& manifest) { manifest.caches[0].dtype = ElementType::Float16; },
                     "element type");
  expectRefusedAfter([](Manifest& manifest) { manifest.caches[0].shape.pop_back(); },
                     "it has 4 axes, not 3");
  expectRefusedAfter([](Manifest& manifest) { manifest.caches[0].shape[1] = int64_t{3}; },
                     "axis 1 has extent 2, not 3");
  expectRefusedAfter([](Manifest& manifest) { manifest.caches[0].present = "logits"; }, "axes");
}

TEST(ManifestCheckTest, TheCapacityIsThatOfTheBuffers) {
  expectRefusedAfter([](Manifest& manifest) { manifest.capacityValue = 1; },
                     "it has 32 rows, but the capacity is 1");
  expectRefusedAfter([](Manifest& manifest) { manifest.caches[0].shape[2] = int64_t{1}; },
                     "axis 2 has extent 32, not 1");
}

TEST(ManifestCheckTest, CachesFitIntoMemory) {
  expectRefusedAfter([](Manifest& manifest) { manifest.capacityValue = INT64_MAX; },
                     "does not fit into memory");
  expectRefusedAfter([](Manifest& manifest) { (manifest.caches[0].shape[0] = int64_t{1} << 46); },
                     "does not fit into memory");
}

TEST(ManifestCheckTest, LengthsAndInputsExist) {
  expectRefusedAfter([](Manifest& manifest) { manifest.lengths[0].input = "nothing"; },
                     "there is no such input");
  expectRefusedAfter([](Manifest& manifest) { manifest.lengths[0].dtype = ElementType::Int32; },
                     "element type");
  expectRefusedAfter([](Manifest& manifest) { manifest.lengths[0].shape = {int64_t{2}}; },
                     "axis 0 has extent 1, not 2");
  expectRefusedAfter([](Manifest& manifest) { manifest.inputs[0].input = "present"; },
                     "there is no such input");
  expectRefusedAfter([](Manifest& manifest) { manifest.inputs[0].dtype = ElementType::Int64; },
                     "element type");
}

TEST(ManifestCheckTest, BlocksAreInputs) {
  const auto inBlocks = [](Manifest& manifest, std::vector<std::string> blocks) {
    manifest.contract = CacheUpdate::Blocks;
    manifest.blockSize = 32;
    manifest.caches[0].past = "cache";
    manifest.caches[0].storage = BlockCache{std::move(blocks)};
  };
  EXPECT_EQ(refusalAfter([&](Manifest& manifest) { inBlocks(manifest, {"past"}); }), "");
  EXPECT_NE(refusalAfter([&](Manifest& manifest) {
              inBlocks(manifest, {"past", "block_1"});
            }).find("value 'block_1'"),
            std::string::npos);
}

TEST(ManifestCheckTest, AnInputIsNamedOnce) {
  const std::string twice = "the input is named twice";
  for (const char* name : {"past", "past_length"}) {
    expectRefusedAfter([&](Manifest& m) { m.inputs.front().input = name; }, twice);
    expectRefusedAfter([&](Manifest& m) { m.unpadded = {name}; }, twice);
    expectRefusedAfter([&](Manifest& m) { m.reorder = name; }, twice);
    expectRefusedAfter(
        [&](Manifest& m) {
          m.lengths.push_back(m.lengths.front());
          m.lengths.back().input = name;
        },
        twice);
  }
  expectRefusedAfter([](Manifest& m) { m.unpadded = {"input_ids", "input_ids"}; }, twice);
  expectRefusedAfter(
      [](Manifest& m) {
        m.unpadded = {"input_ids"};
        m.reorder = "input_ids";
      },
      twice);
  EXPECT_EQ(refusalAfter([](Manifest& m) { m.unpadded = {"input_ids"}; }), "");
}

/// Keys and values of two layers, in one shape. The first layer's are overwritten or extended by
/// `update`, whose results are `a` and `b`; the second layer's by ScatterND.
std::string refusalOfPairs(const std::string& update, llvm::function_ref<void(Manifest&)> change) {
  auto model = readOrFail(R"(<ir_version: 10, opset_import: ["" : 24, "ai.kvopt" : 1,
 "com.microsoft" : 1]>
g (float[1, 2, S, 16] q, float[1, 2, S, 16] fresh, int64[1] past_length, int64[N, 1] rows,
   float[N, 2, 32, 16] updates, int32[1] lengths, int32 total, float[1, S, 32] packed,
   float[1, 2, 32, 16] p0, float[1, 2, 32, 16] p1, float[1, 2, 32, 16] p2)
  => (a, b, c)
<int64[4] same = {0, 0, 0, 0}>
{
)" + update + R"(
  c = ScatterND (p2, rows, updates)
})");
  Manifest manifest;
  manifest.target = "kvopt";
  manifest.contract = CacheUpdate::InPlace;
  manifest.capacitySymbol = "capacity";
  manifest.capacityValue = 32;
  for (const auto& [past, present] : {std::pair("p0", "a"), {"p1", "b"}, {"p2", "c"}}) {
    ManifestCache cache;
    cache.layer = static_cast<int64_t>(manifest.caches.size());
    cache.past = past;
    cache.present = present;
    cache.storage = BufferCache();
    cache.shape = {std::string("batch"), int64_t{2}, std::string("capacity"), int64_t{16}};
    manifest.caches.push_back(cache);
  }
  change(manifest);
  llvm::Error error = checkManifest(manifest, model->graph());
  return error ? takeDiagnostic(std::move(error)).str() : "";
}

TEST(ManifestCheckTest, NewRowsOfAPastAreInItsPresent) {
  const std::vector<std::string> updates = {
      "  o, a, b = ai.kvopt.InPlaceKvSdpa (q, fresh, fresh, p0, p1, past_length)",
      "  v = Reshape (p0, same)\n"
      "  o, w, b = ai.kvopt.InPlaceKvSdpa (q, fresh, fresh, v, p1, past_length)\n"
      "  a = Reshape (w, same)",
      "  a = TensorScatter <axis = 2> (p0, fresh, past_length)\n"
      "  b = TensorScatter <axis = 2> (p1, fresh, past_length)",
      "  a = ai.kvopt.AppendRows (p0, fresh, past_length)\n"
      "  b = ai.kvopt.AppendRows (p1, fresh, past_length)",
      "  o, a, b = com.microsoft.GroupQueryAttention <num_heads = 2, kv_num_heads = 2>"
      " (packed, packed, packed, p0, p1, lengths, total)",
      // Another layer reads the same past.
      "  o, a, b = com.microsoft.GroupQueryAttention <num_heads = 2, kv_num_heads = 2>"
      " (packed, packed, packed, p0, p1, lengths, total)\n"
      "  o1, a1, b1 = com.microsoft.GroupQueryAttention <num_heads = 2, kv_num_heads = 2>"
      " (packed, packed, packed, p0, p1, lengths, total)",
  };
  for (const std::string& update : updates) {
    SCOPED_TRACE(update);
    EXPECT_EQ(refusalOfPairs(update, [](Manifest&) {}), "");
    const auto refused = [&](const char* past, const char* outputs,
                             llvm::function_ref<void(Manifest&)> change) {
      const std::string said = refusalOfPairs(update, change);
      EXPECT_NE(said.find(past), std::string::npos) << said;
      EXPECT_NE(said.find(outputs), std::string::npos) << said;
    };
    refused("value 'p2'", "its new rows are in output 'c', not in 'a'",
            [](Manifest& m) { std::swap(m.caches[0].past, m.caches[2].past); });
    refused("value 'p0'", "its new rows are in output 'a', not in 'c'",
            [](Manifest& m) { std::swap(m.caches[0].present, m.caches[2].present); });
  }
}

TEST(ManifestCheckTest, APastMayBeReadForOtherOutputs) {
  // Nothing says how the present follows from the past.
  EXPECT_EQ(
      refusalOfPairs("  a = Add (p0, p1)\n  b = Relu (p1)",
                     [](Manifest& m) { std::swap(m.caches[0].present, m.caches[1].present); }),
      "");
  // An output that is no cache is computed from a past, which is only read.
  EXPECT_EQ(refusalOfPairs("  a = ScatterND (p0, rows, updates)\n  b = Relu (p1)",
                           [](Manifest& m) {
                             m.caches[0].storage = StaticCache();
                             m.caches[0].present = "b";
                             m.caches.erase(m.caches.begin() + 1);
                           }),
            "");
  // A state is replaced as a whole.
  EXPECT_EQ(refusalOfPairs("  a = ScatterND (p0, rows, updates)\n"
                           "  b = ScatterND (p1, rows, updates)",
                           [](Manifest& m) {
                             m.caches[0].storage = m.caches[1].storage = StateCache();
                             std::swap(m.caches[0].present, m.caches[1].present);
                           }),
            "");
}

TEST(ManifestCheckTest, ScalesBelongToCodes) {
  constexpr const char* quantized = R"(<ir_version: 8, opset_import: ["" : 18]>
g (int8[B, 2, 32, 16] past, float[B, 2, 32, 1] scale) => (present, present_scale)
{
  present = Identity (past)
  present_scale = Identity (scale)
})";
  const auto refusal = [&](llvm::function_ref<void(Manifest&)> change) {
    auto model = readOrFail(quantized);
    Manifest manifest = fitting();
    manifest.lengths.clear();
    manifest.inputs.clear();
    ManifestCache& codes = manifest.caches.front();
    codes.dtype = ElementType::Int8;
    ManifestCache scales = codes;
    scales.role = CacheRole::KeyScale;
    scales.past = "scale";
    scales.present = "present_scale";
    scales.dtype = ElementType::Float;
    scales.shape.back() = int64_t{1};
    manifest.caches.push_back(scales);
    change(manifest);
    model->setMetadata(manifestKey, manifest.json());
    auto read = manifestOf(*model);
    return read ? "" : takeDiagnostic(read.takeError()).str();
  };
  EXPECT_EQ(refusal([](Manifest&) {}), "");
  for (const std::string& said :
       {refusal([](Manifest& m) { m.caches.back().layer = 1; }),
        refusal([](Manifest& m) { m.caches.back().role = CacheRole::ValueScale; }),
        refusal([](Manifest& m) { m.caches.erase(m.caches.begin()); })})
    EXPECT_NE(said.find("no cache of layer"), std::string::npos) << said;
  const std::string said = refusal([](Manifest& m) { m.caches.back().storage = GrowingCache(); });
  EXPECT_NE(said.find("is not kept like it"), std::string::npos) << said;
}

} // namespace
} // namespace kvopt
