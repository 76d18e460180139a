// How many bytes of its caches a decode step copies, before and after every rewrite that updates
// caches in place, as the runtime counts them: the table of tests/golden/cache_copies.txt.
#include "driver/forms/form_table.h"
#include "driver/rewrite/files.h"
#include "driver/rewrite/rewrite.h"
#include "driver/verify/plan.h"
#include "tests/equivalence/caches/short_session.h"
#include "tests/equivalence/corpus/corpus.h"
#include "tests/equivalence/rewritten_model.h"

#include <fstream>

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace pattern;
using namespace runtime;

namespace {

namespace fs = std::filesystem;

/// Rows of every shared buffer, and of all blocks together.
constexpr int64_t rowsOfBuffers = 24;

constexpr const char* inPlaceTargets[] = {"kvopt",     "latent",       "ring",   "int8",
                                          "int8-ring", "ort-gqa",      "onnx24", "onnx24-ring:4",
                                          "blocks:8",  "int8-blocks:8"};

/// Bytes that the last step of a short session copies: one token after four, or the step that the
/// model's fixed extents allow. nullopt where the model has no caches.
std::optional<int64_t> bytesCopied(const Model& model, const Manifest& manifest,
                                   const Toolkit& toolkit) {
  ShortSession made(model, manifest, rowsOfBuffers, toolkit);
  const EquivalencePlan& plan = made.plan;
  Session* const session = made.session.get();
  if (session->cacheCount() == 0)
    return std::nullopt;
  if (plan.pastRows != 0)
    successOrThrow(session->preset(plan.pastRows));
  PlannedSteps steps(plan);
  int64_t before = 0;
  for (int64_t step = 0; step <= plan.decodeSteps; ++step) {
    before = made.copied();
    const int64_t tokens = step == 0 ? plan.prompt : plan.stepTokens;
    valueOrThrow(stepDecoder(*session, steps.next(tokens, session->length(), false)));
  }
  return made.copied() - before;
}

/// Bytes, `no caches`, or `not run`.
std::string cellOf(const Model& model, const Manifest& manifest, const Toolkit& toolkit,
                   std::optional<int64_t>& bytes) {
  try {
    bytes = bytesCopied(model, manifest, toolkit);
    return bytes ? std::to_string(*bytes) : "no caches";
  } catch (const std::exception&) {
    return "not run";
  }
}

/// Bytes, or why the target refuses the model.
std::string rewrittenCell(const std::string& path, const char* target, const Toolkit& toolkit,
                          std::optional<int64_t>& bytes) {
  RewriteRequest request;
  request.form = valueOrThrow(presetForm(target));
  request.verification = VerificationExtent::Off;
  request.capacity = rowsOfBuffers;
  auto result = rewrite(valueOrThrow(openModel(path, toolkit)), request, toolkit);
  if (!result)
    return llvm::toString(result.takeError());
  if (const auto* refused = std::get_if<RefusedModel>(&*result))
    return refused->sites.empty() ? "no attention"
                                  : reasonName(refused->sites[0].failure.code).str();
  if (const auto* unchanged = std::get_if<UnchangedModel>(&*result))
    return cellOf(*unchanged->model, unchanged->manifest, toolkit, bytes);
  const auto& written = std::get<RewrittenModel>(*result);
  return cellOf(*written.model, written.manifest, toolkit, bytes);
}

TEST(CacheCopies, EveryModelAndTargetIsAsTheTableSays) {
  std::string table =
      "# Bytes of caches that a decode step copies, as exported and as rewritten, or "
      "the reason for a refusal: scripts/golden.sh\n# | as exported";
  for (const char* target : inPlaceTargets)
    table += formatted(" | {}", target);
  table += "\n";
  Toolkit toolkit;
  size_t models = 0;
  for (const fs::path& folder : {corpusFolder(), corpusFolder() / ".." / "corpus2"})
    for (const std::string& name : sampleOf(foldersWith(folder, "model.onnx"), costlyOneIn())) {
      ++models;
      SCOPED_TRACE(name);
      const std::string path = (folder / name / "model.onnx").string();
      std::optional<int64_t> exportedBytes;
      std::string row = name + " | ";
      try {
        const DrivenModel exported = asExported(path, toolkit);
        row += cellOf(*exported.model, exported.manifest, toolkit, exportedBytes);
      } catch (const std::exception&) {
        row += "not read";
      }
      for (const char* target : inPlaceTargets) {
        std::optional<int64_t> bytes;
        row += std::string(" | ") + rewrittenCell(path, target, toolkit, bytes);
        // What is called a success copies less.
        if (bytes && exportedBytes) {
          EXPECT_TRUE(*bytes < *exportedBytes || *bytes == 0) << target << ": " << *bytes;
        }
      }
      table += row + "\n";
    }
  if (models == 0)
    GTEST_SKIP() << "no models; set KVOPT_CORPUS";
  if (const char* output = std::getenv("KVOPT_GOLDEN_COPIES")) {
    std::ofstream(output) << table;
    return;
  }
  expectGolden(table, "cache_copies.txt", costlyOneIn());
}

} // namespace
} // namespace kvopt
