// What ONNX Runtime's optimizer makes of models: the same attention sites, and the same results.
//
// optimizer.sh writes the optimized models to a folder that it names in KVOPT_OPTIMIZED_MODELS, a
// subfolder for each level. With KVOPT_OPTIMIZER_OUTPUT the table of differences is written to that
// file instead of being compared.
#include "ir/onnx/import.h"
#include "support/diagnostic.h"
#include "tests/transformations/expected_differences.h"
#include "tests/transformations/subject.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace kvopt {
using namespace driver;
using namespace ir;

namespace {

namespace fs = std::filesystem;

class Optimizer : public testing::TestWithParam<const char*> {
protected:
  void SetUp() override {
    const char* folder = std::getenv("KVOPT_OPTIMIZED_MODELS");
    ASSERT_NE(folder, nullptr) << "optimizer.sh runs this test";
    optimized = fs::path(folder) / GetParam();
  }

  /// The subject's model as it was optimized; a null model where ONNX Runtime does not load it.
  llvm::Expected<TransformedModel> readOptimized(const Subject& subject) {
    TransformedModel transformed;
    const fs::path file = optimized / (subject.name + ".onnx");
    if (!fs::exists(file))
      return transformed;
    auto model = importModel(file.string(), toolkit.ops);
    if (!model)
      return model.takeError();
    transformed.model = std::move(*model);
    return transformed;
  }

  llvm::Error check(const Subject& subject, bool runs) {
    auto transformed = readOptimized(subject);
    if (!transformed || !transformed->model)
      return transformed.takeError();
    ++read;
    auto sites = siteDifference(subject, *transformed, toolkit);
    if (!sites)
      return sites.takeError();
    if (!sites->empty())
      differs(subject, *sites);
    if (!runs)
      return llvm::Error::success();
    auto results = resultDifference(subject, *transformed, Rounding::Reordered, toolkit);
    if (!results)
      return results.takeError();
    EXPECT_EQ(*results, "") << "before and after it is optimized";
    auto rewritten = rewriteDifference(*transformed->model, toolkit);
    if (!rewritten)
      return rewritten.takeError();
    EXPECT_EQ(*rewritten, "") << "before and after the optimized model is rewritten";
    return llvm::Error::success();
  }

  void differs(const Subject& subject, const std::string& sites) {
    const bool isMissed = sites.find("+ ") == std::string::npos ||
                          sites.find(" missed: ", sites.find("+ ")) != std::string::npos;
    table +=
        formatted("{} | {} | {}\n", GetParam(), subject.name,
                  isMissed ? "attention in fused operators is missed" : "other facts are found");
    const bool isWritten = std::getenv("KVOPT_OPTIMIZER_OUTPUT") != nullptr;
    if (!isWritten && !expected.takes(GetParam(), subject.name))
      ADD_FAILURE() << "other sites, of which - were found before and + are found after:\n"
                    << sites;
  }

  Toolkit toolkit;
  fs::path optimized;
  ExpectedDifferences expected{"optimizer_differences.txt"};
  std::string table;
  size_t read = 0;
};

TEST_P(Optimizer, KeepsSitesAndResults) {
  std::vector<Subject> subjects = shippedSubjects();
  for (Subject& subject : corpusSubjects())
    subjects.push_back(std::move(subject));
  // Another fifth of the models runs at each level.
  size_t place = static_cast<size_t>(GetParam()[0]);
  for (const Subject& subject : subjects) {
    SCOPED_TRACE(subject.name);
    if (llvm::Error error = check(subject, ++place % 5 == 0))
      ADD_FAILURE() << takeDiagnostic(std::move(error)).str();
  }
  EXPECT_GE(read, subjects.size() * 9 / 10);
  if (const char* output = std::getenv("KVOPT_OPTIMIZER_OUTPUT")) {
    std::ofstream(output, std::ios::app) << table;
    return;
  }
  for (const std::string& mended : expected.unused(GetParam(), subjects))
    ADD_FAILURE() << "not different any more, so run optimizer.sh --write: " << mended;
}

INSTANTIATE_TEST_SUITE_P(Levels, Optimizer, testing::Values("basic", "extended", "all"),
                         [](const auto& level) { return std::string(level.param); });

} // namespace
} // namespace kvopt
