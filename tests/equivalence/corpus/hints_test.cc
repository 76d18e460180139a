// Every hint applies to the model that it is given for: what it says is missing is missing, and the
// target that it names takes the site.
#include "driver/forms/form_table.h"
#include "driver/recover.h"
#include "driver/rewrite/rewrite.h"
#include "ir/text/reader.h"
#include "passes/pattern/explain.h"
#include "passes/pattern/reason_docs.h"
#include "support/string_ends.h"
#include "tests/equivalence/corpus/corpus.h"
#include "tests/equivalence/rewritten_model.h"

#include "llvm/ADT/StringSet.h"

#include <map>
#include <set>

namespace kvopt {
using namespace analysis;
using namespace driver;
using namespace ir;
using namespace pattern;

namespace {

bool lacksExtents(const Value& value) {
  return !value.type().hasRank() ||
         llvm::any_of(value.type().shape(), [](const Dim& extent) { return extent.isUnknown(); });
}

/// The text between the first two quotation marks.
std::string nameIn(llvm::StringRef text) { return text.split('\'').second.split('\'').first.str(); }

/// What is checked of the model that a hint is given for.
struct HintKind {
  const char* start;
  bool (*applies)(const std::string& path, Graph& graph, const std::string& hint,
                  const Toolkit& toolkit);
};

bool isUndeclared(const std::string&, Graph& graph, const std::string& hint, const Toolkit&) {
  const Value* input = graph.findValue(nameIn(hint));
  return input && input->isGraphInput() && lacksExtents(*input);
}

bool losesExtents(const std::string&, Graph& graph, const std::string& hint, const Toolkit&) {
  return llvm::any_of(graph.nodes(), [&](const Node& node) {
    return hint.find(node.describe()) != std::string::npos &&
           llvm::any_of(
               node.results(),
               [](const Value& result) { return !result.isAbsent() && lacksExtents(result); }) &&
           llvm::none_of(node.operands(),
                         [](const Use& use) { return use.value() && lacksExtents(*use.value()); });
  });
}

bool hasTwoSymbols(const std::string&, Graph& graph, const std::string&, const Toolkit&) {
  llvm::StringSet<> symbols;
  for (const auto& input : graph.inputs())
    if (input->type().hasRank())
      for (const Dim& extent : input->type().shape())
        for (const std::string& symbol : extent.symbols())
          symbols.insert(symbol);
  return symbols.size() > 1;
}

bool hasOneSymbolAtMost(const std::string& path, Graph& graph, const std::string& hint,
                        const Toolkit& toolkit) {
  return !hasTwoSymbols(path, graph, hint, toolkit);
}

bool everythingIsDeclared(const std::string&, Graph& graph, const std::string&, const Toolkit&) {
  return llvm::none_of(graph.inputs(), [](const std::unique_ptr<Value>& input) {
    return input->hasUses() && !input->constant() && lacksExtents(*input);
  });
}

/// Whether add-cache takes the model, or says why not.
bool mayGetCaches(const std::string& path, Graph&, const std::string&, const Toolkit& toolkit) {
  RewriteRequest request;
  request.addCaches = true;
  request.form = valueOrThrow(presetForm("primitive"));
  request.verification = VerificationExtent::Off;
  auto result = rewrite(valueOrThrow(openModel(path, toolkit)), request, toolkit);
  if (!result) {
    llvm::consumeError(result.takeError());
    return false;
  }
  const auto* refused = std::get_if<RefusedModel>(&*result);
  return !refused || !refused->sites.empty();
}

constexpr HintKind kinds[] = {
    {"declare the shape of '", isUndeclared},
    {"no declaration is missing: extents are unknown from ", losesExtents},
    {"no declaration is missing: the extents differ", hasOneSymbolAtMost},
    {"no declaration is missing", everythingIsDeclared},
    {"give equal extents one symbol", hasTwoSymbols},
    {"kvopt add-cache adds", mayGetCaches},
};

/// The targets that a hint names.
std::vector<std::string> targetsIn(llvm::StringRef hint) {
  std::vector<std::string> names;
  while (hint.contains("--to ")) {
    hint = hint.split("--to ").second;
    names.push_back(hint.take_while([](char c) { return llvm::isAlnum(c) || c == '-'; }).str());
  }
  return names;
}

class HintsTest : public testing::Test {
protected:
  /// Of what is missed, and of what each target refuses.
  void check(const std::string& path) {
    NearMissList misses = listenToRaising(toolkit);
    RecoveryOptions options;
    options.nearMisses = &misses;
    RecoveredModel recovered = valueOrThrow(recoverModel(path, toolkit, options));
    recovered.context->nearMisses = nullptr;
    refused.clear();
    checked.clear();
    for (const auto& target : toolkit.targets.all())
      refused[target->name().str()] =
          targets::refusals(*target, recovered.context->sites, *recovered.model);
    for (const AttentionSite& site : recovered.context->sites)
      if (site.failure)
        check(path, recovered, site.layer, hintFor(*site.failure));
    for (const auto& target : toolkit.targets.all()) {
      auto failures = refused.at(target->name().str());
      targets::keepApplicableHints(*target, failures, recovered.context->sites, *recovered.model,
                                   toolkit.targets);
      for (const AttentionSite& site : recovered.context->sites)
        if (site.isMatched() && failures[site.layer]) {
          SCOPED_TRACE("--to " + target->name().str());
          check(path, recovered, site.layer, hintFor(*failures[site.layer]));
        }
    }
  }

