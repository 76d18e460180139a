// Recorded steps in files and in folders, and what is not of either form.
#include "runtime/equivalence/reference_steps.h"

#include "support/diagnostic.h"
#include "tests/runtime/equivalence/reference_files.h"
#include "tests/support/temporary_folder.h"

#include <gmock/gmock.h>

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string shipped(const std::string& name) {
  return std::string(KVOPT_SOURCE_DIR) + "/models/gpt2-dynamo18-eager/" + name;
}

/// The error, which names `path`; "" where there is none.
std::string refusal(const std::string& path) {
  auto steps = readReference(path);
  if (steps)
    return "";
  const std::string text = takeDiagnostic(steps.takeError()).str();
  EXPECT_THAT(text, HasSubstr(path));
  return text;
}

std::vector<std::string> namesOf(const NamedTensors& tensors) {
  std::vector<std::string> names;
  for (const auto& entry : tensors)
    names.push_back(entry.first);
  return names;
}

void expectSame(const NamedTensors& a, const NamedTensors& b) {
  ASSERT_EQ(namesOf(a), namesOf(b));
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].second->elementType(), b[i].second->elementType());
    EXPECT_EQ(a[i].second->shape(), b[i].second->shape());
    auto left = llvm::cantFail(a[i].second->bytes());
    auto right = llvm::cantFail(b[i].second->bytes());
    EXPECT_TRUE(std::equal(left.begin(), left.end(), right.begin(), right.end())) << a[i].first;
  }
}

class ReferenceStepsTest : public testing::Test {
protected:
  /// A file whose initializers have these names.
  std::string fileOf(const std::vector<std::string>& names) const {
    NamedTensors tensors;
    for (const std::string& name : names)
      tensors.emplace_back(name, floatTensor({1, 2}));
    return writeReferenceFile(folder.path("case.onnx"), tensors);
  }
  /// The same with other bytes in the place of some.
  std::string patched(const std::vector<std::string>& names, const std::string& from,
                      const std::string& to) const {
    fileOf(names);
    std::string bytes = folder.read("case.onnx");
    const size_t place = bytes.rfind(from);
    EXPECT_NE(place, std::string::npos);
    return folder.write("patched.onnx", bytes.replace(place, from.size(), to));
  }

  TemporaryFolder folder;
};

TEST_F(ReferenceStepsTest, StepsComeInTheOrderOfTheirNumbers) {
  auto steps = llvm::cantFail(readReference(shipped("ref/b1.onnx")));
  ASSERT_EQ(steps.size(), 7u);
  EXPECT_EQ(steps.front().tokens, 7);
  EXPECT_EQ(steps.back().tokens, 3);
  EXPECT_EQ(referenceLength(steps), 15);
  EXPECT_EQ(referenceBatch(steps), 1);
  EXPECT_EQ(referenceExtent(steps, "input_ids", 1), 7);
  EXPECT_EQ(referenceExtent(steps, "input_ids", 2), std::nullopt);
  EXPECT_EQ(referenceExtent(steps, "absent", 0), std::nullopt);
}

TEST_F(ReferenceStepsTest, TensorsKeepTheirOrderAndTheirNames) {
  auto steps = llvm::cantFail(readReference(
      fileOf({"step1_q1/output/z", "step10_q1/input/x", "step0_q3/input/b", "step0_q3/output/a/b",
              "step0_q3/input/a", "step2_q1/input/x", "step3_q1/input/x", "step4_q1/input/x",
              "step5_q1/input/x", "step6_q1/input/x", "step7_q1/input/x", "step8_q1/input/x",
              "step9_q1/input//", "step1_q1/input/z"})));
  ASSERT_EQ(steps.size(), 11u);
  EXPECT_EQ(steps[0].tokens, 3);
  EXPECT_THAT(namesOf(steps[0].inputs), ElementsAre("b", "a"));
  EXPECT_THAT(namesOf(steps[0].outputs), ElementsAre("a/b"));
  EXPECT_EQ(steps[1].tokens, 1);
  EXPECT_THAT(namesOf(steps[1].inputs), ElementsAre("z"));
  EXPECT_THAT(namesOf(steps[1].outputs), ElementsAre("z"));
  EXPECT_THAT(namesOf(steps[9].inputs), ElementsAre("/"));
}

TEST_F(ReferenceStepsTest, AFolderHoldsTheSameAsAFile) {
  auto fromFile = llvm::cantFail(readReference(shipped("ref/b1.onnx")));
  auto fromFolder =
      llvm::cantFail(readReference(writeReferenceFolder(folder.path("case"), fromFile)));
  ASSERT_EQ(fromFile.size(), fromFolder.size());
  for (size_t i = 0; i < fromFile.size(); ++i) {
    EXPECT_EQ(fromFile[i].tokens, fromFolder[i].tokens);
    EXPECT_EQ(fromFile[i].inputs.size(), 7u);
    EXPECT_EQ(fromFile[i].outputs.size(), 5u);
    expectSame(fromFile[i].inputs, fromFolder[i].inputs);
    expectSame(fromFile[i].outputs, fromFolder[i].outputs);
  }
}

TEST_F(ReferenceStepsTest, NamesOfAnotherForm) {
  for (const char* name :
       {"w", "step0_q1", "step0_q1/input", "step0_q1/input/", "step0_q1/inputs/x", "step0/input/x",
        "step0_q0/input/x", "step0_q-1/input/x", "step-1_q1/input/x", "step00_q1/input/x",
        "step0_q01/input/x", "step0_q1x/input/x", "/step0_q1/input/x", "step_q1/input/x",
        "step0_q4294967297/input/x", "step0_q99999999999999999999/input/x"})
    EXPECT_THAT(refusal(fileOf({"step0_q1/input/y", name})),
                AllOf(HasSubstr(std::string("'") + name + "'"),
                      HasSubstr("not the name of a recorded tensor")))
        << name;
}

