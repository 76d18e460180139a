// What inspect says of the corpus, against the descriptions that its models come with. The models
// that still deviate are listed exactly in tests/golden/corpus_deviations.txt.
#include "tests/cli/cli_fixture.h"
#include "tests/ir/corpus.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

namespace kvopt {
using namespace cli;

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

Json readJson(const fs::path& path) {
  std::ifstream stream(path);
  return Json::parse(stream, nullptr, /*allow_exceptions=*/false);
}

/// One attention block as a model's description has it.
struct Block {
  bool isCross = false;
  bool isCached = true;
  Json queryHeads;
  Json keyHeads;
  Json keyWidth;
  Json valueWidth;
  double softcap = 0;
  int64_t window = 0;
};

/// Layer by layer; a decoder with an encoder has self, then cross attention in each. A merged file
/// has all layers twice, once for each branch.
std::vector<Block> blocksOf(const Json& described) {
  // Some descriptions leave facts out; those are null.
  Json facts = described;
  std::string kind = facts["kind"];
  auto layers = facts["layers"].get<size_t>();
  bool hasCross = kind.rfind("encdec", 0) == 0;
  std::vector<Block> blocks;
  auto count = facts["attention_blocks"].get<size_t>();
  for (size_t i = 0; i < count; ++i) {
    size_t layer = hasCross ? i / 2 : i % layers;
    auto perLayer = [&](const char* key) {
      return facts[key].is_array() ? facts[key][layer] : Json();
    };
    Block block;
    block.isCross = hasCross && i % 2 == 1;
    // The prompt's branch of a merged file reads no past.
    block.isCached = kind.rfind("nocache", 0) != 0 && kind != "cached-merged-if";
    block.queryHeads = facts["heads"];
    block.keyHeads = perLayer("kv_heads");
    block.keyWidth = perLayer("k_head_dim");
    block.valueWidth = perLayer("v_head_dim");
    block.softcap = facts["attn_softcap"].is_number() ? facts["attn_softcap"].get<double>() : 0;
    if (facts["sliding_window"].is_number()) {
      // Without types of layers all slide, but for GPT-Neo, whose default alternates.
      bool slides = facts["layer_types"].is_array()
                        ? facts["layer_types"][layer] == "sliding_attention"
                        : facts["family"] != "gptneo" || layer % 2 == 1;
      block.window = slides ? facts["sliding_window"].get<int64_t>() : 0;
    }
    blocks.push_back(block);
  }
  return blocks;
}

/// How a site differs from its block, a phrase each.
std::vector<std::string> differences(const Json& site, const Block& block) {
  if (site["status"] != "matched")
    return {"missed, " + site["reason"].get<std::string>()};
  std::vector<std::string> result;
  auto compare = [&](const char* key, const Json& expected) {
    if (!expected.is_null() && site[key] != expected)
      result.push_back(std::string(key) + " " + site[key].dump() + ", not " + expected.dump());
  };
  compare("q_heads", block.queryHeads);
  compare("kv_heads", block.keyHeads);
  compare("k_head_dim", block.keyWidth);
  compare("v_head_dim", block.valueWidth);
  if (block.isCross)
    compare("kind", "cross");
  else if (block.isCached)
    compare("kind", "self");
  else if (site["kind"] != "self")
    compare("kind", "none");
  if (!block.isCross) {
    compare("causal", true);
    compare("window", block.window);
  }
  if (std::abs(site["softcap"].get<double>() - block.softcap) > 1e-5)
    result.push_back("softcap " + site["softcap"].dump());
  return result;
}

/// `model: what (L0, L1)` for every difference.
std::vector<std::string> deviationsOf(const std::string& name, const Json& sites,
                                      const std::vector<Block>& blocks) {
  if (sites.size() != blocks.size())
    return {name + ": " + std::to_string(sites.size()) + " sites, not " +
            std::to_string(blocks.size())};
  std::vector<std::pair<std::string, std::string>> found; // what, layers
  for (size_t i = 0; i < blocks.size(); ++i)
    for (const std::string& what : differences(sites[i], blocks[i])) {
      std::string id = sites[i]["id"].get<std::string>();
      auto known = std::find_if(found.begin(), found.end(),
                                [&](const auto& entry) { return entry.first == what; });
      if (known == found.end())
        found.emplace_back(what, id);
      else
        known->second += ", " + id;
    }
  std::vector<std::string> lines;
  for (const auto& [what, layers] : found)
    lines.push_back(name + ": " + what + " (" + layers + ")");
  return lines;
}

std::vector<std::string> linesOf(const fs::path& path) {
  std::vector<std::string> lines;
  std::ifstream stream(path);
  for (std::string line; std::getline(stream, line);)
    lines.push_back(line);
  return lines;
}

TEST(CorpusFacts, SitesAreWhatTheModelsDescriptionsSay) {
  if (!fs::is_directory(corpusFolder()))
    GTEST_SKIP() << "no models; set KVOPT_CORPUS";
  // The second corpus is in the neighboring folder.
  std::vector<std::string> all;
  for (const fs::path& corpus : {corpusFolder(), corpusFolder() / ".." / "corpus2"})
    if (fs::is_directory(corpus))
      for (const auto& entry : fs::directory_iterator(corpus))
        if (fs::is_regular_file(entry.path() / "model.onnx"))
          all.push_back(entry.path().string());
  std::sort(all.begin(), all.end());
  const std::vector<std::string> sample = sampleOf(all);
  const std::vector<fs::path> folders(sample.begin(), sample.end());
  ASSERT_GT(folders.size(), 2u);

  std::vector<std::string> arguments{"inspect"};
  for (const fs::path& folder : folders)
    arguments.push_back((folder / "model.onnx").string());
  Json json = runJson(arguments);
  ASSERT_EQ(json["models"].size(), folders.size());
  std::vector<std::string> deviations;
  for (size_t i = 0; i < folders.size(); ++i) {
    const std::string name = folders[i].filename().string();
    Json facts = readJson(folders[i] / "model.json");
    ASSERT_TRUE(facts.is_object()) << name;
    for (std::string& line : deviationsOf(name, json["models"][i]["sites"], blocksOf(facts)))
      deviations.push_back(std::move(line));
  }

  if (const char* output = std::getenv("KVOPT_GOLDEN_OUTPUT")) {
    std::ofstream stream(output);
    for (const std::string& line : deviations)
      stream << line << '\n';
    return;
  }
  std::vector<std::string> known =
      linesOf(fs::path(KVOPT_SOURCE_DIR) / "tests/golden/corpus_deviations.txt");
  std::set<std::string> before(known.begin(), known.end());
  std::set<std::string> after(deviations.begin(), deviations.end());
  for (const std::string& line : after)
    EXPECT_TRUE(before.count(line)) << "new: " << line;
  for (const std::string& line : before)
    EXPECT_TRUE(sampledOneIn != 1 || after.count(line))
        << "mended, so regenerate with scripts/golden.sh: " << line;
}

TEST(CorpusFacts, NoAttentionIsFoundWhereThereIsNone) {
  if (!fs::is_directory(corpusFolder() / "onnx_node_tests"))
    GTEST_SKIP() << "no models; set KVOPT_CORPUS";
  std::vector<std::string> arguments{"inspect"};
  std::vector<bool> isAttention;
  for (const auto& entry : fs::directory_iterator(corpusFolder() / "onnx_node_tests"))
    if (fs::is_regular_file(entry.path() / "model.onnx")) {
      arguments.push_back((entry.path() / "model.onnx").string());
      std::string name = entry.path().filename().string();
      isAttention.push_back(name.rfind("test_attention", 0) == 0);
    }
  ASSERT_GT(isAttention.size(), 1u);
  Json json = runJson(arguments);
  ASSERT_EQ(json["models"].size(), isAttention.size());
  for (size_t i = 0; i < isAttention.size(); ++i)
    EXPECT_LE(json["models"][i]["sites"].size(), isAttention[i] ? 1u : 0u) << arguments[i + 1];
}

} // namespace
} // namespace kvopt