  void check(const std::string& path, RecoveredModel& recovered, unsigned layer,
             const std::string& hint) {
    SCOPED_TRACE(path + " L" + std::to_string(layer) + ": " + hint);
    if (!checked.emplace(layer, hint).second)
      return; // by another target
    ++hints;
    for (const HintKind& kind : kinds)
      if (startsWith(hint, kind.start)) {
        EXPECT_TRUE(kind.applies(path, recovered.model->graph(), hint, toolkit));
        break;
      }
    if (hint.find("choose a") != std::string::npos && recovered.context->sites[layer].isMatched()) {
      EXPECT_TRUE(llvm::any_of(toolkit.targets.all(), [&](const auto& other) {
        return other->isForCaches() && !refused.at(other->name().str())[layer];
      }));
    }
    for (const std::string& name : targetsIn(hint)) {
      const auto failures = refused.find(name);
      ASSERT_NE(failures, refused.end());
      EXPECT_FALSE(failures->second[layer]) << failures->second[layer]->str();
    }
  }

  /// The first site's failure, with its hint.
  MatchFailure failureOf(const std::string& text) {
    const std::string path = writtenModel(text, toolkit, folder);
    check(path);
    NearMissList misses = listenToRaising(toolkit);
    RecoveryOptions options;
    options.nearMisses = &misses;
    RecoveredModel recovered = valueOrThrow(recoverModel(path, toolkit, options));
    recovered.context->nearMisses = nullptr;
    for (const AttentionSite& site : recovered.context->sites)
      if (site.failure)
        return *site.failure;
    return {};
  }

  Toolkit toolkit;
  TemporaryFolder folder;
  size_t hints = 0;
  /// Of the model that is checked: what each target refuses, and hints of layers.
  std::map<std::string, std::vector<std::optional<MatchFailure>>> refused;
  std::set<std::pair<unsigned, std::string>> checked;
};

/// Attention of `q`, `k` and `v` [B,2,S,4] with caches whose pasts are made by `pasts`.
std::string cachedText(const std::string& declarations, const std::string& pasts,
                       const std::string& queries = "  q = Neg (k)") {
  return R"(<ir_version: 8, opset_import: ["" : 17, "my.own" : 1]>
decoder (float[B, 2, S, 4] k, float[B, 2, S, 4] v, float[B, 2, P, 4] past_k, float[B, 2, P, 4] past_v)" +
         declarations + R"() =>
        (float[B, 2, S, 4] o, float[B, 2, T, 4] present_k, float[B, 2, T, 4] present_v)
<float half = {0.5}, int64[1] two = {2}, int64[1] most = {9223372036854775807}, int64[1] zero = {0}>
{
)" + pasts +
         "\n" + queries + R"(
  present_k = Concat <axis = 2> (old_k, k)
  present_v = Concat <axis = 2> (old_v, v)
  turned = Transpose <perm = [0, 1, 3, 2]> (present_k)
  scores = MatMul (q, turned)
  scaled = Mul (scores, half)
  p = Softmax <axis = -1> (scaled)
  o = MatMul (p, present_v)
})";
}

