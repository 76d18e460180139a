// A rule has its two tests; a header says what it is for.
#include "tests/lint/source_files.h"

namespace kvopt {
namespace {

TEST(Naming, EveryRuleHasItsTestAndItsNearMiss) {
  namespace fs = std::filesystem;
  const fs::path root = KVOPT_SOURCE_DIR;
  std::vector<SourceFile> rules = readFiles("passes/rules", isSourcePath);
  EXPECT_FALSE(rules.empty());
  for (const SourceFile& rule : rules) {
    std::string stem = fs::path(rule.path).replace_extension().string();
    for (const char* suffix : {".onnxtxt", "_near_miss.onnxtxt"}) {
      std::string test = "tests/" + stem + suffix;
      EXPECT_TRUE(fs::is_regular_file(root / test)) << rule.path << " needs " << test;
    }
  }
}

TEST(Naming, EveryFileStartsWithWhatItIsFor) {
  for (const SourceFile& file : allSources())
    EXPECT_TRUE(file.text.starts_with("// ")) << file.path << " starts with no comment";
}

TEST(Naming, EveryKernelSaysWhichVersionsItImplements) {
  std::vector<SourceFile> kernels = readFiles("runtime/kernels", isSourcePath);
  size_t checked = 0;
  for (const SourceFile& kernel : kernels) {
    if (kernel.isHeader() || kernel.isIn("runtime/kernels/support/"))
      continue;
    ++checked;
    std::string comment;
    for (const std::string& line : kernel.lines()) {
      if (!line.starts_with("//"))
        break;
      comment += line + "\n";
    }
    // Operators of other domains have one version.
    bool isSaid = false;
    for (const char* word : {"opset", "version", "Version", "com.microsoft", "ai.kvopt"})
      isSaid |= comment.find(word) != std::string::npos;
    EXPECT_TRUE(isSaid) << kernel.path;
  }
  EXPECT_GT(checked, 30u);
}

/// The namespace of a folder: the longest prefix counts.
std::string_view namespaceOf(const SourceFile& file) {
  struct Room {
    std::string_view folder;
    std::string_view name;
  };
  static constexpr Room rooms[] = {
      {"passes/pattern/", "kvopt::pattern"},
      {"passes/analysis/", "kvopt::analysis"},
      {"passes/builders/", "kvopt::builders"},
      {"passes/extents/", "kvopt::extents"},
      {"passes/rows/", "kvopt::rows"},
      {"passes/rules/", "kvopt::rules"},
      {"passes/targets/", "kvopt::targets"},
      {"passes/opset/", "kvopt::opset"},
      {"passes/transforms/", "kvopt::transforms"},
      {"passes/unrounding/", "kvopt::unrounding"},
      {"passes/", "kvopt::passes"},
      {"runtime/simd/", "kvopt::simd"},
      {"runtime/linear/", "kvopt::linear"},
      {"runtime/kernels/", "kvopt::kernels"},
      {"runtime/", "kvopt::runtime"},
      {"support/", "kvopt"},
      {"ir/", "kvopt::ir"},
      {"meaning/", "kvopt::meaning"},
      {"check/", "kvopt::check"},
      {"driver/", "kvopt::driver"},
      {"cli/", "kvopt::cli"},
      {"api/", "kvopt::api"},
      {"engines/onnxruntime/", "kvopt::onnxruntime"},
  };
  for (const Room& room : rooms)
    if (file.isIn(room.folder))
      return room.name;
  return "";
}

TEST(Naming, EveryFolderHasItsNamespace) {
  size_t checked = 0;
  for (const SourceFile& file : allSources()) {
    const std::string expected(namespaceOf(file));
    if (expected.empty() || file.path == "cli/main.cc")
      continue;
    // Forward declarations open other namespaces; what the file is about comes last.
    std::string last;
    for (const std::string& line : file.lines())
      if (line.starts_with("namespace kvopt"))
        last = line.substr(10, line.find(' ', 10) - 10);
    if (last.empty()) // only specializes what a library has
      continue;
    ++checked;
    EXPECT_TRUE(last == expected || last == expected + "::HWY_NAMESPACE" ||
                last == expected + "::cache_file" || last == expected + "::gqa" ||
                last == expected + "::mha" || last == expected + "::paged" ||
                last == expected + "::onnx_attention")
        << file.path << " is in " << last << ", not in " << expected;
  }
  EXPECT_GT(checked, 500u);
}

TEST(Naming, EveryHeaderHasAGuard) {
  size_t headers = 0;
  for (const SourceFile& file : allSources()) {
    // Highway includes an "-inl.h" once for each target; it guards itself.
    if (!file.isHeader() || file.path.ends_with("-inl.h"))
      continue;
    ++headers;
    std::vector<std::string> lines = file.lines();
    EXPECT_TRUE(std::find(lines.begin(), lines.end(), "#pragma once") != lines.end())
        << file.path << " has no #pragma once";
  }
  EXPECT_GT(headers, 50u);
}

} // namespace
} // namespace kvopt
