// Tests over the corpus of exported models and node tests; where there is none they skip.
#pragma once

#include "tests/ir/corpus.h"

#include <algorithm>
#include <filesystem>
#include <gtest/gtest.h>
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

class CorpusTest : public testing::Test {
protected:
  void SetUp() override {
    if (!std::filesystem::is_directory(corpusFolder()))
      GTEST_SKIP() << "set KVOPT_CORPUS to a folder of models";
  }
};

} // namespace kvopt
