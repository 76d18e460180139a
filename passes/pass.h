// Pass: one transformation of a whole model, named, with options; one file each under transforms.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"
#include "passes/analysis/cache/cache_history.h"
#include "passes/analysis/cache/site.h"
#include "passes/analysis/interface/decoder_extents.h"
#include "passes/analysis/interface/interface_facts.h"
#include "passes/pattern/explain.h"
#include "passes/pattern/rewriter.h"
#include "passes/pattern/rule.h"
#include "passes/targets/target.h"
#include "support/diagnostic.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

#include <functional>
#include <map>
#include <memory>
#include <set>

namespace kvopt::analysis {
struct ExportedAttention;
} // namespace kvopt::analysis

namespace kvopt::targets {
class TargetRegistry;
} // namespace kvopt::targets

namespace kvopt::passes {

/// Options of one pass in a pipeline: `lower{to=kvopt capacity=4096}`.
using PassOptions = std::map<std::string, std::string, std::less<>>;

/// A pass does not take the model for what it is: another target, other options or another model
/// may go through. `PassContext::sites` say why each site was refused.
class RefusedError : public llvm::ErrorInfo<RefusedError, DiagnosticError> {
public:
  using Base = llvm::ErrorInfo<RefusedError, DiagnosticError>;
  using Base::Base;
  static const char ID;
};

/// Extents that `free-extents` gave symbols to.
struct FreedExtents {
  analysis::DecoderExtents exported;
  analysis::DecoderExtents symbols;

  bool hasBatch() const { return exported.batch != symbols.batch; }
  bool hasTokens() const { return exported.tokens != symbols.tokens; }
  bool hasPast() const { return exported.past != symbols.past; }
  /// `batch, sequence and past`: those that are new.
  std::string str() const;
};

/// What passes share while a pipeline runs.
struct PassContext {
  PassContext(const pattern::RuleRegistry& ruleRegistry,
              const targets::TargetRegistry& targetRegistry)
      : rules(ruleRegistry), targets(targetRegistry) {}

  const pattern::RuleRegistry& rules;
  const targets::TargetRegistry& targets;
  /// Rules by name that no pass may apply, and passes that no other one may do the work of.
  std::vector<std::string> disabledRules;
  std::vector<std::string> disabledPasses;
  /// How long the matcher searches at one root.
  pattern::MatcherOptions matcher;
  /// Where near misses go; null when nobody listens.
  pattern::NearMissList* nearMisses = nullptr;

  /// Nodes, as the journal calls them, that stay in the model's own spelling.
  llvm::StringSet<> leftAlone;

  pattern::Journal journal;
  /// Counters by pass, in the order of first use.
  std::map<std::string, std::map<std::string, int64_t>> statistics;
  /// What has to hold of the inputs beyond what the graph itself demands: `total = past + tokens`.
  std::vector<std::string> assumptions;
  /// Sentences about names that the file gives to extents that are not equal.
  std::vector<std::string> unequalExtents;
  /// Set where a pass changed what attention computes for rows that see no key, which only padding
  /// can be.
  bool hiddenRowsUndefined = false;
  /// Masks that must be ones: `assume-no-padding` took that for granted, or the model's manifest
  /// says so.
  std::set<std::string> unpaddedMasks;
  /// Set by `read-interface`: what the inputs are for.
  analysis::InterfaceFacts interface;
  /// Set by `read-attention`: what the exported graph's attention reads and hides, evaluated at
  /// small sizes, for `check-attention`.
  std::shared_ptr<const analysis::ExportedAttention> exportedAttention;
  /// The input that says which batch row each row of the caches continues, where `lift-reorders`
  /// took it out of the graph or the model's manifest says so; empty without one.
  std::string reorder;
  /// Outputs that handed out rows of new tokens and that `add-caches` made the caches of them.
  std::vector<std::string> outputsMadeCaches;
  /// What the caches were in the exported model, as far as passes have changed them or the model's
  /// manifest says so.
  analysis::CacheHistory history;
  /// Set where `add-caches` took keys and values of another sequence out of the model:
  /// `add-caches{part=first}` leaves them.
  bool hasFirstStep = false;
  /// The input that decided whether pasts are read, where `specialise-branch{past=1}` took that for
  /// granted: it stays, and nothing reads it.
  std::optional<analysis::PastFlag> unreadFlag;
  /// Why cached rows of the model cannot be moved to other positions, where that was asked; nullopt
  /// where they can.
  std::optional<pattern::MatchFailure> shiftFailure;
  /// Set by `free-extents`, for `prove-extents`.
  std::optional<FreedExtents> freed;
  /// Set by `detect-sites`.
  analysis::SiteList sites;
  /// Set by `lower`: what drives the lowered model, and the layers of `sites` that were lowered.
  std::optional<ir::Manifest> manifest;
  /// What drove it before.
  std::optional<ir::Manifest> exported;
  std::vector<unsigned> lowered;

  /// Forgets what passes wrote, for another run from the start; keeps what the caller asked for.
  void restart();

  void count(llvm::StringRef pass, llvm::StringRef counter, int64_t by = 1) {
    statistics[pass.str()][counter.str()] += by;
  }
};

class Pass {
public:
  virtual ~Pass() = default;
  virtual llvm::Error run(ir::Model& model, PassContext& context) = 0;
};

/// A pass that pipelines can name.
struct PassInfo {
  std::string name; ///< kebab case, the file's stem
  std::string summary;
  std::vector<std::string> optionNames;
  /// Makes the pass; fails for option values it cannot take.
  std::function<llvm::Expected<std::unique_ptr<Pass>>(const PassOptions& options)> make;
};

/// All passes. Filled once, then read only.
class PassRegistry {
public:
  void add(PassInfo info);
  const PassInfo* find(llvm::StringRef name) const;
  llvm::ArrayRef<PassInfo> all() const { return infos; }

private:
  std::vector<PassInfo> infos;
};

/// Every pass under passes/transforms (generated).
void registerAll(PassRegistry& registry);

/// Registers a pass that applies the rules of one group; what most rewriting passes are.
void addRuleGroupPass(PassRegistry& registry, std::string name, std::string summary,
                      pattern::RuleGroup group);

/// Finds the sites of the main graph, and what the near misses that were listened for say of those
/// that no rule raised.
analysis::SiteList explainedSites(ir::Model& model, const PassContext& context);

/// Applies the given rules to the main graph.
llvm::Error applyRuleList(ir::Model& model,
                          llvm::ArrayRef<const pattern::RuleRegistry::Entry*> rules,
                          llvm::StringRef passName, PassContext& context);

} // namespace kvopt::passes