TEST_F(ReferenceStepsTest, NumbersThatDoNotCountFrom0) {
  EXPECT_THAT(refusal(fileOf({})), HasSubstr("no recorded steps"));
  EXPECT_THAT(refusal(fileOf({"step1_q1/input/x"})), HasSubstr("step 0 is missing"));
  EXPECT_THAT(refusal(fileOf({"step0_q1/input/x", "step3_q1/input/x", "step1_q1/input/x"})),
              HasSubstr("step 2 is missing"));
  EXPECT_THAT(refusal(fileOf({"step0_q1/input/x", "step0_q2/input/y"})),
              HasSubstr("step 0 has 2 tokens, and 1 in another tensor's name"));
}

TEST_F(ReferenceStepsTest, TwoTensorsOfOneName) {
  ASSERT_EQ(refusal(fileOf({"step0_q1/input/x", "step0_q1/input/y"})), "");
  EXPECT_THAT(refusal(patched({"step0_q1/input/x", "step0_q1/input/y"}, "input/y", "input/x")),
              HasSubstr("step0_q1/input/x"));
}

TEST_F(ReferenceStepsTest, ContentsOfAnotherSizeThanTheShape) {
  // The extent and the element type.
  EXPECT_THAT(refusal(patched({"step0_q1/input/x"}, std::string("\x08\x02\x10\x01", 4),
                              std::string("\x08\x03\x10\x01", 4))),
              HasSubstr("8 bytes, its shape and type need 12"));
}

TEST_F(ReferenceStepsTest, SparseTensors) {
  auto field = [](unsigned number, const std::string& content) {
    return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(content.size())} +
           content;
  };
  const std::string values = std::string("\x08\x01\x10\x01", 4) + field(8, "step0_q1/input/x") +
                             field(9, std::string(4, '\0'));
  const std::string indices = std::string("\x08\x01\x10\x07", 4) + field(9, std::string(8, '\0'));
  const std::string graph = field(15, field(1, values) + field(2, indices) + "\x18\x02");
  EXPECT_THAT(refusal(folder.write("sparse.onnx", "\x08\x08" + field(7, graph))),
              AllOf(HasSubstr("step0_q1/input/x"), HasSubstr("sparse")));
}

TEST_F(ReferenceStepsTest, FilesThatAreNoRecordings) {
  EXPECT_THAT(refusal(folder.write("text", "step0_q1\n")), HasSubstr("not an ONNX model"));
  EXPECT_THAT(refusal(folder.write("empty", "")), HasSubstr("empty"));
  EXPECT_THAT(refusal(shipped("model.onnx")), HasSubstr("a model that computes"));
  const std::string cut = folder.path("cut.onnx");
  std::filesystem::copy(shipped("ref/b1.onnx"), cut);
  std::filesystem::resize_file(cut, std::filesystem::file_size(cut) / 2);
  EXPECT_THAT(refusal(cut), HasSubstr("truncated"));
}

TEST_F(ReferenceStepsTest, FoldersThatAreNoRecordings) {
  EXPECT_NE(refusal(folder.path("missing")), "");
  EXPECT_THAT(refusal(folder.path()), HasSubstr("no step"));
  const std::string whole = folder.path("case");
  writeReferenceFolder(whole, llvm::cantFail(readReference(shipped("ref/b1.onnx"))));
  ASSERT_EQ(refusal(whole), "");
  std::filesystem::rename(whole + "/step2_q1", whole + "/step7_q1");
  EXPECT_THAT(refusal(whole), HasSubstr("step 2 is missing"));
  std::filesystem::rename(whole + "/step7_q1", whole + "/step1_q2");
  EXPECT_THAT(refusal(whole), HasSubstr("step 1 is recorded twice"));
  std::filesystem::rename(whole + "/step1_q2", whole + "/step2_q1");
  const std::string tensor = whole + "/step1_q1/output_0.pb";
  std::filesystem::resize_file(tensor, std::filesystem::file_size(tensor) / 2);
  EXPECT_THAT(refusal(whole), HasSubstr("output_0.pb"));
}

TEST_F(ReferenceStepsTest, CasesAreFilesAndFolders) {
  EXPECT_TRUE(referenceCases(folder.path()).empty());
  std::filesystem::create_directories(folder.path("ref/b2"));
  std::filesystem::create_directories(folder.path("ref/b3.of"));
  folder.write("ref/b1.onnx", "");
  folder.write("ref/b2.onnx", "");
  folder.write("ref/notes.txt", "");
  std::vector<std::string> found;
  for (const ReferenceCase& each : referenceCases(folder.path()))
    found.push_back(each.name + " " + each.path.substr(folder.path().size()));
  EXPECT_THAT(found,
              ElementsAre("b1 /ref/b1.onnx", "b2 /ref/b2", "b2 /ref/b2.onnx", "b3.of /ref/b3.of"));
}

TEST_F(ReferenceStepsTest, TheBatchIsThatOfTokensOrEmbeddings) {
  auto steps = llvm::cantFail(readReference(shipped("ref/b1.onnx")));
  const auto rename = [&](const std::string& from, const std::string& to) {
    for (auto& [name, tensor] : steps.front().inputs)
      if (name == from)
        name = to;
  };
  rename("input_ids", "inputs_embeds");
  EXPECT_EQ(referenceBatch(steps), 1);
  rename("inputs_embeds", "anything");
  EXPECT_EQ(referenceBatch(steps), std::nullopt);
}

} // namespace
} // namespace kvopt
