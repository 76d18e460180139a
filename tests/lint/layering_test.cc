// Layers include only what is beneath them; CLI11 and protobuf stay where they belong.
#include "tests/lint/source_files.h"

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
      {"passes/", {"support/", "ir/"}},
      {"runtime/", {"support/", "ir/"}},
      {"driver/", {"support/", "ir/", "passes/", "runtime/"}},
      {"cli/", {"support/", "ir/", "passes/", "runtime/", "driver/"}},
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
            other.folder == layer.folder || std::find(layer.beneath.begin(), layer.beneath.end(),
                                                      other.folder) != layer.beneath.end();
        EXPECT_TRUE(isAllowed || !isIn(included, other.folder))
            << file.path << " includes " << included;
      }
    }
  });
}

TEST(Layering, OnlyWhatTestsTheCommandLineIncludesIt) {
  forEachInclude([](const SourceFile& file, const std::string& included) {
    const bool isOfCommands = file.isIn("cli/") || file.isIn("tests/cli/") ||
                              file.path == "tests/fuzz/command_fuzz.cc" ||
                              file.isIn("examples/write_a_rule/");
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
