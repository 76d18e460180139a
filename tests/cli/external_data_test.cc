// Weights in files beside the model: where they go, and files that are not what the model says.
#include "tests/cli/cli_fixture.h"

#include <gmock/gmock.h>

#include <csignal>
#include <sys/resource.h>
#include <sys/stat.h>

namespace kvopt {
using namespace cli;

namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

/// A small decoder with its weights beside it, in a folder of its own.
class ExternalDataTest : public testing::Test {
protected:
  ExternalDataTest() {
    fs::create_directory(folder.path("in"));
    fs::create_directory(folder.path("out"));
    ProgramResult made = runProgram({"gen", "llama", "-o", model, "--hidden", "32", "--vocab",
                                     "100", "--heads", "4", "--external-data", "always"});
    EXPECT_EQ(made.code, 0) << made.err;
  }

  ProgramResult rewrite(const std::string& output, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments{"rewrite", model, "-o", output, "--to", "onnx24"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return runProgram(arguments);
  }
  std::vector<std::string> filesIn(const std::string& name) const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder.path(name)))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }

  TemporaryFolder folder;
  std::string model = folder.path("in/m.onnx");
  std::string data = folder.path("in/m.onnx.data");
};

TEST_F(ExternalDataTest, StaysWhereItIs) {
  ProgramResult kept = rewrite(folder.path("in/n.onnx"));
  ASSERT_EQ(kept.code, 0) << kept.err;
  EXPECT_THAT(kept.out, HasSubstr("weights stay in m.onnx.data) and "));
  EXPECT_EQ(filesIn("in"),
            (std::vector<std::string>{"m.onnx", "m.onnx.data", "n.kv.json", "n.onnx"}));
  ProgramResult above = rewrite(folder.path("n.onnx"));
  ASSERT_EQ(above.code, 0) << above.err;
  EXPECT_EQ(runProgram({"verify", model, folder.path("n.onnx")}).code, 0);
}

TEST_F(ExternalDataTest, ElsewhereItIsCopied) {
  const std::string output = folder.path("out/n.onnx");
  const std::string copy = folder.path("out/m.onnx.data");
  ProgramResult copied = rewrite(output);
  ASSERT_EQ(copied.code, 0) << copied.err;
  EXPECT_THAT(copied.out, HasSubstr("weights in m.onnx.data)"));
  EXPECT_EQ(filesIn("out"), (std::vector<std::string>{"m.onnx.data", "n.kv.json", "n.onnx"}));
  // Programs refuse data with several names, so that the export must not get one.
  EXPECT_EQ(fs::hard_link_count(data), 1u);
  EXPECT_EQ(fs::hard_link_count(copy), 1u);
  EXPECT_EQ(folder.read("out/m.onnx.data"), folder.read("in/m.onnx.data"));
  EXPECT_EQ(runProgram({"verify", model, output}).code, 0);

  // A second model in the folder uses the same copy.
  const auto written = fs::last_write_time(copy);
  nlohmann::json json = runJson(
      {"rewrite", model, "-o", folder.path("out/j.onnx"), "--to", "onnx24", "--verify", "off"});
  EXPECT_EQ(json["external_data"]["placement"], "copy");
  EXPECT_EQ(json["external_data"]["files"], nlohmann::json::array({copy}));
  EXPECT_EQ(fs::last_write_time(copy), written);
  EXPECT_EQ(filesIn("out").size(), 5u);
}

TEST_F(ExternalDataTest, ElsewhereItHasAHardLinkOnRequest) {
  const std::string output = folder.path("out/n.onnx");
  ProgramResult linked = rewrite(output, {"--external-data", "link"});
  ASSERT_EQ(linked.code, 0) << linked.err;
  EXPECT_THAT(linked.out, HasSubstr("weights in the hard link m.onnx.data)"));
  EXPECT_TRUE(fs::equivalent(data, folder.path("out/m.onnx.data")));
  EXPECT_EQ(runProgram({"verify", model, output}).code, 0);
  nlohmann::json json = runJson({"rewrite", model, "-o", folder.path("out/j.onnx"), "--to",
                                 "onnx24", "--verify", "off", "--external-data", "link"});
  EXPECT_EQ(json["external_data"]["placement"], "link");
}

