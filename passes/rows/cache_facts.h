// CacheFacts: what evaluation finds the keys and values of attention to be.
#pragma once

#include "passes/analysis/cache/site.h"
#include "passes/analysis/evaluation/affine_argument.h"
#include "passes/rows/respelled_rows.h"

#include <map>

namespace kvopt::rows {

/// Where the rows of a value come from.
enum class RowOrigin {
  Appended,  ///< all rows of a cache, then new ones
  Written,   ///< those of a cache, with new ones in the places that an input says
  LastRows,  ///< the last so many of a cache's and the new ones
  Cached,    ///< rows of a cache alone
  New,       ///< new rows alone
  Computed,  ///< something else, which `detail` says
  Unreadable ///< evaluation stops
};

/// `append`, `written`, `last-rows`, `cached`, `new`, `computed`, `unreadable`.
llvm::StringRef originName(RowOrigin origin);

/// What the rows of one value are, at all points that were tried.
struct RowFact {
  RowOrigin origin = RowOrigin::Unreadable;
  const ir::Value* past = nullptr;  ///< the cache, an input of the graph
  const ir::Value* fresh = nullptr; ///< the value that holds the new rows
  std::optional<WritePlace> place;  ///< of Written
  /// Of Appended: where each batch row's new rows begin; null: after all rows of the cache.
  const ir::Value* pastLength = nullptr;
  int64_t lastRows = 0; ///< of LastRows
  ir::Dim skipped;      ///< of Appended: rows at the front of the cache that are not read
  /// How many heads after one another read one head; 1 where the value has no head axis.
  ir::Dim headRepeats = ir::Dim::fixed(1);
  bool hasHeads = false; ///< the value is [batch, heads, rows, columns]
  std::string detail;    ///< of Computed
  /// Of Computed and Unreadable: the node that computes the rows, or at which evaluation stops.
  const ir::Node* node = nullptr;

  std::vector<analysis::StepSize> sizes; ///< different steps that were tried, for finding the fact
  size_t points = 0;                     ///< all points that it was tried at
  /// Whether it holds at all other sizes. Of origins from Appended to New.
  analysis::AffineArgument argument;

  bool isRows() const { return origin < RowOrigin::Computed; }
};

/// The keys or values of one attention.
struct CacheFact {
  RowFact rows;
  /// An output that holds rows of the same cache and the same new rows; null without one.
  const ir::Value* present = nullptr;
  RowFact ofPresent;

  bool isSameAsPresent() const {
    return rows.origin == ofPresent.origin && rows.lastRows == ofPresent.lastRows &&
           rows.skipped == ofPresent.skipped;
  }
};

struct AttentionFacts {
  CacheFact key;
  CacheFact value;
  std::string missing; ///< why the two are not known; empty where they are
};

/// Finds facts of one graph; an edit of the graph makes them stale.
class CacheFacts {
public:
  CacheFacts(ir::Graph& graph, const analysis::InterfaceFacts& interface)
      : evaluated(graph), facts(interface) {}

  /// What attention reads, where it is not in a branch and its products are found.
  AttentionFacts of(const analysis::AttentionSite& site);
  /// What the rows of any value are.
  const RowFact& of(const ir::Value& value);

private:
  CacheFact factOf(const ir::Value& rows, const ir::Value* present);

  ir::Graph& evaluated;
  const analysis::InterfaceFacts& facts;
  std::map<const ir::Value*, RowFact> known;
};

} // namespace kvopt::rows
