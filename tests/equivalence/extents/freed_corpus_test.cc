// Every decoder of the corpora, exported for one step only and made dynamic again, computes what it
// did before: the table of tests/golden/freed_extents.txt.
#include "driver/rewrite/rewrite.h"
#include "driver/verify/references.h"
#include "tests/equivalence/corpus/corpus.h"
#include "tests/equivalence/extents/fixed_export.h"

#include <fstream>

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace runtime;

namespace {

namespace fs = std::filesystem;

/// The symbols that came back, or `none`; what then computes something else is a failure.
std::string freedCell(const std::string& path, const StepExtents& step, const Toolkit& toolkit,
                      const TemporaryFolder& folder) {
  const DrivenModel original = asExported(path, toolkit);
  std::unique_ptr<Model> fixed = valueOrThrow(openModel(path, toolkit));
  try {
    if (!fixExtents(*fixed, step, toolkit))
      return "not fixed";
  } catch (const std::exception&) {
    return "not fixed"; // its extents cannot be these
  }
  const std::string file = folder.path("fixed.onnx");
  successOrThrow(exportModel(*fixed, file));
  RewriteRequest request;
  request.freeExtents = true;
  request.target = "primitive";
  RewriteResult result =
      valueOrThrow(rewrite(valueOrThrow(openModel(file, toolkit)), request, toolkit));
  if (const auto* refused = std::get_if<RefusedModel>(&result)) {
    EXPECT_NE(refused->message.find("extent-fixed"), std::string::npos) << refused->message;
    return "none";
  }
  auto& dynamic = std::get<RewrittenModel>(result);
  if (!dynamic.verification)
    return "not run"; // the fixed export takes no step
  EXPECT_TRUE(dynamic.verification->equal()) << verificationSummary(*dynamic.verification);
  successOrThrow(inferShapes(dynamic.model->graph()));
  VerificationPlan plan = quickVerification();
  plan.setTolerance(toleranceFor(original.model->graph(), 2));
  const VerificationReport report = valueOrThrow(verifyModels(
      *dynamic.model, dynamic.manifest, *original.model, original.manifest, plan, 1, toolkit));
  EXPECT_TRUE(report.equal()) << verificationSummary(report);
  return dynamic.freed;
}

TEST(FreedCorpus, EveryModelIsAsTheTableSays) {
  const std::pair<const char*, StepExtents> exports[] = {{"1 x 1 token", {1, 1, 5}},
                                                         {"2 x 4 tokens", {2, 4, 5}}};
  std::string table =
      "# Extents of decoders that were fixed for one step after 5 tokens and became symbols again: "
      "scripts/golden.sh\n#";
  for (const auto& [name, step] : exports)
    table += fmt::format(" | {}", name);
  table += "\n";
  Toolkit toolkit;
  const TemporaryFolder temporary;
  size_t models = 0;
  for (const fs::path& folder : {corpusFolder(), corpusFolder() / ".." / "corpus2"})
    for (const std::string& name : foldersWith(folder, "model.onnx")) {
      ++models;
      std::string row = name;
      for (const auto& [label, step] : exports) {
        SCOPED_TRACE(fmt::format("{}, {}", name, label));
        row += " | " + freedCell((folder / name / "model.onnx").string(), step, toolkit, temporary);
      }
      table += row + "\n";
    }
  if (models == 0)
    GTEST_SKIP() << "set KVOPT_CORPUS to a folder of models";
  if (const char* output = std::getenv("KVOPT_GOLDEN_FREED")) {
    std::ofstream(output) << table;
    return;
  }
  std::ifstream stored(std::string(KVOPT_SOURCE_DIR) + "/tests/golden/freed_extents.txt");
  const std::string golden{std::istreambuf_iterator<char>(stored),
                           std::istreambuf_iterator<char>()};
  EXPECT_EQ(table, golden) << "if that is right: bash scripts/golden.sh";
}

/// Exports for one kind of step compute what was recorded for other extents.
TEST(FreedCorpus, FixedExportsComputeWhatWasRecorded) {
  const fs::path folder = corpusFolder() / ".." / "corpus3";
  Toolkit toolkit;
  const TemporaryFolder temporary;
  size_t cases = 0;
  for (const std::string& name : foldersWith(folder, "ref_dynamic")) {
    SCOPED_TRACE(name);
    RewriteRequest request;
    request.freeExtents = true;
    request.target = "primitive";
    RewriteResult result = valueOrThrow(
        rewrite(valueOrThrow(openModel((folder / name / "model.onnx").string(), toolkit)), request,
                toolkit));
    auto* dynamic = std::get_if<RewrittenModel>(&result);
    ASSERT_TRUE(dynamic) << std::get<RefusedModel>(result).message;
    EXPECT_EQ(dynamic->freed, "batch, sequence and past") << dynamic->fixedBecause;
    const std::string path = temporary.path("model.onnx");
    successOrThrow(exportModel(*dynamic->model, path));
    const PreparedModel prepared = valueOrThrow(prepareModel(path, toolkit));
    for (const char* kind : {"ref_dynamic", "ref_from_past"})
      for (const std::string& recorded : foldersWith(folder / name / kind)) {
        SCOPED_TRACE(recorded);
        const auto steps = valueOrThrow(readReference((folder / name / kind / recorded).string()));
        const double tolerance = toleranceFor(prepared.model->graph(), 1).absolute;
        const ComparisonReport report =
            valueOrThrow(runAsRecorded(prepared, steps, {tolerance, 0}, 1, toolkit));
        EXPECT_FALSE(report.isDifferent());
        EXPECT_NE(report.worst(), nullptr);
        ++cases;
      }
  }
  if (cases == 0)
    GTEST_SKIP() << "set KVOPT_CORPUS to a folder of models";
}

} // namespace
} // namespace kvopt
