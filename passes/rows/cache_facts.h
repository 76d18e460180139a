// CacheFacts: keys and values of attention as found by evaluation.
#pragma once

#include "passes/analysis/cache/site.h"
#include "passes/analysis/evaluation/affine_argument.h"
#include "passes/rows/respelled_rows.h"

#include <map>

namespace kvopt::rows {

/// Origin of the rows of a value.
enum class RowOrigin {
  Appended,  ///< all rows of a cache, then new ones
  Written,   ///< rows of a cache, with new ones at the places that an input gives
  LastRows,  ///< the last rows of a cache and the new ones, a fixed number in total
  Cached,    ///< rows of a cache only
  New,       ///< new rows only
  Computed,  ///< other rows, described by `detail`
  Unreadable ///< evaluation stopped
};

/// `append`, `written`, `last-rows`, `cached`, `new`, `computed`, `unreadable`.
llvm::StringRef originName(RowOrigin origin);

/// Rows of one value, at all tried points.
struct RowFact {
  RowOrigin origin = RowOrigin::Unreadable;
  const ir::Value* past = nullptr;  ///< the cache, an input of the graph
  const ir::Value* fresh = nullptr; ///< the value that holds the new rows
  std::optional<WritePlace> place;  ///< for Written
  /// For Appended: index of each batch row's first new row; null: after all rows of the cache.
  const ir::Value* pastLength = nullptr;
  int64_t lastRows = 0; ///< for LastRows
  ir::Dim skipped;      ///< for Appended: number of unread rows at the front
  /// Number of consecutive heads that read one head; 1 if the value has no head axis.
  ir::Dim headRepeats = ir::Dim::fixed(1);
  bool hasHeads = false; ///< the value is [batch, heads, rows, columns]
  std::string detail;    ///< for Computed
  /// For Computed and Unreadable: the node that computes the rows, or at which evaluation stopped.
  const ir::Node* node = nullptr;

  std::vector<analysis::StepSize> sizes; ///< tried sizes of steps, from which the fact was found
  size_t points = 0;                     ///< number of points at which it was tried
  /// Whether the fact holds at all other sizes. For origins from Appended to New.
  analysis::AffineArgument argument;

  bool isRows() const { return origin < RowOrigin::Computed; }
};

/// The keys or values of one attention.
struct CacheFact {
  RowFact rows;
  /// An output that holds rows of the same cache and the same new rows; null if there is none.
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
  std::string missing; ///< reason why the two are unknown; empty if they are known
};

/// Finds facts about one graph; an edit of the graph invalidates them.
class CacheFacts {
public:
  CacheFacts(ir::Graph& graph, const analysis::InterfaceFacts& interface)
      : evaluated(graph), facts(interface) {}

  /// Facts about the operands of attention that is not in a branch and whose products are found.
  AttentionFacts of(const analysis::AttentionSite& site);
  /// Facts about the rows of any value.
  const RowFact& of(const ir::Value& value);

private:
  CacheFact factOf(const ir::Value& rows, const ir::Value* present);

  ir::Graph& evaluated;
  const analysis::InterfaceFacts& facts;
  std::map<const ir::Value*, RowFact> known;
};

} // namespace kvopt::rows
