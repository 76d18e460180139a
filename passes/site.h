// AttentionSite: one attention computation with the caches it reads.
#pragma once

#include "ir/graph.h"
#include "passes/analysis/mask_predicate.h"
#include "passes/explain.h"

#include <vector>

namespace kvopt {

enum class SiteKind { Self, Cross, Recurrent, None };

llvm::StringRef siteKindName(SiteKind kind);

/// A cache that grows by concatenation: present = Concat(past, fresh) along `axis`.
struct CacheUpdate {
  Value* past = nullptr;  ///< the graph input
  Value* fresh = nullptr; ///< the new rows
  /// The concatenation's result, an output of the graph that the attention stands in.
  Value* present = nullptr;
  /// The output of the model that the present becomes: another value for attention in a branch.
  Value* output = nullptr;
  Node* concat = nullptr;
  unsigned axis = 0; ///< normalised
  /// The past is not read: the new rows are all there are. There is no `concat` then, and `present`
  /// is `fresh`.
  bool fromStart = false;
  /// How many attentions, each in a branch of its own, update this cache.
  unsigned updaters = 1;
};

/// A bool input of the model that decides whether pasts are read.
struct PastFlag {
  Value* input = nullptr;
  /// What it is where there is a past.
  bool withPast = true;
};

/// One attention (one softmax over keys, or one fused attention operator).
struct AttentionSite {
  unsigned layer = 0;
  SiteKind kind = SiteKind::None;
  /// The ai.kvopt::Sdpa node, or for a missed site the node that would have been its root.
  Node* node = nullptr;
  /// Caches of a matched self-attention; empty otherwise.
  std::optional<CacheUpdate> key;
  std::optional<CacheUpdate> value;
  /// For a site that updates its caches from the start in one branch of a model.
  std::optional<PastFlag> pastFlag;
  /// Set when the site is missed: attention not recognised, or a cache that cannot be proved.
  std::optional<MatchFailure> failure;
  /// Which keys a raised attention sees.
  std::optional<MaskFacts> mask;
  /// The rule that recognised the attention.
  std::string rule;
  /// For a missed site that no rule raised: the rule that came furthest. `failure` is then its.
  std::optional<NearMiss> nearMiss;

  Dim queryHeads;
  Dim keyHeads;
  Dim keyWidth;
  Dim valueWidth;

  bool isMatched() const { return !failure.has_value(); }
  bool hasCache() const { return key && value; }
  std::string id() const { return "L" + std::to_string(layer); }
};

using SiteList = std::vector<AttentionSite>;

/// Finds all sites of a graph in which attention has been raised to ai.kvopt::Sdpa: one per Sdpa
/// node, in execution order (which is the layers' order), and one missed site for every remaining
/// softmax over attention-like scores and every attention operator that no rule raised. Caches are
/// found by data flow: an input that is the first part of a sequence-axis Concat whose result is an
/// output and feeds keys or values.
SiteList findSites(Graph& graph);

/// Gives every site of the main graph that no rule raised the furthest of the near misses at it,
/// which then says why it is missed: those that matched the site's node, or else those rooted where
/// its result goes next (for a softmax: through what it is moved, guarded and masked by, up to the
/// matrix products). `counts` says which rules are asked: those that raise attention.
void attributeNearMisses(SiteList& sites, const NearMissList& misses,
                         llvm::function_ref<bool(llvm::StringRef rule)> counts);

} // namespace kvopt
