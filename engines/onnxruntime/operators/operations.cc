// The table of operators that this library computes.
#include "engines/onnxruntime/kvopt_operator.h"
#include "engines/onnxruntime/operators/group_query_attention.h"
#include "engines/onnxruntime/operators/multi_head_attention.h"
#include "engines/onnxruntime/operators/onnx_attention.h"

#include <string_view>

namespace kvopt::onnxruntime {

namespace {

using OfferFunction = Offer (*)(const NodeDescription& node);

struct KnownOperator {
  std::string_view domain;
  std::string_view op;
  OfferFunction offer;
};

constexpr KnownOperator knownOperators[] = {
    {"com.microsoft", "GroupQueryAttention", groupQueryAttention},
    {"com.microsoft", "MultiHeadAttention", multiHeadAttention},
    {"", "Attention", onnxAttention},
};

/// Null for other operators.
OfferFunction offerOf(const NodeDescription& node) {
  for (const KnownOperator& entry : knownOperators)
    if (entry.domain == node.domain && entry.op == node.op)
      return entry.offer;
  for (const KvoptOperator& entry : kvoptOperators())
    if (node.domain == kvoptDomain && node.op == entry.name)
      return entry.offer;
  return nullptr;
}

} // namespace

bool isKnown(const NodeDescription& node) { return offerOf(node) != nullptr; }

Offer operationOf(const NodeDescription& node) {
  const OfferFunction offer = offerOf(node);
  return offer ? offer(node) : Offer::refused("another operator");
}

} // namespace kvopt::onnxruntime
