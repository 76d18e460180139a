// What the caches that a model gets are called. Programs that drive a model pair the input of a
// cache with the output of its name, so neither name may be left to anything else.
#pragma once

#include "ir/graph.h"
#include "passes/pattern/reason.h"

#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace kvopt::builders {

/// The rows of new tokens [B,H,S,D] that a cache is to hold.
struct RowsToCache {
  const ir::Node* attention = nullptr; ///< that reads them
  const ir::Value* rows = nullptr;
  std::string layer;          ///< as names have it: `0`, or `0.decoder`
  const char* role = nullptr; ///< `key` or `value`
};

struct AddedCacheNames {
  std::string past;
  std::string present;
  /// The output that hands out the rows already and becomes the cache; nullopt for a new output.
  std::optional<unsigned> output;
};

/// Names for all of `rows`. An output that hands out the same rows in the same layout, under
/// whatever name, becomes the cache: over a whole sequence that is what it holds. Where another
/// value of the model's interface has a name that is needed, the failure names it.
std::variant<std::vector<AddedCacheNames>, pattern::MatchFailure>
namesOfAddedCaches(const ir::Graph& graph, llvm::ArrayRef<RowsToCache> rows);

/// `text`, which a value inside of the graph gives up if it has it. Requires that no value of the
/// interface has it.
void freeName(ir::Graph& graph, const std::string& text);

} // namespace kvopt::builders
