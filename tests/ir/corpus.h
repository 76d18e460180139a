// Where the corpus of exported models is: the folder that KVOPT_CORPUS names, or one beside the
// project.
#pragma once

#include "tests/sanitized.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <iostream>
#include <string>
#include <vector>

namespace kvopt {

inline std::filesystem::path corpusFolder() {
  if (const char* set = std::getenv("KVOPT_CORPUS"))
    return set;
  return std::filesystem::path(KVOPT_SOURCE_DIR) / ".." / "shared" / "corpus";
}

/// Every model under the corpus, sorted; empty where there is no corpus.
inline std::vector<std::string> corpusModels() {
  std::vector<std::string> models;
  if (std::filesystem::is_directory(corpusFolder()))
    for (const auto& entry : std::filesystem::recursive_directory_iterator(corpusFolder()))
      if (entry.path().extension() == ".onnx")
        models.push_back(entry.path().string());
  std::sort(models.begin(), models.end());
  return models;
}

/// Under sanitizers, tests over a corpus take one model in this many.
constexpr size_t sampledOneIn = isSanitized ? 16 : 1;

/// The same for tests that rewrite and run each model many times; they take all where
/// KVOPT_WHOLE_CORPUS is set.
inline size_t costlyOneIn() {
  if (isSanitized)
    return 24;
  return std::getenv("KVOPT_WHOLE_CORPUS") ? 1 : 3;
}

/// One in `oneIn` of `models`: an evenly spread sample, another one for each test.
inline std::vector<std::string> sampleOf(const std::vector<std::string>& models,
                                         size_t oneIn = sampledOneIn) {
  if (oneIn == 1)
    return models;
  const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
  uint32_t hash = 0x811C9DC5u; // FNV-1a: the same everywhere
  for (char letter : std::string(test.test_suite_name()) + test.name())
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x01000193u;
  std::vector<std::string> sample;
  for (size_t i = hash % oneIn; i < models.size(); i += oneIn)
    sample.push_back(models[i]);
  std::cout << "a sample of " << sample.size() << " of " << models.size() << " models\n";
  return sample;
}

/// The least number of cases that a test must find, which in the whole corpus is `ofAll`.
constexpr size_t leastInSample(size_t ofAll) { return sampledOneIn == 1 ? ofAll : 1; }

} // namespace kvopt
