// Every form of every shipped model, by a table: it computes what the exported model computes and
// what PyTorch recorded of it, it is written alike every time and read as it was written, and
// function bodies compute what kernels do.
#include "driver/forms/form_table.h"
#include "driver/verify/references.h"
#include "tests/equivalence/corpus/reference_rows.h"
#include "tests/equivalence/rewritten_model.h"

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace runtime;

namespace {

/// What becomes of a written file that is rewritten to its form once more.
enum class Again { IsTheSame, IsRefused, NeedsItsFiles };

struct FormRow {
  const char* name;
  const char* target;
  const char* options;
  Again again;
  bool hasBodies = false; ///< has operators of kvopt, which are functions
  int codeBits = 0;       ///< of rows that are codes; 0: rows are numbers
  bool isInPlace = false; ///< sessions copy no row
  Tolerance tolerance = {1e-4, 0};
};

void PrintTo(const FormRow& row, std::ostream* out) { *out << row.name; }

/// Blocks have fewer rows than the prompts have tokens.
const FormRow formRows[] = {
    {"kvopt", "kvopt", "", Again::IsTheSame, true, 0, true},
    {"onnx24", "onnx24", "", Again::IsRefused},
    {"onnx23", "onnx23", "", Again::IsTheSame},
    {"ort_gqa", "ort-gqa", "", Again::IsTheSame, false, 0, true},
    {"primitive", "primitive", "", Again::IsTheSame},
    {"blocks", "blocks:9", "capacity=130", Again::IsRefused, true},
    {"blocks_plain", "blocks-plain:9", "capacity=130", Again::IsRefused},
    {"pyramid", "pyramid:9", "capacity=70", Again::NeedsItsFiles},
    {"tiles", "tiles:9", "capacity=70 state=float32", Again::NeedsItsFiles},
    {"tiles_float16",
     "tiles:9",
     "capacity=70 state=float16",
     Again::NeedsItsFiles,
     false,
     0,
     false,
     {2e-2, 5e-3}},
    {"int8", "int8", "", Again::IsRefused, false, 8},
    {"int4", "int4", "", Again::IsRefused, false, 4},
    {"int8_blocks", "int8-blocks:9", "capacity=150", Again::IsRefused, false, 8},
};

using FormCell = std::tuple<FormRow, ShippedModel>;

class Forms : public testing::TestWithParam<FormCell> {
protected:
  const FormRow& form() const { return std::get<0>(GetParam()); }
  const ShippedModel& shipped() const { return std::get<1>(GetParam()); }
  std::string path() const { return modelFolder(shipped().name) + "/model.onnx"; }
  DrivenModel written() const { return rewritten(path(), toolkit, form().options, form().target); }

