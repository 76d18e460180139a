// Every reason code is documented, and docs/reasons.md says what the table says.
#include "passes/pattern/reason_docs.h"

#include "llvm/ADT/STLExtras.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>

namespace kvopt {
using namespace pattern;

namespace {

TEST(ReasonDocs, EveryCodeHasARemedyAnExampleAndAHintOfItsOwn) {
  std::set<std::string> texts;
  ASSERT_EQ(reasonDocs().size(), reasonTable().size());
  for (size_t i = 0; i < reasonTable().size(); ++i) {
    const ReasonInfo& info = reasonTable()[i];
    const ReasonDoc& doc = reasonDocs()[i];
    EXPECT_EQ(doc.code, info.code) << info.name << " is undocumented or out of order";
    EXPECT_GT(std::string(doc.remedy).size(), 30u) << info.name;
    EXPECT_GT(std::string(doc.example).size(), 20u) << info.name;
    EXPECT_GT(std::string(doc.hint).size(), 10u) << info.name;
    EXPECT_TRUE(texts.insert(doc.example).second) << info.name;
  }
}

TEST(ReasonDocs, TheCodesThatScriptsRelyOnExist) {
  std::set<std::string> names;
  for (const ReasonInfo& info : reasonTable())
    names.insert(info.name);
  for (const char* code : {"not-a-cache-concat",   "axis-unproven",
                           "past-not-input",       "present-not-output",
                           "new-before-past",      "cache-escapes",
                           "shared-reader",        "mask-unproven-causal",
                           "mask-noncausal",       "window-not-representable",
                           "scale-not-constant",   "dtype-mix",
                           "head-count-unproven",  "layout-unsupported",
                           "softcap-unsupported",  "sink-unsupported",
                           "bias-unsupported",     "in-subgraph",
                           "dynamic-rank",         "would-create-cycle",
                           "cross-attention",      "recurrent-state",
                           "target-lacks-feature", "step-budget"})
    EXPECT_TRUE(names.count(code)) << code;
}

TEST(ReasonDocs, AFailuresOwnHintComesFirst) {
  MatchFailure failure;
  failure.code = ReasonCode::DynamicRank;
  EXPECT_EQ(hintFor(failure), reasonDoc(ReasonCode::DynamicRank).hint);
  failure.hint = "its own";
  EXPECT_EQ(hintFor(failure), "its own");
}

TEST(ReasonDocs, ThePageIsUpToDate) {
  std::ifstream stream(std::string(KVOPT_SOURCE_DIR) + "/docs/reasons.md", std::ios::binary);
  std::string page{std::istreambuf_iterator<char>(stream), {}};
  EXPECT_EQ(page, reasonsMarkdown()) << "run: kvopt list reasons --markdown > docs/reasons.md";
}

} // namespace
} // namespace kvopt
