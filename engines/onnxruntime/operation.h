// Operation: the computation of one node, and the operators that this library computes.
#pragma once

#include "engines/onnxruntime/call.h"
#include "engines/onnxruntime/node_description.h"

#include <memory>
#include <string>

namespace kvopt::onnxruntime {

class Operation {
public:
  virtual ~Operation() = default;
  /// Computes the node. May run on several threads at the same time for several calls.
  virtual void compute(Call& call) const = 0;
};

/// An operation, or the reason why this library does not compute the node as the engine does.
struct Offer {
  std::unique_ptr<Operation> operation;
  std::string reason;

  static Offer refused(std::string why) { return {nullptr, std::move(why)}; }
};

/// Whether the library has an operation for this operator. It may still refuse a node.
bool isKnown(const NodeDescription& node);

/// The operation of a node of a known operator.
Offer operationOf(const NodeDescription& node);

} // namespace kvopt::onnxruntime
