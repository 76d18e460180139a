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
