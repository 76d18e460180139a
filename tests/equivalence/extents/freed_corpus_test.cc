// Every decoder of the corpora, exported for one step only and made dynamic again, computes what it
// did before: the table of tests/golden/freed_extents.txt.
#include "driver/forms/form_table.h"
#include "driver/rewrite/rewrite.h"
#include "driver/verify/references.h"
#include "tests/equivalence/corpus/corpus.h"
#include "tests/equivalence/extents/folded_export.h"

#include <fstream>
#include <map>

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace runtime;

namespace {

namespace fs = std::filesystem;

/// Exports that store a table from which nothing tells what other tokens see, and what that is.
/// What is assumed of them, and said, does not hold.
const std::map<std::string, std::string>& misleadingTables() {
  const char* const wide = "a window as wide as the exported keys";
  const char* const later = "later keys, which the last token does not have";
  const char* const prefix = "keys of a prefix, which lie before the tokens of the export";
  static const std::map<std::string, std::string> tables = {
      {"m_ahead-ts17-own", later},
      {"m_evenq-dynamo20-own", later},
      {"m_maxwin-dynamo20-own", later},
      {"m_prefix-ts17-own", prefix},
      {"m_prefix2-dynamo20-own", prefix},
      {"m_win_incl-ts17-own", wide},
      {"m_win_sym-dynamo20-own", wide},
      {"m_win_triu-ts17-own", wide},
      {"mistral_sw-dynamo18-sdpa", wide},
      {"mistral_sw-dynamo18-sdpa+ortall", wide},
      {"mistral_sw-dynamo18-sdpa+ortextended", wide},
  };
  return tables;
}

/// The symbols that came back, or `none`; what then computes something else is a failure.
std::string freedCell(const std::string& path, const StepExtents& step, bool folds,
                      const Toolkit& toolkit, const TemporaryFolder& folder) {
  const DrivenModel original = asExported(path, toolkit);
  std::unique_ptr<Model> fixed = valueOrThrow(openModel(path, toolkit));
  try {
    if (!fixExtents(*fixed, step, toolkit))
      return "not fixed";
    if (folds)
      ConstantFolder(*fixed, toolkit).run();
  } catch (const std::exception&) {
    return "not fixed"; // its extents cannot be these
  }
  const std::string file = folder.path("fixed.onnx");
  successOrThrow(exportModel(*fixed, file));
  RewriteRequest request;
  request.verification = VerificationExtent::Quick;
  request.freeExtents = true;
  request.form = valueOrThrow(presetForm("primitive"));
  RewriteResult result =
      valueOrThrow(rewrite(valueOrThrow(openModel(file, toolkit)), request, toolkit));
  if (const auto* refused = std::get_if<RefusedModel>(&result)) {
    EXPECT_NE(refused->message.find("extent-fixed"), std::string::npos) << refused->message;
    return "none";
  }
  auto& dynamic = std::get<RewrittenModel>(result);
  if (!dynamic.verification)
    return "not run"; // the fixed export takes no step
  if (folds && !dynamic.verification->equal())
    return "not written"; // the comparison found the difference
  EXPECT_TRUE(dynamic.verification->equal()) << dynamic.verification->summary(false);
  successOrThrow(inferShapes(dynamic.model->graph()));
  VerificationPlan plan = quickVerification();
  plan.setTolerance(toleranceFor(original.model->graph(), 2));
  const VerificationReport report = valueOrThrow(verifyModels(
      *dynamic.model, dynamic.manifest, *original.model, original.manifest, plan, 1, toolkit));
  const std::string name = fs::path(path).parent_path().filename().string();
  const bool mayDiffer = folds && misleadingTables().count(name) != 0;
  EXPECT_TRUE(report.equal() || mayDiffer) << verificationSummary(report);
  if (report.equal())
    return dynamic.freed;
  EXPECT_FALSE(dynamic.passes->assumptions.empty());
  return dynamic.freed + " as assumed";
}

TEST(FreedCorpus, EveryModelIsAsTheTableSays) {
  struct Export {
    const char* name;
    StepExtents step;
    bool folds;
  };
  const Export exports[] = {{"1 x 1 token", {1, 1, 5}, false},
                            {"2 x 4 tokens", {2, 4, 5}, false},
                            {"1 x 1 token, constants folded", {1, 1, 5}, true},
                            {"1 x 4 tokens, constants folded", {1, 4, 5}, true}};
  std::string table =
      "# Extents of decoders that were fixed for one step after 5 tokens and became symbols again: "
      "scripts/golden.sh\n#";
  for (const Export& each : exports)
    table += formatted(" | {}", each.name);
  table += "\n";
  Toolkit toolkit;
  const TemporaryFolder temporary;
  size_t models = 0;
  for (const fs::path& folder : {corpusFolder(), corpusFolder() / ".." / "corpus2"})
    for (const std::string& name : sampleOf(foldersWith(folder, "model.onnx"), costlyOneIn())) {
      ++models;
      std::string row = name;
      for (const Export& each : exports) {
        SCOPED_TRACE(formatted("{}, {}", name, each.name));
        row += " | " + freedCell((folder / name / "model.onnx").string(), each.step, each.folds,
                                 toolkit, temporary);
      }
      table += row + "\n";
    }
  if (models == 0)
    GTEST_SKIP() << "set KVOPT_CORPUS to a folder of models";
  if (const char* output = std::getenv("KVOPT_GOLDEN_FREED")) {
    std::ofstream(output) << table;
    return;
  }
  expectGolden(table, "freed_extents.txt", costlyOneIn());
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
    request.verification = VerificationExtent::Quick;
    request.freeExtents = true;
    request.form = valueOrThrow(presetForm("primitive"));
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
