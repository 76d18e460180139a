// Calls of single operators of ai.kvopt with numbers, for tests of the library in ONNX Runtime.
#pragma once

#include "ir/model.h"
#include "tests/engines/onnxruntime/case_tensor.h"

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace kvopt {

struct OperatorCase {
  std::string what; ///< for messages
  std::string op;   ///< with the domain
  std::vector<std::pair<std::string, std::variant<int64_t, float>>> attributes;
  std::vector<std::optional<CaseTensor>> operands;
  unsigned results = 1;
  std::string body; ///< text of the function
  /// Whether ONNX Runtime has kernels for the body's nodes.
  bool doesEngineRunBody = true;
  /// Allowed difference of the body, which sums in another order, in absolute terms.
  double tolerance = 1e-5;

  void set(const char* name, std::variant<int64_t, float> value) {
    attributes.emplace_back(name, value);
  }
  /// The model of this call, with inputs x0, x1, … and outputs y0, y1, …, as an ONNX file.
  std::string modelBytes(bool withBody) const;
  /// The same model in memory.
  std::unique_ptr<ir::Model> model(bool withBody) const;
};

/// Every operator that has no state in the caller's buffers, in prefill and decode, with batches,
/// empty caches, masks, sinks and all kinds of element types.
std::vector<OperatorCase> operatorCases();

/// AppendRows of one batch row and head, whose rows have the same places in past and present.
OperatorCase appendInPlaceCase(int64_t past, int64_t valid, int64_t fresh, int64_t columns);

/// Calls that fail, each with a part of the message.
std::vector<std::pair<OperatorCase, std::string>> wrongCases();

/// Registry of kvopt's operators.
const ir::OpRegistry& caseOperators();

} // namespace kvopt
