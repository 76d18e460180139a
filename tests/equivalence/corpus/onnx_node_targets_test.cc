// The ONNX project's node cases, rewritten for every target and run on the recorded inputs as the
// manifest says: the table of tests/golden/onnx_nodes.txt.
#include "driver/forms/form_table.h"
#include "driver/recover.h"
#include "driver/rewrite/files.h"
#include "driver/rewrite/rewrite.h"
#include "ir/onnx/import.h"
#include "tests/equivalence/corpus/corpus.h"
#include "tests/equivalence/manifest_step.h"
#include "tests/support/temporary_folder.h"

#include <fmt/format.h>

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace pattern;
using namespace runtime;

namespace {

namespace fs = std::filesystem;

/// Rows of every shared buffer, and of all blocks together: more than any case has.
constexpr int64_t cacheCapacity = 24;

constexpr const char* targets[] = {"kvopt",   "onnx24",    "onnx23",
                                   "ort-gqa", "primitive", "blocks-plain:8"};

/// One case for one target.
class CaseRun {
public:
  CaseRun(std::string caseFolder, std::string to, const Toolkit& given, std::string output)
      : folder(std::move(caseFolder)), target(std::move(to)), toolkit(given),
        written(std::move(output)) {}

  /// `equal`, `nothing`, `refused (code)`, or what is wrong.
  std::string verdict() {
    RewriteRequest request;
    request.form = valueOrThrow(presetForm(target));
    request.verification = VerificationExtent::Off;
    request.capacity = cacheCapacity;
    auto model = openModel(folder + "/model.onnx", toolkit);
    if (!model)
      return llvm::toString(model.takeError());
    auto result = rewrite(std::move(*model), request, toolkit);
    if (!result)
      return llvm::toString(result.takeError());
    if (const auto* refused = std::get_if<RefusedModel>(&*result))
      return refused->sites.empty()
                 ? "nothing"
                 : formatted("refused ({})", reasonName(refused->sites[0].failure.code).str());
    try {
      write(*result);
      return isEqual() ? "equal" : "DIFFERENT";
    } catch (const std::exception& error) {
      return std::string("DIFFERENT: ") + error.what();
    }
  }

private:
  void write(RewriteResult& result) {
    RewrittenPaths paths;
    paths.model = written;
    WeightFiles weights;
    FileAccess access;
    if (auto* rewritten = std::get_if<RewrittenModel>(&result))
      successOrThrow(writeFiles(*rewritten->model, rewritten->manifest, paths, weights, access));
    else
      successOrThrow(writeFiles(*std::get<UnchangedModel>(result).model,
                                std::get<UnchangedModel>(result).manifest, paths, weights, access));
  }

  NamedTensors recorded(const char* kind) {
    NamedTensors tensors;
    for (unsigned i = 0;; ++i) {
      const std::string path = formatted("{}/test_data_set_0/{}_{}.pb", folder, kind, i);
      if (!fs::exists(path))
        return tensors;
      auto [name, data] = valueOrThrow(importTensorFile(path));
      kept.push_back(valueOrThrow(Tensor::of(allocator, data)));
      tensors.emplace(name, kept.back().view);
    }
  }

  bool isEqual() {
    auto model = valueOrThrow(importModel(written, toolkit.ops));
    successOrThrow(inferShapes(model->graph()));
    const Manifest manifest = valueOrThrow(manifestOf(*model)).value_or(Manifest());
    NamedTensors outputs = recorded("output");
    bool isHalf = false;
    for (const auto& [name, view] : outputs)
      isHalf |= view.element == ElementType::Float16;
    return ManifestStep(recorded("input"), std::move(outputs), cacheCapacity)
        .agrees(*model, manifest, toolkit.runner->kernels(),
                isHalf ? Tolerance{2e-2, 0} : Tolerance{1e-4, 1e-3});
  }

  std::string folder;
  std::string target;
  const Toolkit& toolkit;
  std::string written;
  std::shared_ptr<Allocator> allocator = std::make_shared<Allocator>();
  std::vector<Tensor> kept;
};

fs::path nodeFolder() { return corpusFolder() / ".." / "onnx-nodes"; }

TEST(OnnxNodeTargets, EveryCaseIsRewrittenOrRefusedAsTheTableSays) {
  const std::vector<std::string> names = foldersWith(nodeFolder(), "model.onnx");
  if (names.empty())
    GTEST_SKIP() << "no cases in " << nodeFolder().string() << "; set KVOPT_CORPUS";
  TemporaryFolder temporary;
  Toolkit toolkit;
  std::string table = "# What kvopt rewrite --to T makes of ONNX's node cases: scripts/golden.sh\n";
  table += "#";
  for (const char* target : targets)
    table += formatted(" | {}", target);
  table += "\n";
  std::map<std::string, unsigned> equal;
  for (const std::string& name : names) {
    std::string row = name;
    for (const char* target : targets) {
      const std::string verdict =
          CaseRun((nodeFolder() / name).string(), target, toolkit, temporary.path("case.onnx"))
              .verdict();
      EXPECT_TRUE(verdict == "equal" || verdict == "nothing" || verdict.rfind("refused", 0) == 0)
          << name << " --to " << target << ": " << verdict;
      equal[target] += verdict == "equal";
      row += " | " + verdict;
    }
    table += row + "\n";
  }
  for (const auto& [target, count] : equal)
    fmt::print("{}: {} of {} cases are equal\n", target, count, names.size());
  if (const char* output = std::getenv("KVOPT_GOLDEN_NODES")) {
    std::ofstream(output) << table;
    return;
  }
  expectGolden(table, "onnx_nodes.txt");
}

} // namespace
} // namespace kvopt
