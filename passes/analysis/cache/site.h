// AttentionSite: one attention computation with the caches that it reads.
#pragma once

#include "ir/cache_layout.h"
#include "ir/cache_role.h"
#include "ir/cache_update.h"
#include "ir/graph.h"
#include "passes/analysis/mask/mask_predicate.h"
#include "passes/pattern/explain.h"

#include <vector>

namespace kvopt::analysis {

/// A cache as read by one operand of an attention.
struct SiteCache {
  /// Kind of update: Grows, Static, Ring or ReadOnly.
  ir::CacheUpdate update = ir::CacheUpdate::Grows;
  ir::Value* past = nullptr; ///< the graph input
  /// New rows in the layout `freshLayout`; null if the cache is only read.
  ir::Value* fresh = nullptr;
  /// Output that receives the joined rows, in the graph that contains the attention; null if the
  /// cache is only read.
  ir::Value* present = nullptr;
  /// Output of the model that the present becomes. It differs from `present` for attention in a
  /// branch.
  ir::Value* output = nullptr;
  /// Operator that joins past and fresh: Concat, ai.kvopt::AppendRows, or a scatter operator.
  ir::Node* writer = nullptr;
  /// Index of each batch row's first new row, [1] or [B]; null: after all rows of the past.
  ir::Value* pastLength = nullptr;
  unsigned axis = 0; ///< axis of the sequence in the past's own layout
  /// Whether the past is unused and the new rows are all rows. Then there is no `writer`, and
  /// `present` is `fresh`.
  bool fromStart = false;
  /// For a Ring: number of last joined rows that are the present; 0 if unknown.
  int64_t lastRows = 0;
  /// Number of attentions that read the result of `writer`.
  unsigned attentions = 1;
  /// Number of attentions, each in a different branch, that update this cache.
  unsigned updaters = 1;
  ir::CacheLayout layout;
  ir::CacheLayout freshLayout;
  /// Number of query-side heads that read each head of the cache through an explicit broadcast.
  ir::Dim repeats = ir::Dim::fixed(1);
  /// Columns that attention reads: [firstColumn, firstColumn + columns).
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
  /// Value of the input when there is a past.
  bool withPast = true;
};

/// One attention (one softmax over keys, or one fused attention operator).
struct AttentionSite {
  unsigned layer = 0;
  /// Whether keys and values are of another sequence than the queries.
  bool isCross = false;
  /// Whether no step changes the keys and values: they are of another sequence, or the site has no
  /// cache. The model loses nothing if such a site stays as exported.
  bool hasUnchangedKeys = false;
  /// Update of both caches: as in SiteCache, or None or Unproved. None without a cache, also for
  /// cross-attention.
  ir::CacheUpdate update = ir::CacheUpdate::None;
  /// Latent: values are columns of the keys' cache.
  ir::CacheRole keyRole = ir::CacheRole::Key;
  /// The ai.kvopt::Sdpa node; for a missed site, the node that would have been its root.
  ir::Node* node = nullptr;
  /// Caches of a matched site; both are the same cache if it is latent.
  std::optional<SiteCache> key;
  std::optional<SiteCache> value;
  /// For a site that only reads caches to which another site appends: the layer of that site.
  std::optional<unsigned> owner;
  /// Other layers that read this site's caches.
  llvm::SmallVector<unsigned, 2> readers;
  /// For a site that updates its caches from the start in one branch of a model.
  std::optional<PastFlag> pastFlag;
  /// Set if the site is missed: its attention is not recognized, or a cache cannot be proved.
  std::optional<pattern::MatchFailure> failure;
  /// Keys that a recovered attention sees.
  std::optional<MaskFacts> mask;
  /// A node that reads the extents of the joined rows for other purposes than moving them to the
  /// attention; null if there is none.
  ir::Node* shapeReader = nullptr;
  /// Name of the rule that recognized the attention.
  std::string rule;
  /// For a missed site that no rule raised: the near miss that matched furthest, whose failure
  /// `failure` is.
  std::optional<pattern::NearMiss> nearMiss;

  /// Rows of the query, and rows that a step appends to the caches, if these are known to be two
  /// different numbers.
  struct StepRows {
    int64_t query;
    int64_t appended;
  };
  std::optional<StepRows> stepRows;
  ir::Dim queryHeads;
  ir::Dim keyHeads;
  ir::Dim keyWidth;
  ir::Dim valueWidth;

  /// Maximum number of keys that a query sees, its own included; 0 without a window.
  int64_t window() const {
    if (!mask)
      return 0;
    return mask->causalIf ? mask->causalIf->window : mask->window;
  }
  bool isMatched() const { return !failure.has_value(); }
  bool hasCache() const { return key && value; }
  /// Whether the site appends new rows to caches of its own, so that one buffer can hold them.
  bool grows() const { return hasCache() && update == ir::CacheUpdate::Grows && !owner; }
  /// Whether other sites read the same caches.
  bool sharesCaches() const { return owner || !readers.empty(); }
  /// Whether the caches have fixed extents and an operator writes each that may overwrite the past
  /// itself: if past and present are one buffer, it writes only the new rows.
  bool isOverwritten() const {
    return hasCache() && key->isOverwritten() && value->isOverwritten();
  }
  /// Whether each row that a step appends belongs to a row of the query.
  bool addsQueryRows() const { return !stepRows; }
  /// Whether keys and values are one cache.
  bool isLatent() const { return keyRole == ir::CacheRole::Latent; }
  std::string id() const { return "L" + std::to_string(layer); }
};

using SiteList = std::vector<AttentionSite>;

/// Finds all sites of a graph in which attention has been raised to ai.kvopt::Sdpa. Each Sdpa node
/// is a site, in execution order, which is the order of the layers. A missed site is added for
/// every remaining softmax over attention-like scores (several that are combined count as one), for
/// every attention operator that no rule raised, and for every attention without a softmax. Caches
/// are found by data flow: keys and values are followed back through operators that only move data
/// to the operator that joins new rows to a graph input, and from there forward to a graph output.
/// All growing caches grow by the same, provably equal, length.
SiteList findSites(ir::Graph& graph);

/// Gives each site of the main graph that no rule raised the furthest near miss at the site, which
/// explains why it is missed: one that matched the site's node, or else one rooted at a later user
/// of its result (for a softmax: through movement, guards and masks up to the matrix products).
/// `counts` selects the rules: those that raise attention.
void attributeNearMisses(SiteList& sites, const pattern::NearMissList& misses,
                         llvm::function_ref<bool(llvm::StringRef rule)> counts);

} // namespace kvopt::analysis
