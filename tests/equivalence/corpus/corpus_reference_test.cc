// Exported models, as they are and after the rewrite, against what PyTorch computed for them.
#include "driver/verify/references.h"
#include "support/string_ends.h"
#include "tests/equivalence/corpus/corpus.h"
#include "tests/equivalence/corpus/reference_rows.h"

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace kvopt {
using namespace driver;

namespace {

/// Half precision is recorded to 2e-2, everything else to 1e-4.
double recordedTolerance(const std::string& model) {
  std::ifstream file((corpusFolder() / model / "model.json").string());
  const std::string dtype = nlohmann::json::parse(file).at("dtype").get<std::string>();
  return dtype == "float16" || dtype == "fp16" ? 2e-2 : 1e-4;
}

/// What a case is compared to where that is not what was recorded, and why.
const std::map<std::string, std::string>& otherReferences() {
  static const std::map<std::string, std::string> list = {
      // Its weights are rounded to 4 bits, those of the reference are not.
      {"llama_gqa-genai-int4-cpu", "its weights in f32"},
      // The file windows layer 1, the model that was exported layer 0.
      {"gemma2-genai-fp32-cpu", "exported model"},
      // The mask of the exported graph cannot continue a sequence by several tokens.
      {"qwen2-genai-fp16-cpu", "exported model, 6 of 7 steps"},
  };
  return list;
}

using CorpusReferenceTest = CorpusTest;

TEST_F(CorpusReferenceTest, EveryRecordedCaseAgreesInEveryForm) {
  const std::vector<std::string> models = foldersWith(corpusFolder(), "ref");
  EXPECT_GE(models.size(), 62u);
  std::vector<std::string> paths;
  for (const std::string& model : models)
    paths.push_back((corpusFolder() / model / "model.onnx").string());
  const std::vector<ModelForm> forms = {ModelForm::Exported, ModelForm::Shared,
                                        ModelForm::Stateful};
  Toolkit toolkit;
  llvm::Expected<ReferenceTable> table = compareWithReferences(paths, forms, 1, toolkit);
  ASSERT_TRUE(static_cast<bool>(table));
  EXPECT_TRUE(table->equal()) << failuresOf(*table);
  EXPECT_EQ(table->rows.size(), 73u);
  EXPECT_EQ(table->count(ReferenceVerdict::Equal), 203u);
  std::set<std::string> seen;
  for (const ReferenceRow& row : table->rows) {
    SCOPED_TRACE(folderOf(row) + "/" + row.name);
    EXPECT_EQ(row.tolerance, recordedTolerance(folderOf(row)));
    EXPECT_GE(row.steps, 6u);
    auto other = otherReferences().find(folderOf(row));
    EXPECT_EQ(row.comparedTo, other == otherReferences().end() ? "recorded" : other->second);
    if (other != otherReferences().end())
      seen.insert(folderOf(row));
    ASSERT_EQ(row.results.size(), forms.size());
    for (const ReferenceResult& result : row.results) {
      const bool isRewritten = result.form != ModelForm::Exported;
      const auto refusal = refusedInPlace().find(folderOf(row));
      const bool isRefused = isRewritten && refusal != refusedInPlace().end();
      if (isRefused) {
        EXPECT_NE(result.reason.find(refusal->second), std::string::npos) << result.reason;
      }
      const bool isItself = !isRewritten && startsWith(row.comparedTo, "exported");
      EXPECT_EQ(result.verdict, isRefused  ? ReferenceVerdict::Refused
                                : isItself ? ReferenceVerdict::NotCompared
                                           : ReferenceVerdict::Equal)
          << formName(result.form).str() << ": " << result.reason;
      if (result.verdict == ReferenceVerdict::Equal) {
        EXPECT_LE(result.maxAbs, row.tolerance);
      }
    }
  }
  EXPECT_EQ(seen.size(), otherReferences().size());
}

} // namespace
} // namespace kvopt
