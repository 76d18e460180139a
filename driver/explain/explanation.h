// Explaining a model: for every attention site the rule that matched, or why it was missed.
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

/// What is to be explained.
struct ExplainRequest {
  /// A form whose target is asked whether it takes each site; nullopt for none.
  std::optional<Form> form;
  /// A rule whose applications and near misses are reported; empty for none.
  std::string rule;
  /// The only site to report; nullopt for all.
  std::optional<unsigned> layer;
  pattern::MatcherOptions matcher;
  /// Rules and passes to leave out.
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
  /// The form that was asked for, and the target that writes it; null for none.
  std::optional<Form> form;
  const targets::Target* target = nullptr;
  const pattern::RuleRegistry::Entry* rule = nullptr;
  std::vector<SiteGroup> groups;
  /// The model as it is without keys, values and presents that were written anew from evaluation:
  /// the facts are of that one, where there are such. Null otherwise.
  std::unique_ptr<RecoveredModel> spelled;
  /// What evaluation finds the keys and values of each group's first site to be.
  std::vector<rows::AttentionFacts> facts;

  /// The near misses of the requested rule whose roots are still in the graph, best first.
  std::vector<pattern::NearMiss> ruleMisses() const;
  /// The near misses of rules that raise attention: a site's reason, or a match that went through a
  /// softmax, however it is spelled.
  std::vector<pattern::NearMiss> attentionMisses() const;
  /// By pass, the number of searches that the step budget ended.
  std::map<std::string, int64_t> givenUp() const;

  pattern::NearMissList misses;
};

/// Recovers the model and collects what the request asks for. Fails for a file that
/// cannot be opened, and for a target, rule or layer that does not exist.
llvm::Expected<Explanation> explain(const ModelSource& source, const ExplainRequest& request,
                                    const Toolkit& toolkit);

} // namespace kvopt::driver
