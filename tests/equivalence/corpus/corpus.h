// Tests over the corpus of exported models and node tests; where there is none they skip.
#pragma once

#include "tests/ir/corpus.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace kvopt {

/// Names of the folders under `folder`, sorted; with `file`, of those that hold it.
inline std::vector<std::string> foldersWith(const std::filesystem::path& folder,
                                            const std::string& file = "") {
  std::vector<std::string> names;
  if (std::filesystem::is_directory(folder))
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (std::filesystem::exists(entry.path() / file))
        names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// Expects a table of a corpus to be that of tests/golden/`file`; of a sample of one in `oneIn`,
/// every row to be one of it.
inline void expectGolden(const std::string& table, const std::string& file,
                         size_t oneIn = sampledOneIn) {
  std::ifstream stored(std::string(KVOPT_SOURCE_DIR) + "/tests/golden/" + file);
  const std::string golden{std::istreambuf_iterator<char>(stored),
                           std::istreambuf_iterator<char>()};
  if (oneIn == 1) {
    EXPECT_EQ(table, golden) << "if that is right: bash scripts/golden.sh";
    return;
  }
  std::istringstream rows(table);
  for (std::string row; std::getline(rows, row);)
    EXPECT_NE(("\n" + golden).find("\n" + row + "\n"), std::string::npos) << row;
}

/// Models of the corpus that targets which update caches in place refuse, with the reason.
inline const std::map<std::string, std::string>& refusedInPlace() {
  // No key that every row keeps can be proved of its mask, whose fill is a mere -10000.
  static const std::map<std::string, std::string> reasons = {
      {"c_tri_gather-ts14-custom", "mask-fill-inexact"},
      {"gpt2-ts14-eager-nocache", "no-cache"},
      {"gptneox-dynamo23-sdpa-nocache", "no-cache"},
      {"llama_gqa-dynamo18-sdpa-nocache", "no-cache"},
      {"llama_gqa-ts17-eager-nocache", "no-cache"},
      {"llama_gqa-ts17-sdpa-nocache-mask", "no-cache"},
      {"qwen2-dynamo23-sdpa-nocache", "no-cache"},
  };
  return reasons;
}

class CorpusTest : public testing::Test {
protected:
  void SetUp() override {
    if (!std::filesystem::is_directory(corpusFolder()))
      GTEST_SKIP() << "set KVOPT_CORPUS to a folder of models";
  }
};

} // namespace kvopt
