// Target: writes recovered attention in the form of one engine. Each target is one file in targets.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"
#include "passes/analysis/cache/site.h"
#include "passes/analysis/interface/interface_facts.h"
#include "passes/analysis/rotation/context_rotations.h"
#include "passes/pattern/rewriter.h"
#include "passes/targets/lower_options.h"

#include "llvm/ADT/StringSet.h"

namespace kvopt::targets {

/// Minimum opset of ONNX's own domain for every target.
inline constexpr int64_t oldestTargetOpset = 13;

class Target {
public:
  virtual ~Target() = default;
  /// The value of `--to`.
  virtual llvm::StringRef name() const = 0;
  virtual llvm::StringRef summary() const = 0;
  /// Default for the number after the name, as in `blocks:512`: rows of a block, or tokens of a
  /// step. 0 if the target takes no number.
  virtual int64_t defaultSize() const { return 0; }
  /// Whether the user must give a number of tokens for the caches.
  virtual bool needsCapacity() const { return false; }
  /// Whether attention has a state between tiles whose element type the user may choose.
  virtual bool hasTileState() const { return false; }
  /// Whether the target updates caches in place. Such a target has nothing to do for a model in
  /// which no attention appends to a cache.
  virtual bool isForCaches() const { return true; }
  /// Whether lowering the site serves the target's purpose. A target has nothing to do for a model
  /// without such a site.
  virtual bool serves(const analysis::AttentionSite& site) const;
  /// Reason why the target has nothing to do at a site that it could lower.
  virtual pattern::MatchFailure nothingToDo(const analysis::AttentionSite& site) const;
  /// Whether the target can lower several sites that read one cache.
  virtual bool takesSharedCaches() const { return false; }
  /// Whether keys and values that are expanded from rows with fewer columns are replaced by those
  /// rows before sites are lowered.
  virtual bool compressesCaches() const { return false; }
  /// Whether the target quantizes the rows of caches.
  virtual bool quantizesCaches() const { return false; }
  /// Whether written models use operators of ai.kvopt, whose function bodies other engines run.
  virtual bool usesOwnOperators() const { return false; }
  /// Whether the target can lower quantized caches whose scales are constants.
  virtual bool takesCodes() const { return false; }
  /// Whether results for padding rows that see no key may differ from the model's.
  virtual bool changesPadding(const analysis::AttentionSite& /*site*/) const { return false; }
  /// Names of passes that improve a lowered model for the engine of the target.
  virtual llvm::ArrayRef<const char*> finishingPasses() const { return {}; }
  /// Opset of ONNX's own domain that introduced the operators of the target. Older models are
  /// converted to it.
  virtual int64_t opset() const { return oldestTargetOpset; }
  /// nullopt if the target supports the model apart from its sites; otherwise the reason: an
  /// operator that cannot be converted to `opset`.
  std::optional<pattern::MatchFailure> supportsModel(const ir::Model& model) const;
  /// Converts a supported model to `opset`, before its sites are found.
  llvm::Error prepare(ir::Model& model) const;
  /// nullopt if the target supports the site; otherwise the reason.
  virtual std::optional<pattern::MatchFailure> supports(const analysis::AttentionSite& site,
                                                        const ir::Model& model) const = 0;
  /// Lowers all given sites and describes the result. Every site must be supported. The graph is
  /// complete afterwards: shape readers of caches are rewired, functions and opset imports added.
  virtual llvm::Expected<ir::Manifest> lower(ir::Model& model,
                                             llvm::ArrayRef<analysis::AttentionSite*> sites,
                                             const LowerOptions& options,
                                             pattern::Journal& journal) const = 0;
};

/// Operators of a model that carry rows from one token to another.
enum class RowCarriers {
  Unknown,
  AreAttention, ///< Only attention does, including attention that was not recovered.
};

/// For each site of a model, the reason why `target` refuses it, or nullopt if it takes the site.
/// The reason is a property that the site or the model lacks, or that none of the sites that the
/// target takes appends to a cache. `reorder` is the input that selects the cache row that each
/// batch row continues, or empty. A target that changes the results for padding refuses such an
/// input, because its rows must keep their places.
std::vector<std::optional<pattern::MatchFailure>>
refusals(const Target& target, const analysis::SiteList& sites, const ir::Model& model,
         const std::string& reorder = "", RowCarriers = RowCarriers::Unknown);

/// Whether a model in the target's form loses nothing if the site, which the target refuses, stays
/// as exported: no step changes its keys and values. A target that only replaces operators must
/// replace all that are recovered.
bool mayStay(const Target& target, const analysis::AttentionSite& site);

/// Reason to refuse a form that leaves the rows of hidden tokens undefined: something other than
/// attention carries rows to other tokens. nullopt if nothing does.
std::optional<pattern::MatchFailure> carriedHiddenRows(const ir::Graph& graph,
                                                       const analysis::SiteList& sites);

class TargetRegistry;

/// Removes the parts of hints that do not apply. A part that names a target stays if that target
/// takes the site; advice to choose a target stays if one that updates caches in place takes it.
/// `failures` is the result of `refusals` for `asked`. If `asked` does not use operators of
/// ai.kvopt, hints name a target that does only if ONNX's own Attention cannot express the site.
void keepApplicableHints(const Target& asked,
                         llvm::MutableArrayRef<std::optional<pattern::MatchFailure>> failures,
                         const analysis::SiteList& sites, const ir::Model& model,
                         const TargetRegistry& registry, const std::string& reorder = "");

/// A parsed value of `--to`.
struct TargetChoice {
  const Target* target;
  int64_t size; ///< LowerOptions::size
};

/// All targets, ordered by name. Filled once, then read-only.
class TargetRegistry {
public:
  void add(std::unique_ptr<Target> target);
  const Target* find(llvm::StringRef name) const;
  /// Parses `NAME` or, if the target takes a size, `NAME:SIZE`.
  llvm::Expected<TargetChoice> choose(llvm::StringRef text) const;
  llvm::ArrayRef<std::unique_ptr<Target>> all() const { return targets; }

private:
  std::vector<std::unique_ptr<Target>> targets;
};

/// Every target under passes/targets (generated).
void registerAll(TargetRegistry& registry);

/// Manifest entry of a cache as its past input is declared at present. The name of the present and
/// the storage are those of an unrewritten model.
ir::ManifestCache describeCache(const analysis::SiteCache& cache, unsigned layer,
                                ir::CacheRole role);

/// Manifest of a model whose caches have the exporter's form. It lists the caches of `sites`, and
/// all other state that the model passes from an input to an output as it does a cache, found by
/// data flow alone (passes/analysis/cache/driven_caches.h). For the other inputs it says what to
/// feed where their names do not (passes/analysis/interface/input_roles.h), based on their readers
/// before operators were rewritten.
ir::Manifest exportedManifest(const ir::Graph& graph, llvm::ArrayRef<analysis::AttentionSite> sites,
                              const analysis::InterfaceFacts& interface);

/// Records in the manifest which caches are read through a window, and its width: that of the
/// reader with the widest window.
void addWindows(llvm::ArrayRef<analysis::AttentionSite> sites, ir::Manifest& manifest);

/// Records the role of the input that selects batch rows of the caches. No node reads this input
/// any more; an empty name means there is none.
void addReorder(const ir::Graph& graph, const std::string& input, ir::Manifest& manifest);

/// Records in the manifest how cached rows can be moved to other positions; nothing if that is not
/// known. Caches in `unattended`, by their inputs, hold rows to which the model still applies a
/// function; they hold no rotation.
void noteRotations(const std::optional<analysis::ContextRotations>& rotations,
                   const llvm::StringSet<>& unattended, ir::Manifest& manifest);

/// Records in the manifest which layers read the cache of another layer.
void addReaders(llvm::ArrayRef<analysis::AttentionSite> sites, ir::Manifest& manifest);

/// Adds an input that says whether there is a past, unless the manifest has it.
void addFlag(const analysis::PastFlag& flag, ir::Manifest& manifest);

} // namespace kvopt::targets
