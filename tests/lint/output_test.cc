// Files are written through OutputFile only, and opened where they are registered.
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

TEST(Outputs, OfARunAreDeclaredInItsFileAccess) {
  // OutputFile and OutputFolder are created for a FileAccess, and a command has one: another would
  // know nothing of what the command reads.
  size_t users = 0;
  for (const SourceFile& file : productSources()) {
    if (!(file.isIn("cli/") || file.isIn("driver/")))
      continue;
    users += hasAny(file, {"FileAccess&", "context.files()"}) ? 1 : 0;
    EXPECT_FALSE(hasAny(file, {"FileAccess access;", "FileAccess files;", "FileAccess own;",
                               "OutputFiles files;", "FileAccess()"}))
        << file.path << " makes a FileAccess of its own: use that of the run";
    EXPECT_TRUE(file.path == "cli/app.cc" || !hasAny(file, {"make_shared<FileAccess>"}))
        << file.path << " makes a FileAccess of its own: use that of the run";
    // DataFiles removes the hard links that it made for an output that was not written.
    EXPECT_FALSE(file.path != "driver/rewrite/data_files.cc" &&
                 hasAny(file, {"create_director", "fs::rename", "filesystem::rename", "fs::remove",
                               "filesystem::remove", "mkdir(", "symlink("}))
        << file.path << " changes folders without OutputFolder";
  }
  EXPECT_GE(users, 8u);
}

TEST(Inputs, AreOpenedWhereTheyAreRegistered) {
  // openModel registers models; the others open what an option names (cli/support/path_options.h)
  // or what is registered beside it.
  constexpr std::string_view openers[] = {
      "driver/recover.cc",              // models
      "cli/opt.cc",                     // the model in its text form
      "driver/generate/decoding.cc",    // the cache that --load-cache names
      "driver/options/token_file.cc",   // texts and tokens
      "cli/running/machine.cc",         // what Linux says of the machine
      "driver/verify/references.cc",    // model.json, registered by `verify --references`
      "driver/reduce/candidates.cc",    // models in a private folder
      "driver/check/check_files.cc",    // the certificate and the manifest that options name
      "driver/rewrite/genai_folder.cc", // an export's other files, registered by checkOutputPaths
  };
  size_t found = 0;
  for (const SourceFile& file : productSources()) {
    if (!(file.isIn("cli/") || file.isIn("driver/")) || file.isHeader())
      continue;
    if (!hasAny(file, {"importModel(", "importTensorFile(", "MappedFile::open", "std::ifstream",
                       "MemoryBuffer", "fopen("}))
      continue;
    ++found;
    EXPECT_TRUE(std::find(std::begin(openers), std::end(openers), file.path) != std::end(openers))
        << file.path << " opens a file: open models by openModel, and register other files";
  }
  EXPECT_EQ(found, std::size(openers));
}

TEST(Inputs, PathsOfOptionsAreInTheTable) {
  // What kvopt reads or writes by an option is added by cli/support/path_options.h; that all are is
  // tested in tests/cli/path_options_test.cc. Nothing else asks the command line for a file.
  for (const SourceFile& file : productSources())
    EXPECT_FALSE(hasAny(file, {"CLI::ExistingFile", "CLI::ExistingPath", "CLI::NonexistentPath",
                               "CLI::ExistingDirectory"}))
        << file.path << " checks a path: add the option by cli/support/path_options.h";
}

TEST(Outputs, NothingPrintsInAWayThatCanThrow) {
  for (const SourceFile& file : productSources())
    EXPECT_FALSE(hasAny(file, {"fmt::print(", "std::cerr", "fprintf("}))
        << file.path << ": print with printOut or printErr, which report a full disk as an error";
}

} // namespace
} // namespace kvopt