TEST_F(HintsTest, NameTheInputThatCutsThePast) {
  const MatchFailure direct = failureOf(cachedText(", int64[1] first", R"(
  old_k = Slice (past_k, first, most, two)
  old_v = Slice (past_v, first, most, two))"));
  EXPECT_EQ(direct.code, ReasonCode::PastNotInput) << direct.str();
  EXPECT_EQ(direct.found, "Slice of 'past_k' by 'first'");
  const MatchFailure computed = failureOf(cachedText(", int32 dropped", R"(
  number = Cast <to = 7> (dropped)
  first = Unsqueeze (number, zero)
  old_k = Slice (past_k, first, most, two)
  old_v = Slice (past_v, first, most, two))"));
  EXPECT_EQ(computed.code, ReasonCode::PastNotInput) << computed.str();
  EXPECT_EQ(computed.found, "Slice of 'past_k' by 'dropped'");
}

TEST_F(HintsTest, NameWhereExtentsAreLost) {
  const std::string pasts = "  old_k = Identity (past_k)\n  old_v = Identity (past_v)";
  const MatchFailure lost = failureOf(cachedText("", pasts, "  q = my.own.Turned (k)"));
  EXPECT_EQ(hintFor(lost).find("no declaration is missing: extents are unknown from node"), 0U)
      << lost.str();
  EXPECT_NE(hintFor(lost).find("my.own::Turned"), std::string::npos) << lost.str();
  // The declaration that is missing is named, and with it the site is found.
  const MatchFailure undeclared = failureOf(cachedText(", float[] q", pasts, ""));
  EXPECT_EQ(hintFor(undeclared), "declare the shape of 'q', symbolic extents are enough")
      << undeclared.str();
  const MatchFailure declared = failureOf(cachedText(", float[B, 2, S, 4] q", pasts, ""));
  EXPECT_TRUE(declared.found.empty()) << declared.str();
}

TEST_F(HintsTest, SayThatScoresOfSeveralSetsOfKeysAreJoined) {
  const auto text = [](const char* cut, const char* scale) {
    return std::string(R"(<ir_version: 8, opset_import: ["" : 17]>
decoder (int64[B, S] ids, float[50, 4] table, float[B, P, 4] past_k, float[B, P, 4] past_v, int64[2] lengths) =>
        (float[B, S, 4] o, float[B, S, 4] new_k)
<float half = {0.5}, int64[1] two = {2}, int64[1] most = {9223372036854775807}, int64[1] zero = {0}>
{
  h = Gather (table, ids)
  new_k = Neg (h)
  past_kt = Transpose <perm = [0, 2, 1]> (past_k)
  new_kt = Transpose <perm = [0, 2, 1]> (new_k)
  of_past = MatMul (h, past_kt)
  of_new = MatMul (h, new_kt)
)") + scale +
           cut + R"(
  first = MatMul (past_p, past_v)
  second = MatMul (new_p, h)
  o = Add (first, second)
})";
  };
  const char* whole = R"(
  joined = Concat <axis = 2> (of_past, of_new)
  scaled = Mul (joined, half)
  p = Softmax <axis = -1> (scaled))";
  const char* parts = R"(
  past_scaled = Mul (of_past, half)
  new_scaled = Mul (of_new, half)
  joined = Concat <axis = -1> (past_scaled, new_scaled)
  p = Softmax <axis = -1> (joined))";
  const char* split = "\n  past_p, new_p = Split <axis = 2> (p, lengths)";
  const char* sliced = R"(
  shape = Shape <start = 1, end = 2> (past_k)
  past_p = Slice (p, zero, shape, two)
  new_p = Slice (p, shape, most, two))";
  for (const char* scale : {whole, parts}) {
    // An input says where the probabilities are cut.
    const MatchFailure failure = failureOf(text(split, scale));
    EXPECT_EQ(failure.code, ReasonCode::KeysInParts) << failure.str();
    EXPECT_EQ(failure.found, "scores of 2 sets of keys, joined before one softmax");
    // Attention is found, but the new values are not handed out.
    const MatchFailure joined = failureOf(text(sliced, scale));
    EXPECT_EQ(joined.code, ReasonCode::PresentNotOutput) << joined.str();
  }
}

TEST_F(HintsTest, OfTheCorpora) {
  for (const auto& folder :
       {corpusFolder(), corpusFolder() / ".." / "corpus2", corpusFolder() / ".." / "corpus3"})
    for (const std::string& name : sampleOf(foldersWith(folder, "model.onnx")))
      check((folder / name / "model.onnx").string());
  if (hints == 0)
    GTEST_SKIP() << "no models; set KVOPT_CORPUS";
}

} // namespace
} // namespace kvopt
