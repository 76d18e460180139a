// Names of the caches that are added to a model. Programs that drive a model pair the input of a
// cache with the output by name, so no other value may have either name.
#pragma once

#include "ir/graph.h"
#include "passes/pattern/reason.h"

#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace kvopt::builders {

/// Rows of new tokens [B,H,S,D] that a cache will hold.
struct RowsToCache {
  const ir::Node* attention = nullptr; ///< reads the rows
  const ir::Value* rows = nullptr;
  std::string layer;          ///< as in names: `0`, or `0.decoder`
  const char* role = nullptr; ///< `key` or `value`
};

struct AddedCacheNames {
  std::string past;
  std::string present;
  /// Output that already returns the rows and becomes the cache; nullopt for a new output.
  std::optional<unsigned> output;
};

/// Names for all of `rows`. An output with the same rows in the same layout becomes the cache,
/// whatever its name: over a whole sequence it holds the same. If another value of the model's
/// interface has a required name, the failure names that value.
std::variant<std::vector<AddedCacheNames>, pattern::MatchFailure>
namesOfAddedCaches(const ir::Graph& graph, llvm::ArrayRef<RowsToCache> rows);

/// Frees the name `text`: a value inside the graph with this name is renamed. Requires that no
/// value of the interface has it.
void freeName(ir::Graph& graph, const std::string& text);

} // namespace kvopt::builders
