// Everything that kvopt prints goes through printOut and printErr, whose text is escaped.
#include "tests/lint/source_files.h"

namespace kvopt {
namespace {

bool isOneOf(const std::string& path, const std::vector<std::string_view>& paths) {
  return std::find(paths.begin(), paths.end(), path) != paths.end();
}

void expectOnlyIn(const std::string& call, const std::vector<std::string_view>& allowed) {
  size_t found = 0;
  for (const SourceFile& file : allSources()) {
    const bool isProduct = file.isIn("support/") || file.isIn("ir/") || file.isIn("passes/") ||
                           file.isIn("runtime/") || file.isIn("driver/") || file.isIn("cli/");
    if (!isProduct || file.text.find(call) == std::string::npos)
      continue;
    ++found;
    EXPECT_TRUE(isOneOf(file.path, allowed)) << file.path << " calls " << call;
  }
  EXPECT_EQ(found, allowed.size()) << call << ": a file of the list does not call it any more";
}

TEST(Printing, OnlyTheSinksPrint) {
  expectOnlyIn("std::fwrite(", {"cli/app.cc"});
  // From a signal handler, byte by byte.
  expectOnlyIn("writeText(STDERR_FILENO", {"cli/process.cc"});
  for (const char* call : {"fmt::print(", "std::cout", "std::cerr", "printf(", "fputs(", "puts(\"",
                           "llvm::outs()", "llvm::errs()"})
    expectOnlyIn(call, {});
}

TEST(Printing, FewFilesDeclareTextSafe) {
  expectOnlyIn("SafeText::trusted(",
               {"cli/app.cc", "cli/support/progress.cc", "cli/report/site_table.cc",
                "cli/support/style.cc", "cli/report/xml_text.cc", "support/diagnostic.cc",
                "support/safe_text.cc"});
}

// Strings that are formatted without formatText keep the line feeds of names.
TEST(Printing, LinesAreFormattedSafely) {
  for (const char* call :
       {"printOut(formatted(", "printErr(formatted(", "remark(formatted(", "detail(formatted("})
    expectOnlyIn(call, {});
}

} // namespace
} // namespace kvopt
