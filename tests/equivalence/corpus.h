// The corpus of exported models and node tests that KVOPT_CORPUS names; without it tests skip.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace kvopt {

/// Empty when there is no corpus.
inline std::string corpusFolder() {
  const char* set = std::getenv("KVOPT_CORPUS");
  return set && std::filesystem::is_directory(set) ? set : "";
}

/// Names of the folders under `folder`, sorted; with `file`, of those that hold it.
inline std::vector<std::string> foldersWith(const std::string& folder,
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
    if (corpusFolder().empty())
      GTEST_SKIP() << "set KVOPT_CORPUS to a folder of models";
  }
};

} // namespace kvopt
