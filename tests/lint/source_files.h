// The project's own source files, as the lint tests read them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace kvopt {

struct SourceFile {
  std::string path; ///< relative to the source folder, with '/'
  std::string text;

  bool isHeader() const { return path.ends_with(".h"); }
  bool isIn(std::string_view folder) const { return path.starts_with(folder); }
  std::vector<std::string> lines() const {
    std::vector<std::string> result;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);)
      result.push_back(line);
    return result;
  }
};

/// The files beneath `folder` (relative to the source folder) that `accept` takes by path, in byte
/// order. A missing folder fails the test.
template <class Accept>
std::vector<SourceFile> readFiles(const std::string& folder, const Accept& accept) {
  namespace fs = std::filesystem;
  const fs::path root = KVOPT_SOURCE_DIR;
  std::vector<SourceFile> files;
  std::error_code error;
  for (fs::recursive_directory_iterator at(root / folder, error), end; at != end; ++at) {
    std::string path = at->path().lexically_relative(root).generic_string();
    if (!at->is_regular_file() || !accept(std::string_view(path)))
      continue;
    std::ifstream stream(at->path(), std::ios::binary);
    std::ostringstream text;
    text << stream.rdbuf();
    files.push_back({std::move(path), text.str()});
  }
  EXPECT_FALSE(error) << folder << ": " << error.message();
  std::sort(files.begin(), files.end(),
            [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
  return files;
}

inline bool isSourcePath(std::string_view path) {
  return path.ends_with(".cc") || path.ends_with(".h");
}

/// Every .cc and .h of the layers, tests, examples and benchmarks.
inline std::vector<SourceFile> allSources() {
  std::vector<SourceFile> all;
  for (const char* folder : {"support", "ir", "meaning", "check", "passes", "runtime", "driver",
                             "cli", "api", "engines", "tests", "examples", "bench"}) {
    std::vector<SourceFile> files = readFiles(folder, isSourcePath);
    std::move(files.begin(), files.end(), std::back_inserter(all));
  }
  EXPECT_GT(all.size(), 100u) << "the source folder is not what this test thinks it is";
  return all;
}

} // namespace kvopt
