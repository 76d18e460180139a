// Target: writes recovered attention in the form one engine runs; one file each under targets.
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

/// The opset of ONNX's own domain that every target needs at least.
inline constexpr int64_t oldestTargetOpset = 13;

class Target {
public:
  virtual ~Target() = default;
  /// The word after `--to`.
  virtual llvm::StringRef name() const = 0;
  virtual llvm::StringRef summary() const = 0;
  /// The number that is taken where none follows the name, as in `blocks:512`: rows of a block, or
  /// tokens of a step. 0: none may follow.
  virtual int64_t defaultSize() const { return 0; }
  /// Whether caches are written for a number of tokens that has to be given.
  virtual bool needsCapacity() const { return false; }
  /// Whether attention has a state between tiles, whose element type may be chosen.
  virtual bool hasTileState() const { return false; }
  /// Whether the target serves to update caches in place, so that it has nothing to do for a model
  /// in which no attention appends to a cache.
  virtual bool isForCaches() const { return true; }
  /// Whether a site that the target takes is one that the target serves for; where it has none in a
  /// model, it has nothing to do there.
  virtual bool serves(const analysis::AttentionSite& site) const;
  /// Why the target has nothing to do at a site that it could take.
  virtual pattern::MatchFailure nothingToDo(const analysis::AttentionSite& site) const;
  /// Whether the target can take sites of which several read one cache.
  virtual bool takesSharedCaches() const { return false; }
  /// Whether keys and values that are expanded from rows of fewer columns are replaced by those
  /// rows before sites are lowered.
  virtual bool compressesCaches() const { return false; }
  /// Whether rows of caches are codes, which stand for other numbers than the model's.
  virtual bool quantizesCaches() const { return false; }
  /// Whether the target can take caches that hold codes whose scales are constants.
  virtual bool takesCodes() const { return false; }
  /// Whether what the target computes for padding, where a row sees no key, need not be what the
  /// model computes there.
  virtual bool changesPadding(const analysis::AttentionSite& /*site*/) const { return false; }
  /// The opset of ONNX's own domain that brought the operators which the target writes. Older
  /// models are brought to it.
  virtual int64_t opset() const { return oldestTargetOpset; }
  /// nullopt if the target can take the model around its sites, otherwise why not: an operator that
  /// cannot be brought to `opset`.
  std::optional<pattern::MatchFailure> supportsModel(const ir::Model& model) const;
  /// Brings a supported model to `opset`; before its sites are found.
  llvm::Error prepare(ir::Model& model) const;
  /// nullopt if the target can take the site, otherwise why not.
  virtual std::optional<pattern::MatchFailure> supports(const analysis::AttentionSite& site,
                                                        const ir::Model& model) const = 0;
  /// Lowers all given sites (each supported) and describes the result. The graph is left complete:
  /// shape readers of caches rewired, functions and opset imports added.
  virtual llvm::Expected<ir::Manifest> lower(ir::Model& model,
                                             llvm::ArrayRef<analysis::AttentionSite*> sites,
                                             const LowerOptions& options,
                                             pattern::Journal& journal) const = 0;
};

/// For each of a model's sites why `target` refuses it, or nullopt where it takes it: what the site
/// or the model lacks, or that none of the sites the target takes appends to a cache. `reorder` is
/// the input that says which row of the caches each batch row continues, or empty: the rows of a
/// target that changes what padding leaves in them must stay where they are.
std::vector<std::optional<pattern::MatchFailure>> refusals(const Target& target,
                                                           const analysis::SiteList& sites,
                                                           const ir::Model& model,
                                                           const std::string& reorder = "");

/// Why a form that leaves the rows of hidden tokens undefined is refused: something other than
/// attention carries rows to other tokens. nullopt where nothing does.
std::optional<pattern::MatchFailure> carriedHiddenRows(const ir::Graph& graph,
                                                       const analysis::SiteList& sites);

class TargetRegistry;

/// Leaves in the hints what applies: a target that a part of a hint names takes the site, and where
/// a hint says to choose a target, one that serves to update caches takes it. `failures` are those
/// of `refusals` for one target.
void keepApplicableHints(llvm::MutableArrayRef<std::optional<pattern::MatchFailure>> failures,
                         const analysis::SiteList& sites, const ir::Model& model,
                         const TargetRegistry& registry, const std::string& reorder = "");

/// What stands after `--to`.
struct TargetChoice {
  const Target* target;
  int64_t size; ///< LowerOptions::size
};

/// All targets, in the order of their names. Filled once, then read only.
class TargetRegistry {
public:
  void add(std::unique_ptr<Target> target);
  const Target* find(llvm::StringRef name) const;
  /// Of `NAME` or, where the target takes it, `NAME:SIZE`.
  llvm::Expected<TargetChoice> choose(llvm::StringRef text) const;
  llvm::ArrayRef<std::unique_ptr<Target>> all() const { return targets; }

private:
  std::vector<std::unique_ptr<Target>> targets;
};

/// Every target under passes/targets (generated).
void registerAll(TargetRegistry& registry);

/// The manifest's entry of a cache as its past input is declared now: present's name and
/// `oneBuffer` are those of an unrewritten model.
ir::ManifestCache describeCache(const analysis::SiteCache& cache, unsigned layer,
                                ir::CacheRole role);

/// How to drive a model that keeps its caches as the exporter wrote them: the caches of `sites`,
/// and whatever else goes through a model from an input to an output as a cache does, found by data
/// flow alone (passes/analysis/cache/driven_caches.h); and what to feed its other inputs, as far as
/// their names do not say (passes/analysis/interface/input_roles.h), by what read them before
/// operators were rewritten.
ir::Manifest exportedManifest(const ir::Graph& graph, llvm::ArrayRef<analysis::AttentionSite> sites,
                              const analysis::InterfaceFacts& interface);

/// Says in the manifest which caches are seen through a window, and how wide it is: as wide as that
/// of the reader that sees most.
void addWindows(llvm::ArrayRef<analysis::AttentionSite> sites, ir::Manifest& manifest);

/// Says of the input that picks batch rows of the caches, which no node reads any more, what it is;
/// an empty name is none.
void addReorder(const ir::Graph& graph, const std::string& input, ir::Manifest& manifest);

/// Says in the manifest how cached rows can be moved to other positions; nothing where that is not
/// known. Caches that the model keeps as rows before a function of them, by their inputs in
/// `unattended`, hold no rotation.
void noteRotations(const std::optional<analysis::ContextRotations>& rotations,
                   const llvm::StringSet<>& unattended, ir::Manifest& manifest);

/// Says in the manifest which layers read the cache of another one.
void addReaders(llvm::ArrayRef<analysis::AttentionSite> sites, ir::Manifest& manifest);

/// Adds an input that is fed whether there is a past, unless the manifest has it.
void addFlag(const analysis::PastFlag& flag, ir::Manifest& manifest);

} // namespace kvopt::targets
