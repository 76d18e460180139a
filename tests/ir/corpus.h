// Where the corpus of exported models is: the folder that KVOPT_CORPUS names, or one beside the
// project.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
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

} // namespace kvopt
