// Evidence in a graph about the steps that a manifest excludes.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"

#include <optional>

namespace kvopt::driver {

/// Largest number of tokens of a step that the graph accepts; nullopt if no table limits it. A
/// Gather that looks up the number of new tokens in a constant table fails in every engine if the
/// table has no such entry. Types must have been inferred.
std::optional<int64_t> stepLimitOf(const ir::Graph& graph, const ir::Manifest& manifest);

/// Whether a node reads more than the extents of an input.
bool readsElements(const ir::Value& input);

/// Whether a node is an attention operator of any domain.
bool isAttention(const ir::Node& node);

/// Number of attention nodes whose masks or lengths depend on elements of an input; rows of
/// queries, keys and values do not count. Each attention of the graph must be one operator.
size_t attentionsHiddenBy(const ir::Value& input);

/// Number of attention nodes of a graph and its subgraphs.
size_t attentionCount(const ir::Model& model);

/// Whether a com.microsoft::GroupQueryAttention, in a branch or not, appends to a cache.
bool hasGroupedAttention(const ir::Model& model);
/// Whether such an operator has a bias, whose finite numbers also hide keys from rows of padding.
bool hasBiasedGroupedAttention(const ir::Model& model);

/// Whether an attention operator hides some keys by an attribute or by the slots of a ring, and
/// others by its mask. If the mask hides all keys of a row that the operator leaves, the result may
/// differ from that of a model whose mask hides both.
bool changesHiddenRows(const ir::Model& model);

} // namespace kvopt::driver
