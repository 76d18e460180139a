// Rewriting a model through the library: what comes back, and what it costs.
#include "driver/check/check_files.h"
#include "driver/forms/form_table.h"
#include "driver/rewrite/rewrite.h"

#include "driver/recover.h"
#include "driver/rewrite/files.h"
#include "tests/support/temporary_folder.h"

#include <gtest/gtest.h>

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace pattern;

namespace {

namespace fs = std::filesystem;

/// Matches nothing, and counts how often it was asked.
class Counter final : public Rule {
public:
  explicit Counter(int& askedCount) : asked(askedCount) {}

  llvm::StringRef name() const override { return "count-softmax"; }
  RuleGroup group() const override { return RuleGroup::Normalize; }
  P pattern() const override { return op("Softmax", {x}); }
  void constraints(Constraints& c) const override {
    c.require("never", [this](const Match&) {
      ++asked;
      return false;
    });
  }
  std::optional<MatchFailure> rewrite(const Match&, Rewriter&) const override {
    return std::nullopt;
  }

private:
  Var x{"x"};
  int& asked;
};

class RewriteTest : public testing::Test {
protected:
  std::unique_ptr<Model> open(const std::string& path) {
    auto model = openModel(path, toolkit);
    EXPECT_TRUE(static_cast<bool>(model));
    return model ? std::move(*model) : nullptr;
  }
  RewriteResult rewritten(const std::string& path, const RewriteRequest& request) {
    return llvm::cantFail(rewrite(open(path), request, toolkit));
  }
  static RewriteRequest requestFor(const std::string& target) {
    RewriteRequest request;
    request.form = llvm::cantFail(presetForm(target));
    request.capacity = 64;
    return request;
  }

