// The ONNX project's node cases, rewritten for every target and run on the recorded inputs as the
// manifest says: the table of tests/golden/onnx_nodes.txt.
#include "ir/onnx_import.h"
#include "tests/cli/cli_fixture.h"
#include "tests/equivalence/corpus.h"
#include "tests/equivalence/manifest_step.h"

namespace kvopt {
namespace {

namespace fs = std::filesystem;

/// Rows of every shared buffer, and of all blocks together: more than any case has.
constexpr int64_t capacity = 24;

constexpr const char* targets[] = {"kvopt",   "onnx24",    "onnx23",
                                   "ort-gqa", "primitive", "blocks-plain:8"};

/// One case for one target.
class CaseRun {
public:
  CaseRun(std::string caseFolder, std::string to, const Registries& given, std::string output)
      : folder(std::move(caseFolder)), target(std::move(to)), registries(given),
        written(std::move(output)) {}

  /// `equal`, `nothing`, `refused (code)`, or what is wrong.
  std::string verdict() {
    const ProgramResult result =
        runProgram({"rewrite", folder + "/model.onnx", "--to", target, "--verify", "off",
                    "--capacity", std::to_string(capacity), "-o", written, "--format", "json"});
    if (result.code == 1)
      return refusal(result.out);
    if (result.code != 0)
      return fmt::format("exit {}: {}", result.code, result.err);
    try {
      return isEqual() ? "equal" : "DIFFERENT";
    } catch (const std::exception& error) {
      return std::string("DIFFERENT: ") + error.what();
    }
  }

private:
  static std::string refusal(const std::string& text) {
    auto report = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!report.is_object() || !report.contains("refused"))
      return "exit 1 without a report";
    if (report["refused"].empty())
      return "nothing";
    return fmt::format("refused ({})", report["refused"][0]["code"].get<std::string>());
  }

  NamedTensors recorded(const char* kind) {
    NamedTensors tensors;
    for (unsigned i = 0;; ++i) {
      const std::string path = fmt::format("{}/test_data_set_0/{}_{}.pb", folder, kind, i);
      if (!fs::exists(path))
        return tensors;
      auto [name, data] = valueOrThrow(importTensorFile(path));
      kept.push_back(valueOrThrow(Tensor::of(allocator, data)));
      tensors.emplace(name, kept.back().view);
    }
  }

  bool isEqual() {
    auto model = valueOrThrow(importModel(written, registries.ops));
    successOrThrow(inferShapes(model->graph()));
    const Manifest manifest = valueOrThrow(manifestOf(*model)).value_or(Manifest());
    NamedTensors outputs = recorded("output");
    bool isHalf = false;
    for (const auto& [name, view] : outputs)
      isHalf |= view.element == ElementType::Float16;
    return ManifestStep(recorded("input"), std::move(outputs), capacity)
        .agrees(*model, manifest, registries.kernels,
                isHalf ? Tolerance{2e-2, 0} : Tolerance{1e-4, 1e-3});
  }

  std::string folder;
  std::string target;
  const Registries& registries;
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
  Registries registries;
  std::string table = "# What kvopt rewrite --to T makes of ONNX's node cases: scripts/golden.sh\n";
  table += "#";
  for (const char* target : targets)
    table += fmt::format(" | {}", target);
  table += "\n";
  std::map<std::string, unsigned> equal;
  for (const std::string& name : names) {
    std::string row = name;
    for (const char* target : targets) {
      const std::string verdict =
          CaseRun((nodeFolder() / name).string(), target, registries, temporary.path("case.onnx"))
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
  std::ifstream stored(std::string(KVOPT_SOURCE_DIR) + "/tests/golden/onnx_nodes.txt");
  const std::string golden{std::istreambuf_iterator<char>(stored),
                           std::istreambuf_iterator<char>()};
  EXPECT_EQ(table, golden) << "if that is right: bash scripts/golden.sh";
}

} // namespace
} // namespace kvopt
