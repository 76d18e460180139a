// Pass: one named transformation of a whole model, with options. Each pass is one file in
// transforms.
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
#include "passes/targets/partial_manifest.h"
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

/// Options of one pass in a pipeline: `capacity=4096` in `lower{to=kvopt capacity=4096}`.
using PassOptions = std::map<std::string, std::string, std::less<>>;

/// A pass refused the model. Another target, other options or another model may succeed.
/// `PassContext::sites` holds the reason for each refused site.
class RefusedError : public llvm::ErrorInfo<RefusedError, DiagnosticError> {
public:
  using Base = llvm::ErrorInfo<RefusedError, DiagnosticError>;
  using Base::Base;
  static const char ID;
};

/// Extents that `free-extents` replaced with symbols.
struct FreedExtents {
  analysis::DecoderExtents exported;
  analysis::DecoderExtents symbols;

  bool hasBatch() const { return exported.batch != symbols.batch; }
  bool hasTokens() const { return exported.tokens != symbols.tokens; }
  bool hasPast() const { return exported.past != symbols.past; }
  /// Names of the extents that are new symbols: `batch, sequence and past`.
  std::string str() const;
};

/// An attention layer that stays as it was exported.
struct LeftSite {
  unsigned layer = 0;
  /// Whether the model loses nothing: no step changes the layer's keys and values.
  bool costsNothing = false;
  pattern::MatchFailure why; ///< the target's reason
};

/// State that passes share while a pipeline runs.
struct PassContext {
  PassContext(const pattern::RuleRegistry& ruleRegistry,
              const targets::TargetRegistry& targetRegistry);
  PassContext(const PassContext&) = delete;
  ~PassContext();

  const pattern::RuleRegistry& rules;
  const targets::TargetRegistry& targets;
  /// Names of rules that no pass may apply, and of passes that must not run, not even as part of
  /// another pass.
  std::vector<std::string> disabledRules;
  std::vector<std::string> disabledPasses;
  /// Limits of the matcher's search at one root.
  pattern::MatcherOptions matcher;
  /// Receives near misses; null to drop them.
  pattern::NearMissList* nearMisses = nullptr;

  /// Nodes that keep the model's own spelling, by their names in the journal.
  llvm::StringSet<> leftAlone;

  pattern::Journal journal;
  /// Counters by pass, in the order of first use.
  std::map<std::string, std::map<std::string, int64_t>> statistics;
  /// Conditions on the inputs that the graph itself does not demand: `total = past + tokens`.
  std::vector<std::string> assumptions;
  /// Sentences about extents that share a name in the file but are not equal.
  std::vector<std::string> unequalExtents;
  /// Whether a pass changed what attention computes for rows that see no key. Only padding rows can
  /// be such rows.
  bool hiddenRowsUndefined = false;
  /// Masks that must be ones, as assumed by `assume-no-padding` or declared in the model's
  /// manifest.
  std::set<std::string> unpaddedMasks;
  /// Roles of the inputs. Set by `read-interface`.
  analysis::InterfaceFacts interface;
  /// Elements that attention of the exported graph reads and hides, evaluated at small sizes. Set
  /// by `read-attention`, for `check-attention`.
  std::shared_ptr<const analysis::ExportedAttention> exportedAttention;
  /// Input that selects the batch row that each cache row continues. Set where `lift-reorders` took
  /// it out of the graph or the model's manifest declares it; empty if there is none.
  std::string reorder;
  /// Outputs with rows of new tokens that `add-caches` turned into the caches of those rows.
  std::vector<std::string> outputsMadeCaches;
  /// Form of the caches in the exported model, as far as passes changed it or the model's manifest
  /// records it.
  analysis::CacheHistory history;
  /// Whether `add-caches` moved keys and values of another sequence out of the model.
  /// `add-caches{part=first}` leaves exactly those.
  bool hasFirstStep = false;
  /// Input that selected whether pasts are read, where `specialise-branch{past=1}` fixed its value.
  /// The input remains and is unused.
  std::optional<analysis::PastFlag> unreadFlag;
  /// Reason why cached rows cannot be moved to other positions, if the caller asked for it; nullopt
  /// if they can.
  std::optional<pattern::MatchFailure> shiftFailure;
  /// Set by `free-extents`, for `prove-extents`.
  std::optional<FreedExtents> freed;
  /// Set by `detect-sites`.
  analysis::SiteList sites;
  /// Manifest of the lowered model, and the layers of `sites` that were lowered. Set by `lower`.
  std::optional<ir::Manifest> manifest;
  /// Manifest of the model before lowering.
  std::optional<ir::Manifest> exported;
  std::vector<unsigned> lowered;
  /// The other layers that were to be lowered. Set by `lower`.
  std::vector<LeftSite> left;

  /// Set for a run that leaves some attention alone: what the run before it, which recovered all
  /// attention, wrote.
  std::optional<targets::WholeRecovery> whole;

  /// Prepares a run from the start that leaves the given nodes alone. Keeps the caller's settings,
  /// what this run, which must have lowered layers, knows of all caches, and why layers are left.
  void restart(llvm::StringSet<> nodes);

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
  std::string name; ///< kebab case; the stem of the file
  std::string summary;
  std::vector<std::string> optionNames;
  /// Creates the pass; fails on invalid option values.
  std::function<llvm::Expected<std::unique_ptr<Pass>>(const PassOptions& options)> make;
};

/// All passes. Filled once, then read-only.
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

/// Registers a pass that applies the rules of one group. Most rewriting passes are of this kind.
void addRuleGroupPass(PassRegistry& registry, std::string name, std::string summary,
                      pattern::RuleGroup group);

/// Finds the sites of the main graph. Where no rule raised a site, the recorded near misses give
/// the reason.
analysis::SiteList explainedSites(ir::Model& model, const PassContext& context);

/// Applies the given rules to the main graph.
llvm::Error applyRuleList(ir::Model& model,
                          llvm::ArrayRef<const pattern::RuleRegistry::Entry*> rules,
                          llvm::StringRef passName, PassContext& context);

} // namespace kvopt::passes