TEST_F(ExternalDataTest, EveryCommandCopiesIt) {
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"opt", model, "--pipeline", "infer-shapes"},
           {"make-dynamic", model, "--verify", "off"},
           {"rewrite", model, "--to", "ort", "--verify", "off"},
           {"rewrite", model, "--to", "pyramid:16", "--capacity", "32", "--verify", "off"}}) {
    std::vector<std::string> whole = arguments;
    whole.insert(whole.end(), {"-o", folder.path("out/n.onnx")});
    ProgramResult written = runProgram(whole);
    ASSERT_TRUE(written.code == 0 || arguments[0] == "make-dynamic") << written.err;
    EXPECT_EQ(fs::hard_link_count(data), 1u) << arguments[0];
    fs::remove_all(folder.path("out"));
    fs::create_directory(folder.path("out"));
  }
}

TEST_F(ExternalDataTest, HolesOfACopyStayHoles) {
  constexpr uintmax_t size = uintmax_t(1) << 30;
  fs::resize_file(data, size);
  ASSERT_EQ(rewrite(folder.path("out/n.onnx"), {"--verify", "off"}).code, 0);
  struct stat copied {};
  ASSERT_EQ(::stat(folder.path("out/m.onnx.data").c_str(), &copied), 0);
  EXPECT_EQ(static_cast<uintmax_t>(copied.st_size), size);
  EXPECT_LT(static_cast<uintmax_t>(copied.st_blocks) * 512, size / 16);
  // The comparison with an existing copy skips them.
  EXPECT_EQ(rewrite(folder.path("out/o.onnx"), {"--verify", "off"}).code, 0);
}

TEST_F(ExternalDataTest, NothingIsLeftWithoutAnOutput) {
  EXPECT_EQ(runProgram({"rewrite", model, "-o", folder.path("out/n.onnx"), "--to", "ring"}).code,
            1);
  EXPECT_EQ(rewrite(folder.path("out/n.onnx"), {"--dry-run"}).code, 0);
  EXPECT_TRUE(filesIn("out").empty());
  fs::create_directory(folder.path("out/n.onnx"));
  for (const char* placement : {"keep", "link"}) {
    EXPECT_EQ(rewrite(folder.path("out/n.onnx"), {"--external-data", placement}).code, 2);
    EXPECT_EQ(filesIn("out").size(), 1u) << placement;
  }
}

TEST_F(ExternalDataTest, AnotherFileOfItsNameIsNotReplaced) {
  const std::string output = folder.path("out/n.onnx");
  folder.write("out/m.onnx.data", "of another model");
  for (const char* placement : {"keep", "link"}) {
    ProgramResult kept = rewrite(output, {"--external-data", placement, "--verify", "off"});
    EXPECT_EQ(kept.code, 2);
    EXPECT_THAT(kept.err, HasSubstr("--external-data copy"));
    EXPECT_EQ(folder.read("out/m.onnx.data"), "of another model");
  }
  // One of the same size is no better.
  folder.write("out/m.onnx.data", std::string(fs::file_size(data), 'x'));
  EXPECT_EQ(rewrite(output, {"--verify", "off"}).code, 2);
  EXPECT_EQ(filesIn("out").size(), 1u);
  fs::remove(folder.path("out/m.onnx.data"));
  EXPECT_TRUE(filesIn("out").empty());

  ProgramResult copied = rewrite(output, {"--external-data", "copy"});
  ASSERT_EQ(copied.code, 0) << copied.err;
  EXPECT_THAT(copied.out, HasSubstr("weights in n.onnx.data)"));
  EXPECT_EQ(filesIn("out"), (std::vector<std::string>{"n.kv.json", "n.onnx", "n.onnx.data"}));
  EXPECT_EQ(runProgram({"verify", model, output}).code, 0);

  const std::string whole = folder.path("out/i.onnx");
  ASSERT_EQ(rewrite(whole, {"--external-data", "inline"}).code, 0);
  EXPECT_EQ(filesIn("out").size(), 5u);
  EXPECT_EQ(runProgram({"verify", output, whole}).code, 0);
  nlohmann::json json = runJson({"rewrite", model, "-o", folder.path("out/j.onnx"), "--to",
                                 "onnx24", "--external-data", "copy", "--verify", "off"});
  EXPECT_EQ(json["external_data"]["placement"], "copy");
  EXPECT_EQ(json["external_data"]["files"],
            nlohmann::json::array({folder.path("out/j.onnx.data")}));
}

