// What a graph shows of the steps that a manifest excludes.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"

#include <optional>

namespace kvopt::driver {

/// The most tokens of a step that the graph takes: a Gather looks the number of new tokens up in a
/// constant table, and fails in every engine where the table has no entry for it. nullopt where no
/// table limits steps. Types must have been inferred.
std::optional<int64_t> stepLimitOf(const ir::Graph& graph, const ir::Manifest& manifest);

/// Whether some node reads more of an input than its extents.
bool readsElements(const ir::Value& input);

/// Whether a node is attention as one operator, of any domain.
bool isAttention(const ir::Node& node);

/// Number of attention nodes whose masks or lengths elements of an input reach: more than the rows
/// of their queries, keys and values. Each attention of the graph must be one operator.
size_t attentionsHiddenBy(const ir::Value& input);

/// Number of attention nodes of a graph and its subgraphs.
size_t attentionCount(const ir::Model& model);

/// Whether some com.microsoft::GroupQueryAttention, in a branch or not, appends to a cache.
bool hasGroupedAttention(const ir::Model& model);
/// The same with a bias, whose finite numbers hide keys from rows of padding, too.
bool hasBiasedGroupedAttention(const ir::Model& model);

/// Whether some attention operator hides keys by an attribute or by the slots of a ring, and others
/// by its mask: a row whose mask hides all that the operator leaves may come out as it did not in a
/// model whose mask does both.
bool changesHiddenRows(const ir::Model& model);

} // namespace kvopt::driver
