// Explanation of a model: for every attention layer, the rule that matched or the reason that none
// did.
#pragma once

#include "driver/forms/form_words.h"
#include "driver/inspect/site_groups.h"
#include "driver/recover.h"
#include "passes/rows/cache_facts.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace kvopt::driver {

/// Scope of an explanation.
struct ExplainRequest {
  /// Form whose target is asked about each attention layer; nullopt for none.
  std::optional<Form> form;
  /// Rule whose applications and near misses are reported; empty for none.
  std::string rule;
  /// The only layer to report; nullopt for all.
  std::optional<unsigned> layer;
  pattern::MatcherOptions matcher;
  /// Rules and passes to omit.
  std::vector<std::string> disabled;
};

/// The form that the words choose, in `request`; none where no word is given.
llvm::Error readForm(const FormWords& words, ExplainRequest& request);

/// Adds the options that are in `request` and `words`. `Options` adds variables to the command
/// line's parser or to an OptionReader.
template <class Options>
void addExplainOptions(Options& add, ExplainRequest& request, FormWords& words) {
  addFormOptions(add, words);
  add.add("--layer", request.layer);
  add.add("--rule", request.rule);
  add.add("--step-budget", request.matcher.stepBudget);
  add.add("--disable", request.disabled);
}

/// What is known of one model's attention sites.
class Explanation {
public:
  RecoveredModel recovered;
  /// Requested form, and the target that writes it; null for none.
  std::optional<Form> form;
  const targets::Target* target = nullptr;
  const pattern::RuleRegistry::Entry* rule = nullptr;
  std::vector<SiteGroup> groups;
  /// The model without keys, values and presents that were rebuilt from evaluation; the facts refer
  /// to this model if it exists. Null otherwise.
  std::unique_ptr<RecoveredModel> spelled;
  /// Results of evaluation for the keys and values of each group's first layer.
  std::vector<rows::AttentionFacts> facts;

  /// Near misses of the requested rule whose roots are still in the graph, best first.
  std::vector<pattern::NearMiss> ruleMisses() const;
  /// Near misses of rules that raise attention: the reason for a layer, or a match that includes a
  /// softmax in any spelling.
  std::vector<pattern::NearMiss> attentionMisses() const;
  /// For each pass, the number of searches that the step budget ended.
  std::map<std::string, int64_t> givenUp() const;

  pattern::NearMissList misses;
};

/// Recovers the model and collects what the request asks for. Fails for a file that
/// cannot be opened, and for a target, rule or layer that does not exist.
llvm::Expected<Explanation> explain(const ModelSource& source, const ExplainRequest& request,
                                    const Toolkit& toolkit);

} // namespace kvopt::driver