TEST_F(ExternalDataTest, NoInputIsOverwritten) {
  const std::string before = folder.read("in/m.onnx") + folder.read("in/m.onnx.data");
  fs::create_hard_link(data, folder.path("out/hard"));
  for (const std::string& output : {data, folder.path("out/hard")}) {
    EXPECT_EQ(rewrite(output, {"--external-data", "copy"}).code, 2) << output;
    EXPECT_EQ(rewrite(folder.path("in/n.onnx"), {"--manifest", output}).code, 2) << output;
  }
  // The copy's own name may be that of the input, or of another output.
  fs::rename(model, folder.path("in/x.onnx.data"));
  model = folder.path("in/x.onnx.data");
  EXPECT_EQ(rewrite(folder.path("in/x.onnx"), {"--external-data", "copy"}).code, 2);
  EXPECT_EQ(rewrite(folder.path("out/n.onnx"),
                    {"--external-data", "copy", "--manifest", folder.path("out/n.onnx.data")})
                .code,
            2);
  EXPECT_EQ(folder.read("in/x.onnx.data") + folder.read("in/m.onnx.data"), before);
  EXPECT_EQ(filesIn("in").size(), 2u);
  EXPECT_EQ(filesIn("out").size(), 1u);
}

TEST_F(ExternalDataTest, ALimitOnFilesLeavesNothingBehind) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  auto handler = std::signal(SIGXFSZ, SIG_IGN);
  // One that the data exceeds, and one that the model does.
  for (rlim_t most : {rlim_t{1} << 16, rlim_t{1} << 12})
    for (const char* placement : {"copy", "inline", "keep"}) {
      const bool isKept = placement == std::string("keep");
      rlimit limit = before;
      limit.rlim_cur = isKept ? 1 << 12 : most;
      ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
      testing::internal::CaptureStderr();
      const std::vector<std::string> arguments{
          "rewrite", model,      "-o",       folder.path(isKept ? "in/n.onnx" : "out/n.onnx"),
          "--to",    "onnx24",   "--verify", "off",
          "--quiet", "--format", "json",     "--external-data",
          placement};
      std::vector<const char*> argv{"kvopt"};
      for (const std::string& argument : arguments)
        argv.push_back(argument.c_str());
      const int code = runApp(static_cast<int>(argv.size()), argv.data());
      ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
      EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("File too large"));
      EXPECT_EQ(code, 3) << placement << most;
      EXPECT_TRUE(filesIn("out").empty()) << placement << most;
      EXPECT_EQ(filesIn("in").size(), 2u) << placement << most;
    }
  std::signal(SIGXFSZ, handler);
}

/// What every command says of a model whose data is not as it must be.
void expectRefusal(const std::string& path, const std::string& output, const std::string& what) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"inspect", path},
        {"explain", path},
        {"run", path, "--tokens", "1,2", "--steps", "1"},
        {"rewrite", path, "-o", output, "--to", "onnx24", "--verify", "off"},
        {"rewrite", path, "-o", output, "--to", "onnx24", "--external-data", "copy"},
        {"rewrite", path, "-o", output, "--to", "onnx24", "--external-data", "inline"}}) {
    ProgramResult result = runProgram(arguments);
    EXPECT_EQ(result.code, 3) << arguments[0] << result.err;
    EXPECT_THAT(result.err, HasSubstr(what)) << arguments[0];
    EXPECT_FALSE(fs::exists(output));
  }
}

TEST_F(ExternalDataTest, MissingAndShortFiles) {
  const std::string output = folder.path("in/n.onnx");
  fs::resize_file(data, fs::file_size(data) - 1);
  expectRefusal(model, output, "were asked for");
  fs::remove(data);
  expectRefusal(model, output, "No such file");
  fs::create_symlink(folder.path("out"), data);
  expectRefusal(model, output, "leads out of the folder");
}

TEST_F(ExternalDataTest, PathsThatLeaveTheFolder) {
  // The location is exchanged for one of the same length.
  fs::rename(data, folder.path("secret"));
  fs::create_symlink("../secret", data);
  const std::string output = folder.path("in/n.onnx");
  expectRefusal(model, output, "leads out of the folder");
  fs::copy(folder.path("secret"), folder.path("x.data"));
  std::string hostile = folder.read("in/m.onnx");
  const std::string old = "m.onnx.data";
  for (size_t at = hostile.find(old); at != std::string::npos; at = hostile.find(old, at + 1))
    hostile.replace(at, old.size(), "../x.data//");
  expectRefusal(folder.write("in/h.onnx", hostile), output, "has a '..' component");
}

