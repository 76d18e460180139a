// Outputs replace neither inputs nor each other.
#include "support/file_access.h"

#include "support/diagnostic.h"
#include "tests/support/output_at.h"
#include "tests/support/temporary_folder.h"

#include <filesystem>
#include <gmock/gmock.h>

namespace kvopt {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

std::string textOf(llvm::Error error) {
  return error ? takeDiagnostic(std::move(error)).str() : "no error";
}

/// What is said of a run that reads `input` and writes `output`, in whatever order; it is the same.
std::string failureOf(const std::string& input, const std::string& output) {
  FileAccess readsFirst;
  EXPECT_EQ(textOf(readsFirst.reads(input, "the model 'm'")), "no error");
  std::string said = textOf(readsFirst.writes(output, "--plot"));
  FileAccess writesFirst;
  EXPECT_EQ(textOf(writesFirst.writes(output, "--plot")), "no error");
  EXPECT_EQ(textOf(writesFirst.reads(input, "the model 'm'")), said);
  FileAccess readsLater;
  EXPECT_EQ(textOf(readsLater.readsLater([&] {
              return std::vector<InputFile>{{input, "the model 'm'"}};
            })),
            "no error");
  EXPECT_EQ(textOf(readsLater.writes(output, "--plot")), said);
  return said;
}

TEST(FileAccess, RefusesAnInputThroughEveryKindOfLink) {
  TemporaryFolder folder;
  const std::string input = folder.write("m.onnx", "x");
  fs::create_symlink("m.onnx", folder.path("soft"));
  fs::create_hard_link(input, folder.path("hard"));
  fs::create_directory_symlink(".", folder.path("loop"));
  for (const char* name : {"m.onnx", "./m.onnx", "loop/m.onnx", "soft", "hard", "loop/hard"})
    EXPECT_THAT(failureOf(input, folder.path(name)),
                AllOf(HasSubstr(std::string(name) + ": --plot would overwrite the model 'm'"),
                      HasSubstr("hint: write to another file")));
  EXPECT_EQ(failureOf(folder.path("soft"), folder.path("plot.svg")), "no error");
  EXPECT_THAT(failureOf(folder.path("soft"), input), HasSubstr("would overwrite"));
}

TEST(FileAccess, TakesAFileThatIsNotAnInput) {
  TemporaryFolder folder;
  folder.write("old", "x");
  EXPECT_EQ(failureOf(folder.write("m.onnx", "x"), folder.path("old")), "no error");
  EXPECT_EQ(failureOf(folder.path("m.onnx"), folder.path("new")), "no error");
  EXPECT_EQ(failureOf(folder.path("none"), folder.path("none")), "no error");
  EXPECT_EQ(failureOf("", folder.path("new")), "no error");
  EXPECT_EQ(folder.entryCount(), 2u);
}

TEST(FileAccess, EveryFileOfAFolderThatIsReadIsAnInput) {
  TemporaryFolder folder;
  fs::create_directories(folder.path("in/deep"));
  folder.write("in/deep/a", "x");
  fs::create_hard_link(folder.path("in/deep/a"), folder.path("hard"));
  for (const char* name : {"in/deep/a", "hard"})
    EXPECT_THAT(failureOf(folder.path("in"), folder.path(name)),
                HasSubstr("--plot would overwrite a file of the model 'm'"));
  EXPECT_EQ(failureOf(folder.path("in"), folder.path("in/b")), "no error");
  FileAccess access;
  EXPECT_EQ(textOf(access.reads(folder.path("in"), "the recording")), "no error");
  EXPECT_THAT(textOf(access.writesFolder(folder.path("in"), "--dump")),
              HasSubstr("--dump would overwrite the recording"));
}

TEST(FileAccess, RefusesTwoOutputsInOnePlace) {
  TemporaryFolder folder;
  fs::create_directory(folder.path("in"));
  fs::create_directory_symlink("in", folder.path("link"));
  const auto declare = [&](FileAccess& access) {
    EXPECT_EQ(textOf(access.writes(folder.path("in/a"), "--manifest")), "no error");
    EXPECT_EQ(textOf(access.writes(folder.path("in/b"), "--plot")), "no error");
    EXPECT_EQ(textOf(access.writes("", "--report")), "no error");
    EXPECT_EQ(textOf(access.writes(folder.path("in/b"), "--plot")), "no error");
  };
  FileAccess folders;
  declare(folders);
  EXPECT_THAT(textOf(folders.writesFolder(folder.path("in/a/"), "--dump")),
              HasSubstr("--manifest and --dump would write to the same file"));
  FileAccess files;
  declare(files);
  EXPECT_EQ(textOf(files.ensureWrites(folder.path("link/b"), "the output")), "no error");
  EXPECT_THAT(textOf(files.writes(folder.path("link/b"), "--output")),
              HasSubstr("--plot and --output would write to the same file"));
}

TEST(FileAccess, RefusesWhatCannotBeCreated) {
  TemporaryFolder folder;
  const auto failure = [&](const std::string& name, bool isFolder = false) {
    FileAccess access;
    EXPECT_EQ(textOf(isFolder ? access.writesFolder(folder.path(name), "--dump")
                              : access.writes(folder.path(name), "--plot")),
              "no error");
    return textOf(access.checkOutputs());
  };
  EXPECT_EQ(failure(std::string(255, 'n')), "no error");
  EXPECT_THAT(failure(std::string(256, 'n')), HasSubstr("File name too long"));
  EXPECT_THAT(failure("no/folder"), HasSubstr("cannot open the folder"));
  fs::create_directory(folder.path("sub"));
  EXPECT_THAT(failure("sub"), HasSubstr("is not a regular file"));
  EXPECT_EQ(failure("sub", /*isFolder=*/true), "no error");
  EXPECT_EQ(failure("new", /*isFolder=*/true), "no error");
  folder.write("sub/file", "x");
  EXPECT_THAT(failure("sub", /*isFolder=*/true), HasSubstr("the folder is not empty"));
  EXPECT_THAT(failure("sub/file", /*isFolder=*/true), HasSubstr("is not a folder"));
  EXPECT_EQ(folder.entryCount(), 1u);
}

TEST(FileAccess, ARefusalIsRemembered) {
  TemporaryFolder folder;
  const std::string input = folder.write("m.onnx", "x");
  FileAccess access;
  EXPECT_EQ(textOf(access.writes(input, "--plot")), "no error");
  const std::string said = textOf(access.reads(input, "the model 'm'"));
  EXPECT_THAT(said, HasSubstr("would overwrite"));
  EXPECT_EQ(textOf(access.checkOutputs()), said);
  EXPECT_EQ(textOf(access.writes(folder.path("other"), "--output")), said);
  EXPECT_EQ(textOf(OutputFile::create(folder.path("other"), access).takeError()), said);
  EXPECT_EQ(folder.entryCount(), 1u);
}

TEST(FileAccess, AnOutputFileIsComparedThoughItWasNotDeclared) {
  TemporaryFolder folder;
  const std::string input = folder.write("m.onnx", "x");
  FileAccess access;
  EXPECT_EQ(textOf(access.reads(input, "the model 'm'")), "no error");
  EXPECT_THAT(textOf(OutputFile::create(input, access).takeError()),
              HasSubstr("the output would overwrite the model 'm'"));
}

} // namespace
} // namespace kvopt
