// The table of operators that this library computes.
#include "engines/onnxruntime/cache_attention.h"
#include "engines/onnxruntime/group_query_attention.h"
#include "engines/onnxruntime/multi_head_attention.h"
#include "engines/onnxruntime/onnx_attention.h"

#include <algorithm>
#include <string_view>

namespace kvopt::onnxruntime {

namespace {

struct KnownOperator {
  std::string_view domain;
  std::string_view op;
  Offer (*offer)(const NodeDescription& node);
};

constexpr KnownOperator knownOperators[] = {
    {"com.microsoft", "GroupQueryAttention", groupQueryAttention},
    {"com.microsoft", "MultiHeadAttention", multiHeadAttention},
    {"", "Attention", onnxAttention},
};

const KnownOperator* known(const NodeDescription& node) {
  for (const KnownOperator& entry : knownOperators)
    if (entry.domain == node.domain && entry.op == node.op)
      return &entry;
  return nullptr;
}

bool isCacheAttention(const NodeDescription& node) {
  return node.domain == kvoptDomain &&
         std::any_of(cacheForms.begin(), cacheForms.end(),
                     [&](const CacheForm& form) { return node.op == form.op; });
}

} // namespace

bool isKnown(const NodeDescription& node) { return known(node) || isCacheAttention(node); }

Offer operationOf(const NodeDescription& node) {
  if (isCacheAttention(node))
    return cacheAttention(node);
  const KnownOperator* entry = known(node);
  return entry ? entry->offer(node) : Offer::refused("another operator");
}

} // namespace kvopt::onnxruntime
