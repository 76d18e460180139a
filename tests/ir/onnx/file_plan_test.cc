// Outputs replace neither inputs nor each other.
#include "ir/onnx/file_plan.h"

#include "support/diagnostic.h"
#include "tests/support/temporary_folder.h"

#include <filesystem>
#include <gmock/gmock.h>

namespace kvopt {
using namespace ir;

namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

std::string failureOf(const FilePlan& plan) {
  llvm::Error error = plan.check();
  return error ? takeDiagnostic(std::move(error)).str() : "no error";
}

/// What a plan that reads `input` and writes `output` says.
std::string failureOf(const std::string& input, const std::string& output) {
  FilePlan plan;
  plan.reads(input, "the model 'm'");
  plan.writes(output, "--plot");
  return failureOf(plan);
}

TEST(FilePlan, RefusesAnInputThroughEveryKindOfLink) {
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

TEST(FilePlan, TakesAFileThatIsNotAnInput) {
  TemporaryFolder folder;
  folder.write("old", "x");
  EXPECT_EQ(failureOf(folder.write("m.onnx", "x"), folder.path("old")), "no error");
  EXPECT_EQ(failureOf(folder.path("m.onnx"), folder.path("new")), "no error");
  EXPECT_EQ(failureOf(folder.path("none"), folder.path("none")), "no error");
  EXPECT_EQ(folder.entryCount(), 2u);
}

TEST(FilePlan, RefusesTwoOutputsInOnePlace) {
  TemporaryFolder folder;
  fs::create_directory(folder.path("in"));
  fs::create_directory_symlink("in", folder.path("link"));
  FilePlan plan;
  plan.writes(folder.path("in/a"), "--manifest");
  plan.writes(folder.path("in/b"), "--plot");
  plan.writes("", "--report");
  EXPECT_EQ(failureOf(plan), "no error");
  FilePlan folders = plan;
  folders.writesFolder(folder.path("in/a/"), "--dump");
  EXPECT_THAT(failureOf(folders), HasSubstr("--manifest and --dump would write to the same file"));
  plan.writes(folder.path("link/b"), "--output");
  EXPECT_THAT(failureOf(plan), HasSubstr("--plot and --output would write to the same file"));
}

TEST(FilePlan, RefusesWhatCannotBeCreated) {
  TemporaryFolder folder;
  auto failure = [&](const std::string& name) {
    return failureOf(folder.path("none"), folder.path(name));
  };
  EXPECT_EQ(failure(std::string(255, 'n')), "no error");
  EXPECT_THAT(failure(std::string(256, 'n')), HasSubstr("File name too long"));
  EXPECT_THAT(failure("no/folder"), HasSubstr("cannot open the folder"));
  fs::create_directory(folder.path("sub"));
  EXPECT_THAT(failure("sub"), HasSubstr("is not a regular file"));
  EXPECT_EQ(folder.entryCount(), 1u);
}

} // namespace
} // namespace kvopt
