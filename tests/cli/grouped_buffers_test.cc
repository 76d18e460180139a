// GroupQueryAttention whose past and present are declared as one buffer, without a manifest that
// says so.
#include "tests/cli/cli_fixture.h"

#include <gmock/gmock.h>

namespace kvopt {
using namespace cli;

namespace {

using testing::HasSubstr;

/// A copy of a model without its metadata, as other tools write it.
std::string withoutMetadata(const std::string& model, const TemporaryFolder& folder) {
  const ProgramResult printed = runProgram({"opt", model, "--pipeline", "", "--elements", "all"});
  EXPECT_EQ(printed.code, 0) << printed.err;
  std::string text = printed.out;
  const size_t begin = text.find(",\n  metadata_props: [");
  const size_t end = text.find("\n>\n", begin);
  EXPECT_NE(begin, std::string::npos);
  EXPECT_NE(end, std::string::npos);
  text.erase(begin, end - begin);
  std::string bare = folder.path("bare.onnx");
  const ProgramResult made =
      runProgram({"opt", folder.write("bare.onnxtxt", text), "--pipeline", "", "-o", bare});
  EXPECT_EQ(made.code, 0) << made.err;
  return bare;
}

std::string tokensOf(const std::string& model) {
  const ProgramResult run = runProgram({"run", model, "--tokens", "1,2,3", "--steps", "6"});
  EXPECT_EQ(run.code, 0) << run.err;
  return run.out;
}

TEST(GroupedBuffers, AreInPlaceWithoutAManifest) {
  for (const char* capacity : {"dynamic", "24"}) {
    SCOPED_TRACE(capacity);
    const TemporaryFolder folder;
    const std::string grown = folder.path("grown.onnx");
    ASSERT_EQ(runProgram({"gen", "llama", "--spelling", "gqa", "--vocab", "64", "-o", grown}).code,
              0);
    const std::string shared = folder.path("shared.onnx");
    ASSERT_EQ(runProgram({"rewrite", grown, "-o", shared, "--capacity", capacity}).code, 0);
    const std::string bare = withoutMetadata(shared, folder);
    const std::string tokens = tokensOf(grown);
    EXPECT_EQ(tokensOf(bare), tokens);

    EXPECT_THAT(runProgram({"inspect", bare}).out, HasSubstr("nothing to rewrite"));
    EXPECT_THAT(runProgram({"explain", bare, "--to", "ort"}).out, HasSubstr("already-in-place"));
    const std::string output = folder.path("out.onnx");
    const nlohmann::json same = runJson({"rewrite", bare, "-o", output});
    EXPECT_EQ(same["already"], true);
    EXPECT_EQ(same["updated_in_place_by"], "com.microsoft::GroupQueryAttention");
    const auto manifest = nlohmann::json::parse(folder.read("out.kv.json"));
    EXPECT_EQ(manifest["contract"], "shared-buffer");
    for (const auto& cache : manifest["caches"])
      EXPECT_EQ(cache["one_buffer"], true);

    for (const char* target : {"kvopt", "onnx24", "primitive"}) {
      SCOPED_TRACE(target);
      const std::string other = folder.path(std::string(target) + ".onnx");
      const ProgramResult written =
          runProgram({"rewrite", bare, "-o", other, "--to", target, "--verify", "off"});
      ASSERT_EQ(written.code, 0) << written.out << written.err;
      EXPECT_EQ(tokensOf(other), tokens);
    }
  }
}

} // namespace
} // namespace kvopt