  Toolkit toolkit;
  TemporaryFolder folder;
  const std::string shipped = KVOPT_SOURCE_DIR "/models/llama_gqa-ts14-eager/model.onnx";
};

TEST_F(RewriteTest, TheFileIsReadOnce) {
  const std::string path = folder.path("m.onnx");
  fs::copy_file(shipped, path);
  std::unique_ptr<Model> model = open(path);
  fs::remove(path);
  RewriteRequest request = requestFor("kvopt");
  request.verification = VerificationExtent::Quick;
  const RewriteResult result = llvm::cantFail(rewrite(std::move(model), request, toolkit));
  const auto* written = std::get_if<RewrittenModel>(&result);
  ASSERT_NE(written, nullptr);
  ASSERT_TRUE(written->verification);
  EXPECT_TRUE(written->verification->equal());
  EXPECT_TRUE(written->mayBeWritten());
  ASSERT_TRUE(written->claim);
  EXPECT_EQ(written->claim->before, digestOf(*open(shipped)));
  EXPECT_EQ(written->manifest.target, "kvopt");
  EXPECT_EQ(written->exported.contract, CacheUpdate::Grows);
  EXPECT_EQ(written->exported.caches.size(), written->manifest.caches.size());
}

TEST_F(RewriteTest, TheModelIsRecoveredOnce) {
  int asked = 0;
  toolkit.rules.add(std::make_unique<Counter>(asked));
  ASSERT_TRUE(static_cast<bool>(recoverModel(shipped, toolkit)));
  const int once = asked;
  ASSERT_GT(once, 0);
  asked = 0;
  const RewriteResult result = rewritten(shipped, requestFor("kvopt"));
  ASSERT_TRUE(std::get<RewrittenModel>(result).checked.has_value());
  EXPECT_EQ(asked, once);
}

TEST_F(RewriteTest, AProofNeedsNoRun) {
  const RewriteResult result = rewritten(shipped, requestFor("kvopt"));
  const auto& written = std::get<RewrittenModel>(result);
  ASSERT_TRUE(written.checked.has_value());
  EXPECT_EQ(written.checked->verdict(), check::Verdict::ProvedReduced);
  EXPECT_FALSE(written.verification);
  EXPECT_TRUE(written.mayBeWritten());
}

TEST_F(RewriteTest, WhatACheckDoesNotProveRuns) {
  RewriteRequest request = requestFor("paged");
  request.padding = PaddedRows::None;
  const RewriteResult result = rewritten(shipped, request);
  const auto& written = std::get<RewrittenModel>(result);
  ASSERT_TRUE(written.checked.has_value());
  EXPECT_EQ(written.checked->verdict(), check::Verdict::Tested);
  ASSERT_TRUE(written.verification);
  EXPECT_TRUE(written.verification->equal());
  EXPECT_TRUE(written.mayBeWritten());

  request.verification = VerificationExtent::Check;
  RewriteResult checked = rewritten(shipped, request);
  auto& unrun = std::get<RewrittenModel>(checked);
  EXPECT_FALSE(unrun.verification);
  EXPECT_TRUE(unrun.mayBeWritten());
  for (check::Obligation& obligation : unrun.checked->obligations)
    obligation.verdict = check::Verdict::Skipped;
  EXPECT_FALSE(unrun.mayBeWritten());
}

TEST_F(RewriteTest, PartsRun) {
  const RewriteResult result = rewritten(shipped, requestFor("pyramid"));
  const auto& written = std::get<RewrittenModel>(result);
  EXPECT_FALSE(written.checked.has_value()); // which would see the whole model only
  ASSERT_TRUE(written.verification);
  EXPECT_TRUE(written.mayBeWritten());
}

TEST_F(RewriteTest, ADifferenceThatNoRunShowsIsSaidAndHoldsTheModelBack) {
  RewriteRequest request = requestFor("kvopt");
  request.verification = VerificationExtent::Quick;
  RewriteResult result = rewritten(shipped, request);
  RewriteComparison& comparison = std::get<RewrittenModel>(result);
  EXPECT_EQ(comparison.contradiction(), "");
  check::Obligation difference;
  difference.isOutput = true;
  difference.after = "logits";
  difference.verdict = check::Verdict::Different;
  comparison.checked.emplace().obligations.push_back(difference);
  EXPECT_FALSE(comparison.mayBeWritten());
  EXPECT_NE(comparison.contradiction().find("'logits'"), std::string::npos);

  comparison.verification.reset();
  EXPECT_FALSE(comparison.mayBeWritten());
  EXPECT_TRUE(comparison.isDifferent());
  EXPECT_EQ(comparison.contradiction(), "");
}

TEST_F(RewriteTest, RoundedRowsRun) {
  for (const char* target : {"int8", "kvopt"}) {
    RewriteRequest request = requestFor(target);
    if (request.form.rows == RowKind::Same)
      request.form.rows = RowKind::Float16;
    const RewriteResult result = rewritten(shipped, request);
    const auto& written = std::get<RewrittenModel>(result);
    EXPECT_FALSE(written.checked.has_value());
    EXPECT_TRUE(written.verification);
    EXPECT_TRUE(written.mayBeWritten());
  }
}

TEST_F(RewriteTest, AModelInTheTargetsFormIsUnchanged) {
  RewriteResult first = rewritten(shipped, requestFor("kvopt"));
  auto& written = std::get<RewrittenModel>(first);
  RewrittenPaths paths;
  paths.model = folder.path("out.onnx");
  WeightFiles weights = weightFilesFor(*written.model, paths, /*dryRun=*/false);
  FileAccess access;
  llvm::cantFail(writeFiles(*written.model, written.manifest, paths, weights, access));

  const RewriteResult again = rewritten(paths.model, requestFor("kvopt"));
  const auto* unchanged = std::get_if<UnchangedModel>(&again);
  ASSERT_NE(unchanged, nullptr);
  EXPECT_EQ(unchanged->manifest.json(), written.manifest.json());
  RewriteRequest wider = requestFor("kvopt");
  wider.capacity = 128;
  EXPECT_TRUE(std::holds_alternative<RewrittenModel>(rewritten(paths.model, wider)));
  RewriteRequest layers = requestFor("onnx24");
  layers.layers = {0};
  EXPECT_TRUE(std::holds_alternative<RefusedModel>(rewritten(paths.model, layers)));
}

TEST_F(RewriteTest, ARefusalHasItsSitesAndReasons) {
  RewriteRequest request = requestFor("kvopt");
  request.disabled = {"raise-spelled-attention"};
  const RewriteResult result = rewritten(shipped, request);
  const auto* refused = std::get_if<RefusedModel>(&result);
  ASSERT_NE(refused, nullptr);
  EXPECT_EQ(refused->siteCount, refused->sites.size());
  ASSERT_FALSE(refused->sites.empty());
  EXPECT_FALSE(refused->sites[0].failure.str().empty());
  EXPECT_NE(refused->message.find("cannot be lowered"), std::string::npos) << refused->message;
}

TEST_F(RewriteTest, WhatCannotBeAskedForIsAnError) {
  RewriteRequest request = requestFor("ort");
  request.form.cache = CacheKind::Ring;
  auto none = rewrite(open(shipped), request, toolkit);
  ASSERT_FALSE(static_cast<bool>(none));
  EXPECT_EQ(takeDiagnostic(none.takeError()).kind, Diagnostic::Kind::Usage);
  request = requestFor("kvopt");
  request.form.size = 16;
  auto sized = rewrite(open(shipped), request, toolkit);
  ASSERT_FALSE(static_cast<bool>(sized));
  EXPECT_EQ(takeDiagnostic(sized.takeError()).kind, Diagnostic::Kind::Usage);
  EXPECT_FALSE(static_cast<bool>(targets::parseCapacity("-1")));
}

} // namespace
} // namespace kvopt
