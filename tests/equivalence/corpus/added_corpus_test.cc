// Every decoder of the corpora, as an export without caches would have written it, gets caches and
// then computes what was recorded for the decoder itself: the table of
// tests/golden/added_caches.txt.
#include "driver/forms/form_table.h"
#include "driver/rewrite/rewrite.h"
#include "driver/verify/references.h"
#include "runtime/equivalence/reference.h"
#include "tests/equivalence/caches/cacheless.h"
#include "tests/equivalence/corpus/corpus.h"

#include <fstream>

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace runtime;

namespace {

namespace fs = std::filesystem;

/// Cases that must differ, and why.
const std::map<std::string, std::string>& differentCases() {
  static const std::map<std::string, std::string> reasons = {
      {"mt5dec-ts17-None b1", "the export itself is further than the tolerance from its recording"},
      {"o_beam-dynamo20-own b2pad", "caches are reordered by an input"},
      {"qwen2-beamout-ts17-sdpa b4", "caches are reordered by an input"},
      {"w_keepless-ts17-own b1", "rows of the caches are dropped"},
  };
  return reasons;
}

/// Decoders that the comparison with whole sequences may find different, depending on the order in
/// which the CPU's kernels add, and why.
const std::map<std::string, std::string>& roundedDecoders() {
  static const std::map<std::string, std::string> reasons = {
      {"d_fp16cache-dynamo20-own", "rows are rounded to float16, sums in another order to others"},
      {"d_fp16cache-ts17-own", "rows are rounded to float16, sums in another order to others"},
      {"k_half-dynamo20-own", "keys are rounded to float16, sums in another order to others"},
  };
  return reasons;
}

/// The reason code of a refusal, or what it says.
std::string reasonOf(const RefusedModel& refused) {
  if (refused.sites.empty())
    return refused.message.substr(0, refused.message.find('\n'));
  return pattern::reasonName(refused.sites.front().failure.code).str();
}

class AddedCorpus : public CorpusTest {
protected:
  /// `added: b1 equal`, or why not.
  std::string cell(const fs::path& source) {
    std::unique_ptr<Model> model =
        valueOrThrow(openModel((source / "model.onnx").string(), toolkit));
    successOrThrow(inferShapes(model->graph()));
    CacheRemover remover(*model);
    if (!remover.run())
      return "no caches that grow";
    const std::string file = folder.path("cacheless.onnx");
    successOrThrow(exportModel(*model, file));
    RewriteRequest request;
    request.verification = VerificationExtent::Quick;
    request.addCaches = true;
    request.form = valueOrThrow(presetForm("primitive"));
    RewriteResult result =
        valueOrThrow(rewrite(valueOrThrow(openModel(file, toolkit)), request, toolkit));
    if (const auto* refused = std::get_if<RefusedModel>(&result))
      return reasonOf(*refused);
    auto& added = std::get<RewrittenModel>(result);
    const std::string name = source.filename().string();
    if (added.verification && roundedDecoders().count(name) == 0) {
      EXPECT_TRUE(added.verification->equal()) << added.verification->summary(false);
    }
    const std::string path = folder.path("added.onnx");
    successOrThrow(exportModel(*added.model, path));
    return "added" + cases(source, valueOrThrow(prepareModel(path, toolkit)), remover);
  }

  /// What becomes of the recorded steps: the caches that are added may be laid out otherwise.
  std::string cases(const fs::path& source, const PreparedModel& prepared,
                    const CacheRemover& remover) {
    llvm::StringSet<> removed;
    for (const ManifestCache& cache : remover.removedCaches()) {
      removed.insert(cache.past);
      removed.insert(cache.present);
    }
    std::string text;
    for (const ReferenceCase& recorded : referenceCases(source.string())) {
      std::vector<ReferenceStep> steps = valueOrThrow(readReference(recorded.path));
      for (ReferenceStep& step : steps)
        for (auto* tensors : {&step.inputs, &step.outputs})
          llvm::erase_if(*tensors,
                         [&](const auto& tensor) { return removed.contains(tensor.first); });
      const std::string verdict = replayed(prepared, steps);
      const std::string name = source.filename().string() + " " + recorded.name;
      EXPECT_EQ(verdict == "different", differentCases().count(name) != 0) << name << verdict;
      text += formatted("{} {} {}", text.empty() ? ":" : ",", recorded.name, verdict);
    }
    return text;
  }

  std::string replayed(const PreparedModel& prepared, llvm::ArrayRef<ReferenceStep> steps) {
    auto settings = referenceSession(prepared.manifest, steps, 1);
    if (!settings) {
      llvm::consumeError(settings.takeError());
      return "not driven";
    }
    auto session = valueOrThrow(
        Session::create(*prepared.model, toolkit.runner->kernels(), prepared.manifest, *settings));
    const Tolerance tolerance = toleranceFor(prepared.model->graph(), 1);
    auto report = replayReference(*session, steps, {tolerance.absolute, 0});
    if (!report) {
      llvm::consumeError(report.takeError());
      return "not recorded";
    }
    return report->equal() ? "equal" : "different";
  }

  Toolkit toolkit;
  TemporaryFolder folder;
};

TEST_F(AddedCorpus, EveryModelIsAsTheTableSays) {
  std::string table = "# Decoders without their caches after kvopt add-cache, against what was "
                      "recorded for them with caches: scripts/golden.sh\n";
  for (const char* corpus : {".", "../corpus2", "../corpus3"})
    for (const std::string& name : sampleOf(foldersWith(corpusFolder() / corpus, "model.onnx"))) {
      SCOPED_TRACE(name);
      table += formatted("{} | {}\n", name, cell(corpusFolder() / corpus / name));
    }
  if (const char* output = std::getenv("KVOPT_GOLDEN_ADDED")) {
    std::ofstream(output) << table;
    return;
  }
  expectGolden(table, "added_caches.txt");
}

} // namespace
} // namespace kvopt
