// Layers include only what is beneath them; CLI11 and protobuf stay where they belong.
#include "tests/lint/source_files.h"

#include <optional>
#include <utility>

namespace kvopt {
namespace {

/// The file of an `#include` line, without quotes or brackets; empty for any other line.
std::string includedFile(const std::string& line) {
  size_t at = line.find_first_not_of(" \t");
  if (at == std::string::npos || line[at] != '#')
    return "";
  at = line.find_first_not_of(" \t", at + 1);
  if (at == std::string::npos || line.compare(at, 7, "include") != 0)
    return "";
  size_t open = line.find_first_of("\"<", at);
  if (open == std::string::npos)
    return "";
  size_t close = line.find_first_of("\">", open + 1);
  return close == std::string::npos ? "" : line.substr(open + 1, close - open - 1);
}

template <class Visit> void forEachInclude(const Visit& visit) {
  size_t includes = 0;
  for (const SourceFile& file : allSources())
    for (const std::string& line : file.lines())
      if (std::string included = includedFile(line); !included.empty()) {
        ++includes;
        visit(file, included);
      }
  EXPECT_GT(includes, 500u);
}

TEST(Layering, ReadsIncludeLines) {
  EXPECT_EQ(includedFile("#include \"ir/graph.h\""), "ir/graph.h");
  EXPECT_EQ(includedFile("  #  include <CLI/CLI.hpp> // why"), "CLI/CLI.hpp");
  EXPECT_EQ(includedFile("// #include \"ir/graph.h\""), "");
  EXPECT_EQ(includedFile("#define X \"ir/graph.h\""), "");
}

TEST(Layering, LayersIncludeOnlyWhatIsBeneathThem) {
  struct Layer {
    std::string_view folder;
    std::vector<std::string_view> beneath;
  };
  const std::vector<Layer> layers = {
      {"support/", {}},
      {"ir/", {"support/"}},
      {"meaning/", {"support/", "ir/"}},
      {"check/", {"support/", "ir/", "meaning/"}},
      {"passes/", {"support/", "ir/", "meaning/"}},
      {"runtime/", {"support/", "ir/", "meaning/"}},
      {"driver/", {"support/", "ir/", "check/", "passes/", "runtime/"}},
      {"cli/", {"support/", "ir/", "check/", "passes/", "runtime/", "driver/"}},
      {"api/", {"support/", "ir/", "check/", "passes/", "runtime/", "driver/"}},
      {"engines/",
       {"support/", "runtime/simd/", "ir/ops/attention_operands.h",
        "ir/ops/contrib/group_query_operands.h", "ir/ops/contrib/multi_head_operands.h",
        "ir/ops/kvopt/cache_operands.h"}},
  };
  auto isIn = [](const std::string& included, std::string_view folder) {
    return included.starts_with(folder);
  };
  forEachInclude([&](const SourceFile& file, const std::string& included) {
    for (const Layer& layer : layers) {
      if (!file.isIn(layer.folder))
        continue;
      EXPECT_FALSE(included.starts_with("tests/")) << file.path << " includes " << included;
      for (const Layer& other : layers) {
        const bool isAllowed =
            other.folder == layer.folder ||
            std::any_of(layer.beneath.begin(), layer.beneath.end(), [&](std::string_view beneath) {
              return beneath == other.folder ||
                     (beneath.starts_with(other.folder) && included.starts_with(beneath));
            });
        EXPECT_TRUE(isAllowed || !isIn(included, other.folder))
            << file.path << " includes " << included;
      }
    }
  });
}

/// The folders of each layer, from the ground up: a folder includes only folders named before it,
/// and what is beneath the whole layer.
const std::vector<std::vector<std::string_view>>& rooms() {
  static const std::vector<std::vector<std::string_view>> all = {
      {"support"},
      {"ir/dims", "ir", "ir/rows", "ir/manifest", "ir/verify", "ir/onnx", "ir/shapes", "ir/text",
       "ir/ops/kvopt", "ir/ops/contrib", "ir/ops"},
      {"meaning/expression", "meaning", "meaning/operators", "meaning/extents", "meaning/numbers",
       "meaning/facts"},
      {"check/arithmetic", "check/alignment", "check/evaluation", "check/caches", "check/regions",
       "check/rules", "check"},
      {"passes/pattern",
       "passes/analysis/movement",
       "passes/analysis/mask",
       "passes/analysis/scores",
       "passes/builders",
       "passes/analysis/cache",
       "passes/analysis/tokens",
       "passes/analysis/interface",
       "passes/analysis/evaluation",
       "passes/analysis/rotation",
       "passes/rows",
       "passes/extents",
       "passes/unrounding",
       "passes/opset",
       "passes/opset/adapters",
       "passes/targets",
       "passes",
       "passes/targets/support",
       "passes/targets/kvopt",
       "passes/targets/primitive",
       "passes/targets/blocks",
       "passes/targets/onnx",
       "passes/targets/ort_gqa",
       "passes/targets/paged",
       "passes/rules/normalize",
       "passes/rules/raise",
       "passes/rules/fuse",
       "passes/transforms"},
      {"runtime/simd", "runtime/simd/attention", "runtime/simd/attention/kernels", "runtime/linear",
       "runtime/memory", "runtime/threads", "runtime/exec", "runtime/cache",
       "runtime/kernels/support", "runtime/attention", "runtime/kernels/attention",
       "runtime/kernels/control", "runtime/kernels/elementwise", "runtime/kernels/movement",
       "runtime/kernels/products", "runtime/kernels/reduction", "runtime/session",
       "runtime/equivalence"},
      {"driver", "driver/options", "driver/forms", "driver/engines", "driver/synthetic",
       "driver/inspect", "driver/diff", "driver/explain", "driver/claims", "driver/roles",
       "driver/check", "driver/rewrite", "driver/reduce", "driver/verify", "driver/generate"},
      {"cli/support", "cli/report", "cli", "cli/running"},
      {"api"},
      {"engines/onnxruntime", "engines/onnxruntime/operators"},
  };
  return all;
}

/// Its layer, and its place in the layer; nullopt for a folder that is not listed.
std::optional<std::pair<size_t, size_t>> placeOf(std::string_view path) {
  const std::string_view folder = path.substr(0, path.rfind('/'));
  for (size_t layer = 0; layer < rooms().size(); ++layer)
    for (size_t room = 0; room < rooms()[layer].size(); ++room)
      if (rooms()[layer][room] == folder)
        return std::pair(layer, room);
  return std::nullopt;
}

TEST(Layering, FoldersIncludeOnlyFoldersBeneathThem) {
  for (const SourceFile& file : allSources()) {
    if (file.isIn("tests/") || file.isIn("examples/") || file.isIn("bench/"))
      continue;
    EXPECT_TRUE(placeOf(file.path)) << file.path << " is in a folder that has no place in rooms()";
  }
  forEachInclude([](const SourceFile& file, const std::string& included) {
    const auto from = placeOf(file.path);
    const auto to = placeOf(included);
    if (from && to && from->first == to->first) {
      EXPECT_LE(to->second, from->second) << file.path << " includes " << included;
    }
  });
}

/// Whether a file is left out of a build without the runtime (KVOPT_RUNTIME).
bool needsRuntime(std::string_view path) {
  for (std::string_view folder : {"runtime/", "driver/verify/", "driver/generate/", "cli/running/",
                                  "api/", "engines/", "include/"})
    if (path.starts_with(folder))
      return true;
  return false;
}

TEST(Layering, RewriterAndProverIncludeNothingOfTheRuntime) {
  forEachInclude([](const SourceFile& file, const std::string& included) {
    for (std::string_view layer : {"support/", "ir/", "check/", "passes/", "driver/", "cli/"})
      EXPECT_FALSE(file.isIn(layer) && !needsRuntime(file.path) && needsRuntime(included))
          << file.path << " includes " << included;
  });
}

TEST(Layering, OnlyWhatTestsTheCommandLineIncludesIt) {
  forEachInclude([](const SourceFile& file, const std::string& included) {
    const bool isOfCommands =
        file.isIn("cli/") || file.isIn("tests/cli/") || file.path == "tests/fuzz/command_fuzz.cc";
    EXPECT_TRUE(isOfCommands ||
                !(included.starts_with("cli/") || included.starts_with("tests/cli/")))
        << file.path << " includes " << included;
  });
}

TEST(Layering, CommandLineParserStaysInPrograms) {
  forEachInclude([](const SourceFile& file, const std::string& included) {
    EXPECT_TRUE(!included.starts_with("CLI/") || file.isIn("cli/") || file.isIn("bench/"))
        << file.path << " includes " << included;
  });
}

TEST(Layering, ProtobufStaysInIr) {
  // ir's own headers may include it as long as no other layer includes those headers.
  std::vector<std::string> privateHeaders;
  auto isProtobuf = [](const std::string& included) {
    return included.ends_with(".pb.h") || included.starts_with("google/protobuf/");
  };
  forEachInclude([&](const SourceFile& file, const std::string& included) {
    if (!isProtobuf(included))
      return;
    // Measurements compare with protobuf itself.
    EXPECT_TRUE(file.isIn("ir/") || file.isIn("tests/ir/") || file.isIn("bench/"))
        << file.path << " includes " << included;
    if (file.isHeader())
      privateHeaders.push_back(file.path);
  });
  forEachInclude([&](const SourceFile& file, const std::string& included) {
    bool isPrivate =
        std::find(privateHeaders.begin(), privateHeaders.end(), included) != privateHeaders.end();
    EXPECT_TRUE(!isPrivate || file.isIn("ir/") || file.isIn("tests/ir/"))
        << file.path << " includes " << included << ", which includes protobuf";
  });
}

} // namespace
} // namespace kvopt