/// The model and its data in a download cache: links into a folder of blobs.
class DownloadCacheTest : public ExternalDataTest {
protected:
  DownloadCacheTest() {
    fs::create_directories(folder.path("hub/blobs"));
    fs::create_directories(folder.path("hub/snapshots/1/onnx"));
    fs::rename(model, folder.path("hub/blobs/a1"));
    fs::rename(data, folder.path("hub/blobs/b2"));
    fs::create_symlink("../../../blobs/a1", link);
    fs::create_symlink("../../../blobs/b2", folder.path("hub/snapshots/1/onnx/m.onnx.data"));
    model = link;
    data = folder.path("hub/blobs/b2");
  }

  std::string link = folder.path("hub/snapshots/1/onnx/m.onnx");
};

TEST_F(DownloadCacheTest, IsReadThroughItsLinks) {
  EXPECT_EQ(runProgram({"inspect", link}).code, 0);
  EXPECT_EQ(runProgram({"explain", link}).code, 0);
  EXPECT_EQ(runProgram({"run", link, "--tokens", "1,2", "--steps", "2"}).code, 0);
  for (const char* placement : {"copy", "inline"}) {
    const std::string output = folder.path("out/" + std::string(placement) + ".onnx");
    ProgramResult written = rewrite(output, {"--external-data", placement});
    EXPECT_EQ(written.code, 0) << written.err;
    EXPECT_EQ(runProgram({"verify", link, output}).code, 0);
  }
}

TEST_F(DownloadCacheTest, DataStaysWhereTheOutputFindsIt) {
  for (const char* output : {"hub/n.onnx", "hub/blobs/n.onnx", "n.onnx"}) {
    ProgramResult written = rewrite(folder.path(output));
    EXPECT_EQ(written.code, 0) << output << written.err;
    EXPECT_EQ(runProgram({"verify", link, folder.path(output)}).code, 0) << output;
  }
  // A file beside the links has no store.
  ProgramResult beside = rewrite(folder.path("hub/snapshots/1/onnx/n.onnx"));
  EXPECT_EQ(beside.code, 2);
  EXPECT_THAT(beside.err, HasSubstr("--external-data copy"));
  EXPECT_EQ(filesIn("hub/snapshots/1/onnx").size(), 2u);
}

TEST_F(DownloadCacheTest, DataMayBeBesideTheRealFile) {
  fs::remove(folder.path("hub/snapshots/1/onnx/m.onnx.data"));
  fs::rename(data, folder.path("hub/blobs/m.onnx.data"));
  EXPECT_EQ(runProgram({"run", link, "--tokens", "1,2", "--steps", "2"}).code, 0);
  const std::string output = folder.path("out/n.onnx");
  EXPECT_EQ(rewrite(output, {"--external-data", "copy"}).code, 0);
  EXPECT_EQ(runProgram({"verify", link, output}).code, 0);
  // It is a file of the model, which no output replaces.
  EXPECT_EQ(rewrite(folder.path("hub/blobs/m.onnx.data"), {"--external-data", "copy"}).code, 2);
}

TEST_F(DownloadCacheTest, NoBlobIsOverwritten) {
  const std::string before = folder.read("hub/blobs/a1") + folder.read("hub/blobs/b2");
  for (const char* output : {"hub/blobs/a1", "hub/blobs/b2"})
    EXPECT_EQ(rewrite(folder.path(output), {"--external-data", "copy"}).code, 2) << output;
  EXPECT_EQ(folder.read("hub/blobs/a1") + folder.read("hub/blobs/b2"), before);
}

TEST_F(DownloadCacheTest, LinksOutOfTheCacheStayRefused) {
  const std::string name = folder.path("hub/snapshots/1/onnx/m.onnx.data");
  fs::rename(data, folder.path("hub/secret"));
  fs::create_symlink("../secret", data);
  expectRefusal(link, folder.path("out/n.onnx"), "leads out of the folder");
  fs::remove(name);
  fs::create_symlink("../../../secret", name);
  expectRefusal(link, folder.path("out/n.onnx"), "leads out of the folder");
}

TEST_F(ExternalDataTest, Overlaps) {
  // The second tensor starts where the first does.
  std::string bytes = folder.read("in/m.onnx");
  const size_t second = bytes.find("offset\x12\x05"
                                   "16384");
  ASSERT_NE(second, std::string::npos);
  bytes.replace(second + 8, 5, "00000");
  expectRefusal(folder.write("in/h.onnx", bytes), folder.path("in/n.onnx"), "overlaps");
}

} // namespace
} // namespace kvopt
