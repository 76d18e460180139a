// Near misses are told to the sites they belong to, by data flow.
#include "ir/op.h"
#include "ir/shapes/shape_inference.h"
#include "ir/text/reader.h"
#include "passes/analysis/cache/site.h"
#include "support/diagnostic.h"

#include <gtest/gtest.h>

namespace kvopt {
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

NearMiss made(const char* rule, const char* root, unsigned matched,
              std::vector<std::string> nodes = {}) {
  NearMiss miss;
  miss.rule = rule;
  miss.root = root;
  miss.matched = matched;
  miss.nodes = std::move(nodes);
  miss.failure.expected = rule;
  miss.isSet = true;
  return miss;
}

class NearMissSites : public testing::Test {
protected:
  NearMissSites() {
    registerAll(ops);
    // The probabilities are guarded and moved before they weigh the rows; `far` is another product.
    auto read = readText(R"(
<ir_version: 8, opset_import: ["" : 17]>
g (float[B, 4, S, 16] q, float[B, 4, 16, T] k, float[B, 4, T, 16] v, bool[B, 4, S, T] bad,
   float[16, 16] w) => (float[B, 4, S, 16] far)
<float zero = {0.0}>
{
  s = MatMul (q, k)
  p = Softmax (s)
  guarded = Where (bad, zero, p)
  o = MatMul (guarded, v)
  far = MatMul (o, w)
}
)",
                         ops);
    if (!read)
      throw std::runtime_error(takeDiagnostic(read.takeError()).str());
    model = std::move(*read);
    if (llvm::Error error = inferShapes(model->graph()))
      throw std::runtime_error(takeDiagnostic(std::move(error)).str());
  }

  /// The one site, after these misses were attributed; rules that start with '-' do not count.
  AttentionSite explained(std::vector<NearMiss> misses) {
    NearMissList list;
    for (NearMiss& miss : misses)
      list.add(std::move(miss));
    SiteList sites = findSites(model->graph());
    EXPECT_EQ(sites.size(), 1u);
    attributeNearMisses(sites, list, [](llvm::StringRef rule) { return rule.front() != '-'; });
    return sites.front();
  }

  OpRegistry ops;
  std::unique_ptr<Model> model;
};

TEST_F(NearMissSites, TheFurthestAtTheNextProductWins) {
  AttentionSite site = explained({made("a", "o", 1), made("b", "o", 3), made("-n", "o", 7),
                                  made("c", "far", 9), made("d", "s", 8)});
  ASSERT_TRUE(site.nearMiss.has_value());
  EXPECT_EQ(site.nearMiss->rule, "b");
  EXPECT_EQ(site.failure->expected, "b");
  EXPECT_EQ(site.failure->node, "o");
}

TEST_F(NearMissSites, AMatchThroughTheSoftmaxComesBeforeOneBehindIt) {
  AttentionSite site = explained(
      {made("a", "o", 5), made("b", "far", 4, {"far", "o", "p"}), made("c", "far", 2, {"p"})});
  ASSERT_TRUE(site.nearMiss.has_value());
  EXPECT_EQ(site.nearMiss->rule, "b");
}

TEST_F(NearMissSites, WithoutANearMissTheSiteSaysWhatItIs) {
  AttentionSite site = explained({made("a", "far", 3), made("b", "s", 3)});
  EXPECT_FALSE(site.nearMiss.has_value());
  EXPECT_EQ(site.failure->code, ReasonCode::PatternMismatch);
  EXPECT_EQ(site.failure->found, "Softmax");
}

TEST_F(NearMissSites, AListCanListenToSomeRulesOnly) {
  NearMissList list({"a", "b"});
  EXPECT_TRUE(list.listensTo("a"));
  EXPECT_FALSE(list.listensTo("c"));
  EXPECT_TRUE(NearMissList().listensTo("c"));
}

} // namespace
} // namespace kvopt
