// Files are written through OutputFile only, and commands check their outputs first.
#include "tests/lint/source_files.h"

namespace kvopt {
namespace {

bool hasAny(const SourceFile& file, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(), [&](std::string_view word) {
    return file.text.find(word) != std::string::npos;
  });
}

std::vector<SourceFile> productSources() {
  std::vector<SourceFile> found;
  for (SourceFile& file : allSources())
    if (file.isIn("ir/") || file.isIn("passes/") || file.isIn("runtime/") || file.isIn("driver/") ||
        file.isIn("cli/"))
      found.push_back(std::move(file));
  EXPECT_GT(found.size(), 300u);
  return found;
}

TEST(Outputs, AreWrittenThroughOutputFile) {
  for (const SourceFile& file : productSources())
    EXPECT_FALSE(file.path != "support/output_file.cc" &&
                 hasAny(file, {"std::ofstream", "std::fstream", "fopen(", "O_CREAT", "O_TRUNC"}))
        << file.path << " writes a file without OutputFile";
}

TEST(Outputs, OfCommandsAreInAFilePlan) {
  // These write what the plan of their callers names.
  constexpr std::string_view helpers[] = {"cli/report/step_dump.cc", "driver/variants.cc"};
  size_t writers = 0;
  for (const SourceFile& file : productSources()) {
    if (!(file.isIn("cli/") || file.isIn("driver/")) || file.isHeader() ||
        std::find(std::begin(helpers), std::end(helpers), file.path) != std::end(helpers))
      continue;
    if (!hasAny(file, {"OutputFile::create(", "exportModel(", "prepareExport(", "exportTensorFile(",
                       "writeCacheFile(", ".save(", "->save(", "StepDump::create(",
                       "reproducerPath =", "create_director"}))
      continue;
    ++writers;
    EXPECT_NE(file.text.find("FilePlan"), std::string::npos)
        << file.path << " writes files: check them with a FilePlan before the work";
  }
  EXPECT_GE(writers, 5u);
}

TEST(Outputs, NothingPrintsInAWayThatCanThrow) {
  for (const SourceFile& file : productSources())
    EXPECT_FALSE(hasAny(file, {"fmt::print(", "std::cerr", "fprintf("}))
        << file.path << ": print with printOut or printErr, which report a full disk as an error";
}

} // namespace
} // namespace kvopt
