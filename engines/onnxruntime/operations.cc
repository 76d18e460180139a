// The table of operators that this library computes.
#include "engines/onnxruntime/group_query_attention.h"

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
};

const KnownOperator* known(const NodeDescription& node) {
  for (const KnownOperator& entry : knownOperators)
    if (entry.domain == node.domain && entry.op == node.op)
      return &entry;
  return nullptr;
}

} // namespace

bool isKnown(const NodeDescription& node) { return known(node) != nullptr; }

Offer operationOf(const NodeDescription& node) {
  const KnownOperator* entry = known(node);
  return entry ? entry->offer(node) : Offer::refused("another operator");
}

} // namespace kvopt::onnxruntime
