// Exported models against what PyTorch computed, without kernels: operators by their definitions.
#include "driver/runner.h"
#include "driver/verify/references.h"
#include "runtime/exec/kernel.h"
#include "tests/equivalence/corpus/corpus.h"
#include "tests/equivalence/corpus/reference_rows.h"

namespace kvopt {
using namespace driver;

namespace {

using DefinitionsTest = CorpusTest;

TEST_F(DefinitionsTest, AgreeWithTheRecordedStepsOfEveryModel) {
  Toolkit toolkit;
  toolkit.runner->kernels().preferDefinitions();
  for (const char* corpus : {"corpus", "corpus2", "corpus3", "corpus4"}) {
    const std::string root = (corpusFolder() / ".." / corpus).string();
    std::vector<std::string> paths;
    for (const std::string& model : foldersWith(root, "ref"))
      paths.push_back(root + "/" + model + "/model.onnx");
    llvm::Expected<ReferenceTable> table =
        compareWithReferences(paths, {ModelForm::Exported}, 1, toolkit);
    ASSERT_TRUE(static_cast<bool>(table)) << corpus;
    size_t equal = 0, different = 0;
    std::string all;
    for (const ReferenceRow& row : table->rows)
      for (const ReferenceResult& result : row.results) {
        equal += result.verdict == ReferenceVerdict::Equal;
        if (result.verdict != ReferenceVerdict::Different)
          continue;
        // The largest difference of a model that is as large with kernels.
        ++different;
        all += folderOf(row) + " " + row.name + ": " + result.reason + "\n";
        EXPECT_LE(result.maxAbs, 2 * row.tolerance) << folderOf(row) << " " << row.name;
      }
    EXPECT_GE(equal, table->rows.size() * 8 / 10) << corpus;
    EXPECT_LE(different, 2u) << corpus << "\n" << all;
  }
}

} // namespace
} // namespace kvopt
