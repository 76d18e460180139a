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
  /// Form whose target is checked against each attention layer; nullopt for none.
  std::optional<Form> form;
  /// Rule whose applications and near misses are reported; empty for none.
  std::string rule;
  /// The only layer to report; nullopt for all.
  std::optional<unsigned> layer;
  pattern::MatcherOptions matcher;
  /// Rules and passes to omit.
  std::vector<std::string> disabled;
};

/// Sets `request.form` to the form that the words choose; leaves it unset if no word is given.
llvm::Error readForm(const FormWords& words, ExplainRequest& request);

/// Adds the options whose values are in `request` and `words`. `Options` adds variables to the
/// command line's parser or to an OptionReader.
template <class Options>
void addExplainOptions(Options& add, ExplainRequest& request, FormWords& words) {
  addFormOptions(add, words);
  add.add("--layer", request.layer);
  add.add("--rule", request.rule);
  add.add("--step-budget", request.matcher.stepBudget);
  add.add("--disable", request.disabled);
}

/// Facts about the attention layers of one model.
class Explanation {
public:
  RecoveredModel recovered;
  /// The requested form and the target that writes it; nullopt and null for none.
  std::optional<Form> form;
  const targets::Target* target = nullptr;
  const pattern::RuleRegistry::Entry* rule = nullptr;
  std::vector<SiteGroup> groups;
  /// The model before keys, values and presents were rebuilt from evaluation; null if none were
  /// rebuilt. If it exists, the facts refer to it.
  std::unique_ptr<RecoveredModel> spelled;
  /// Results of evaluation for the keys and values of each group's first layer.
  std::vector<rows::AttentionFacts> facts;

  /// Near misses of the requested rule whose roots are still in the graph, best first.
  std::vector<pattern::NearMiss> ruleMisses() const;
  /// Near misses of rules that raise attention: the reason that a layer was missed, or a partial
  /// match that includes a softmax in any spelling.
  std::vector<pattern::NearMiss> attentionMisses() const;
  /// Number of searches that the step budget ended, by pass.
  std::map<std::string, int64_t> givenUp() const;

  pattern::NearMissList misses;
};

/// Recovers the model and collects what the request asks for. Fails for a file that
/// cannot be opened, and for a target, rule or layer that does not exist.
llvm::Expected<Explanation> explain(const ModelSource& source, const ExplainRequest& request,
                                    const Toolkit& toolkit);

} // namespace kvopt::driver
