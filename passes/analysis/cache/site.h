// AttentionSite: one attention computation with the caches it reads.
#pragma once

#include "ir/cache_layout.h"
#include "ir/cache_role.h"
#include "ir/cache_update.h"
#include "ir/graph.h"
#include "passes/analysis/mask/mask_predicate.h"
#include "passes/pattern/explain.h"

#include <vector>

namespace kvopt::analysis {

/// A cache as one operand of an attention reads it.
struct SiteCache {
  /// Grows, Static, Ring or ReadOnly.
  ir::CacheUpdate update = ir::CacheUpdate::Grows;
  ir::Value* past = nullptr; ///< the graph input
  /// The new rows, laid out as `freshLayout`; null where it is only read.
  ir::Value* fresh = nullptr;
  /// What becomes of the joined rows: an output of the graph that the attention stands in; null
  /// where it is only read.
  ir::Value* present = nullptr;
  /// The output of the model that the present becomes: another value for attention in a branch.
  ir::Value* output = nullptr;
  /// The operator that joins past and fresh: Concat, ai.kvopt::AppendRows, or one that scatters.
  ir::Node* writer = nullptr;
  /// Where each batch row's new rows begin, [1] or [B]; null: behind all rows of the past.
  ir::Value* pastLength = nullptr;
  unsigned axis = 0; ///< the sequence's, in the past's own layout
  /// The past is not read: the new rows are all there are. There is no `writer` then, and `present`
  /// is `fresh`.
  bool fromStart = false;
  /// Of a Ring: how many of the joined rows, the last ones, are the present; 0 where that is not
  /// known.
  int64_t lastRows = 0;
  /// How many attentions read what `writer` makes.
  unsigned attentions = 1;
  /// How many attentions, each in a branch of its own, update this cache.
  unsigned updaters = 1;
  ir::CacheLayout layout;
  ir::CacheLayout freshLayout;
  /// How many query-side heads read each head of the cache through an explicit broadcast.
  ir::Dim repeats = ir::Dim::fixed(1);
  /// The columns that attention reads: [firstColumn, firstColumn + columns).
  int64_t firstColumn = 0;
  ir::Dim columns;

  /// See AttentionSite::isOverwritten.
  bool isOverwritten() const {
    return update == ir::CacheUpdate::Static && writer && writer->operand(0) == past &&
           output == &writer->result();
  }
};

/// A bool input of the model that decides whether pasts are read.
struct PastFlag {
  ir::Value* input = nullptr;
  /// What it is where there is a past.
  bool withPast = true;
};

/// One attention (one softmax over keys, or one fused attention operator).
struct AttentionSite {
  unsigned layer = 0;
  /// Keys and values are of another sequence than the queries.
  bool isCross = false;
  /// How both caches change: as a SiteCache, or None or Unproved. None without a cache, also of
  /// cross-attention.
  ir::CacheUpdate update = ir::CacheUpdate::None;
  /// Latent: values are columns of the keys' cache.
  ir::CacheRole keyRole = ir::CacheRole::Key;
  /// The ai.kvopt::Sdpa node, or for a missed site the node that would have been its root.
  ir::Node* node = nullptr;
  /// The caches of a matched site; the same one twice where it is latent.
  std::optional<SiteCache> key;
  std::optional<SiteCache> value;
  /// Of a site that only reads the caches which another one appends to: the layer of that one.
  std::optional<unsigned> owner;
  /// Other layers that read this site's caches.
  llvm::SmallVector<unsigned, 2> readers;
  /// For a site that updates its caches from the start in one branch of a model.
  std::optional<PastFlag> pastFlag;
  /// Set when the site is missed: attention not recognized, or a cache that cannot be proved.
  std::optional<pattern::MatchFailure> failure;
  /// Which keys a raised attention sees.
  std::optional<MaskFacts> mask;
  /// A node that reads the extents of the joined rows for other ends than to move them to the
  /// attention; null if none does.
  ir::Node* shapeReader = nullptr;
  /// The rule that recognized the attention.
  std::string rule;
  /// For a missed site that no rule raised: the rule that came furthest. `failure` is then its.
  std::optional<pattern::NearMiss> nearMiss;

  /// Rows of the query, and rows that a step appends to the caches, where those are known to be two
  /// numbers.
  struct StepRows {
    int64_t query;
    int64_t appended;
  };
  std::optional<StepRows> stepRows;
  ir::Dim queryHeads;
  ir::Dim keyHeads;
  ir::Dim keyWidth;
  ir::Dim valueWidth;

  /// Keys that a query sees at most, itself included; 0 without a window.
  int64_t window() const {
    if (!mask)
      return 0;
    return mask->causalIf ? mask->causalIf->window : mask->window;
  }
  bool isMatched() const { return !failure.has_value(); }
  bool hasCache() const { return key && value; }
  /// Whether new rows are appended to caches of its own, so that one buffer can hold them.
  bool grows() const { return hasCache() && update == ir::CacheUpdate::Grows && !owner; }
  /// Whether other sites read the same caches.
  bool sharesCaches() const { return owner || !readers.empty(); }
  /// Whether the caches are of fixed extents and each is written by an operator that may overwrite
  /// the past itself: where past and present are one buffer, it writes the new rows and no more.
  bool isOverwritten() const {
    return hasCache() && key->isOverwritten() && value->isOverwritten();
  }
  /// Whether every row that a step appends belongs to a row of the query.
  bool addsQueryRows() const { return !stepRows; }
  /// Keys and values are one cache.
  bool isLatent() const { return keyRole == ir::CacheRole::Latent; }
  std::string id() const { return "L" + std::to_string(layer); }
};

using SiteList = std::vector<AttentionSite>;

/// Finds all sites of a graph in which attention has been raised to ai.kvopt::Sdpa: one per Sdpa
/// node, in execution order (which is the layers' order), and one missed site for every remaining
/// softmax over attention-like scores (several that are combined are one), every attention operator
/// that no rule raised, and every attention without a softmax. Caches are found by data flow: keys
/// and values are followed back through operators that only move data to the one that joins new
/// rows to a graph input, and from there forward to a graph output. All caches that grow do so by
/// the same, provably equal, length.
SiteList findSites(ir::Graph& graph);

/// Gives every site of the main graph that no rule raised the furthest of the near misses at it,
/// which then says why it is missed: those that matched the site's node, or else those rooted where
/// its result goes next (for a softmax: through what it is moved, guarded and masked by, up to the
/// matrix products). `counts` says which rules are asked: those that raise attention.
void attributeNearMisses(SiteList& sites, const pattern::NearMissList& misses,
                         llvm::function_ref<bool(llvm::StringRef rule)> counts);

} // namespace kvopt::analysis
