// The textual form of pipelines.
#include "passes/pass_manager.h"
#include "support/diagnostic.h"

#include <gtest/gtest.h>

namespace kvopt {
using namespace passes;

namespace {

std::vector<PipelineStep> parsed(llvm::StringRef text) {
  auto steps = parsePipeline(text);
  if (!steps) {
    ADD_FAILURE() << takeDiagnostic(steps.takeError()).str();
    return {};
  }
  return *steps;
}

std::string failure(llvm::StringRef text) {
  auto steps = parsePipeline(text);
  if (steps) {
    ADD_FAILURE() << text.str() << " parses";
    return "";
  }
  Diagnostic diagnostic = takeDiagnostic(steps.takeError());
  EXPECT_EQ(diagnostic.kind, Diagnostic::Kind::Usage);
  return diagnostic.message;
}

TEST(Pipeline, ReadsNamesAndOptions) {
  auto steps = parsed(" infer-shapes , lower{to=kvopt  capacity=4096} ,x_1{}");
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(steps[0].pass, "infer-shapes");
  EXPECT_EQ(steps[1].options, (PassOptions{{"to", "kvopt"}, {"capacity", "4096"}}));
  EXPECT_EQ(steps[2].pass, "x_1");
  EXPECT_TRUE(steps[2].options.empty());
  EXPECT_TRUE(parsed("").empty());
  EXPECT_TRUE(parsed("  ").empty());
}

TEST(Pipeline, QuotedValuesHoldAnything) {
  auto steps = parsed("a{key=\"x y},z\" empty=\"\" comma=1,2}");
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].options, (PassOptions{{"key", "x y},z"}, {"empty", ""}, {"comma", "1,2"}}));
}

TEST(Pipeline, PrintsWhatParsesToTheSame) {
  for (const char* text : {"", "a", "a,b", "a{x=1}", "a{x=1 y=\"b c\"},c", "a{x=\"\"}", "a{x=b\"c}",
                           "a{x=\"}\"}", "a{x=1,2}"}) {
    auto steps = parsed(text);
    std::string printed = printPipeline(steps);
    EXPECT_EQ(printed, text);
    auto again = parsed(printed);
    ASSERT_EQ(again.size(), steps.size());
    for (size_t i = 0; i < steps.size(); ++i) {
      EXPECT_EQ(again[i].pass, steps[i].pass);
      EXPECT_EQ(again[i].options, steps[i].options);
    }
  }
}

TEST(Pipeline, ErrorsNameTheColumn) {
  EXPECT_EQ(failure("a,"), "pipeline, column 3: expected the name of a pass");
  EXPECT_EQ(failure(",a"), "pipeline, column 1: expected the name of a pass");
  EXPECT_EQ(failure("a b"), "pipeline, column 3: expected ','");
  EXPECT_EQ(failure("a}"), "pipeline, column 2: expected ','");
  EXPECT_EQ(failure("a{x}"), "pipeline, column 4: expected 'key=value' or '}'");
  EXPECT_EQ(failure("a{x=1"), "pipeline, column 6: expected 'key=value' or '}'");
  EXPECT_EQ(failure("a{x=\"1}"), "pipeline, column 6: expected a closing '\"'");
  EXPECT_EQ(failure("a{x=1 x=2}"), "pipeline, column 10: option 'x' is given twice");
}

} // namespace
} // namespace kvopt