  Toolkit toolkit;
};

TEST_P(Forms, ComputeWhatTheExportedModelDoes) {
  const DrivenModel exported = asExported(path(), toolkit);
  const DrivenModel driven = written();
  VerificationPlan plan = fullVerification();
  plan.setTolerance(form().tolerance);
  const VerificationReport report = valueOrThrow(verifyModels(
      *exported.model, exported.manifest, *driven.model, driven.manifest, plan, 1, toolkit));
  EXPECT_TRUE(report.equal()) << verificationSummary(report);
  EXPECT_EQ(report.runs.front().plan.batch, 3);
  if (form().isInPlace) {
    EXPECT_EQ(report.cacheBytesCopied, 0);
  }
  EXPECT_EQ(report.quantization.has_value(), form().codeBits != 0);
  if (report.quantization) {
    EXPECT_EQ(report.quantization->bits, form().codeBits);
    EXPECT_EQ(report.quantization->sites, shipped().sites);
    EXPECT_TRUE(report.quantization->rowsIdentical);
    EXPECT_GT(report.quantization->deviation.largest, 0);
    EXPECT_LT(report.quantization->deviation.largest, report.quantization->deviation.magnitude);
  }
}

/// Forms whose rows are numbers.
using FormsOfNumbers = Forms;

TEST_P(FormsOfNumbers, ComputeWhatPyTorchRecorded) {
  const std::string paths[] = {path()};
  const ReferenceTable table = valueOrThrow(compareWithReferences(
      paths, {ModelForm::Shared}, 1, toolkit, valueOrThrow(presetForm(form().target))));
  EXPECT_TRUE(table.equal()) << failuresOf(table);
  EXPECT_GE(table.count(ReferenceVerdict::Equal), 1U);
  for (const ReferenceRow& row : table.rows) {
    EXPECT_EQ(row.comparedTo, "recorded");
    EXPECT_GE(row.steps, 6U);
  }
}

TEST_P(Forms, AreWrittenAlikeAndReadAsTheyWereWritten) {
  const DrivenModel once = written();
  const DrivenModel twice = written();
  EXPECT_TRUE(valueOrThrow(exportModelBytes(*once.model)) ==
              valueOrThrow(exportModelBytes(*twice.model)));
  EXPECT_EQ(once.manifest.json(), twice.manifest.json());
  if (form().again == Again::NeedsItsFiles)
    return;
  const TemporaryFolder folder;
  const std::string file = folder.path("written.onnx");
  successOrThrow(exportModel(*once.model, file));
  EXPECT_EQ(asExported(file, toolkit).manifest.json(), once.manifest.json());
  // What is read and not edited is written back byte for byte.
  successOrThrow(
      exportModel(*valueOrThrow(importModel(file, toolkit.ops)), folder.path("again.onnx")));
  EXPECT_TRUE(folder.read("again.onnx") == folder.read("written.onnx"));
  if (form().again == Again::IsRefused) {
    EXPECT_THROW(rewritten(file, toolkit, form().options, form().target), std::runtime_error);
    return;
  }
  const DrivenModel again = rewritten(file, toolkit, form().options, form().target);
  EXPECT_EQ(again.manifest.json(), once.manifest.json());
  // Lengths of buffers may be computed once more.
  if (!form().hasBodies) {
    EXPECT_EQ(again.model->graph().nodes().size(), once.model->graph().nodes().size());
  }
}

using FormsWithBodies = Forms;

TEST_P(FormsWithBodies, ComputeWhatKernelsDo) {
  const DrivenModel driven = written();
  const auto standard = standardKernels(toolkit);
  const EquivalencePlan plan = shortPlan(*driven.model);
  SessionOptions options;
  options.batch = plan.batch;
  if (!driven.manifest.capacityValue)
    options.capacity = plan.totalTokens() + 3;
  auto fused = openSession(driven, toolkit.runner->kernels(), options);
  // Zero times a poisoned row is no zero in plain matrix products; a body may read zeros there.
  auto body = valueOrThrow(Session::create(*driven.model, *standard, driven.manifest, options));
  EXPECT_NE(&fused->graph(), &body->graph());
  const ComparisonReport report = valueOrThrow(compareSessions(*fused, *body, plan));
  EXPECT_TRUE(report.equal());
  EXPECT_TRUE(report.tokensEqual);
}

std::string cellName(const testing::TestParamInfo<FormCell>& parameter) {
  std::string name =
      std::string(std::get<0>(parameter.param).name) + "_of_" + std::get<1>(parameter.param).name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

auto cellsWhere(bool (*isTaken)(const FormRow&)) {
  std::vector<FormRow> rows;
  std::copy_if(std::begin(formRows), std::end(formRows), std::back_inserter(rows), isTaken);
  return testing::Combine(testing::ValuesIn(rows), shippedModels());
}

INSTANTIATE_TEST_SUITE_P(All, Forms, cellsWhere([](const FormRow&) { return true; }), cellName);
INSTANTIATE_TEST_SUITE_P(All, FormsOfNumbers,
                         cellsWhere([](const FormRow& row) { return row.codeBits == 0; }),
                         cellName);
INSTANTIATE_TEST_SUITE_P(All, FormsWithBodies,
                         cellsWhere([](const FormRow& row) { return row.hasBodies; }), cellName);

} // namespace
} // namespace kvopt
