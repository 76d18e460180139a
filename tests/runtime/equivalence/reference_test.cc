// Reference folders that are not what they should be, and reports that compared nothing.
#include "runtime/equivalence/reference.h"

#include "support/diagnostic.h"
#include "tests/support/temporary_folder.h"

namespace kvopt {
namespace {

std::string refusal(const std::string& folder) {
  auto steps = readReference(folder);
  if (steps)
    return "";
  return takeDiagnostic(steps.takeError()).str();
}

std::string recorded() {
  return std::string(KVOPT_SOURCE_DIR) + "/models/gpt2-dynamo18-eager/ref/b1";
}

TEST(ReferenceTest, ReadsStepsInOrder) {
  auto steps = llvm::cantFail(readReference(recorded()));
  ASSERT_EQ(steps.size(), 7u);
  EXPECT_EQ(steps.front().tokens, 7);
  EXPECT_EQ(steps.back().tokens, 3);
  EXPECT_EQ(referenceLength(steps), 15);
  EXPECT_EQ(llvm::cantFail(referenceBatch(steps)), 1);
}

TEST(ReferenceTest, TheBatchIsThatOfTokensOrEmbeddings) {
  auto steps = llvm::cantFail(readReference(recorded()));
  const auto rename = [&](const std::string& from, const std::string& to) {
    for (auto& [name, tensor] : steps.front().inputs)
      if (name == from)
        name = to;
  };
  rename("input_ids", "inputs_embeds");
  EXPECT_EQ(llvm::cantFail(referenceBatch(steps)), 1);
  rename("inputs_embeds", "anything");
  auto batch = referenceBatch(steps);
  ASSERT_FALSE(batch);
  EXPECT_NE(takeDiagnostic(batch.takeError()).str().find("inputs_embeds"), std::string::npos);
}

TEST(ReferenceTest, WrongFolders) {
  TemporaryFolder folder;
  EXPECT_NE(refusal(folder.path("missing")).find("missing"), std::string::npos);
  EXPECT_NE(refusal(folder.path()).find("no step"), std::string::npos);
  EXPECT_NE(refusal(folder.write("file", "x")), "");
}

TEST(ReferenceTest, AMissingStepAndATruncatedTensor) {
  TemporaryFolder folder;
  std::filesystem::copy(recorded(), folder.path("case"), std::filesystem::copy_options::recursive);
  ASSERT_EQ(refusal(folder.path("case")), "");
  std::filesystem::remove_all(folder.path("case/step2_q1"));
  EXPECT_NE(refusal(folder.path("case")).find("step 2 is missing"), std::string::npos);

  std::filesystem::copy(recorded(), folder.path("cut"), std::filesystem::copy_options::recursive);
  std::string tensor = folder.path("cut/step1_q1/output_0.pb");
  std::filesystem::resize_file(tensor, std::filesystem::file_size(tensor) / 2);
  EXPECT_NE(refusal(folder.path("cut")).find("output_0.pb"), std::string::npos);
}

TEST(ReferenceTest, AReportInWhichNothingWasComparedIsNotEqual) {
  ComparisonReport report;
  EXPECT_FALSE(report.equal());
  EXPECT_EQ(report.worst(), nullptr);
  report.steps.resize(2);
  report.steps[0].outputs.push_back({"empty", {}, 5});
  EXPECT_FALSE(report.equal());
  Comparison fine;
  fine.compared = 1;
  report.steps[1].caches.push_back({"cache", fine, 0});
  EXPECT_TRUE(report.equal());
  fine.violations = 1;
  report.steps[1].outputs.push_back({"wrong", fine, 0});
  EXPECT_FALSE(report.equal());
}

} // namespace
} // namespace kvopt
