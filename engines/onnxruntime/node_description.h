// NodeDescription: what a node says about itself, the same for both entries of the library.
#pragma once

#include "engines/onnxruntime/tensor.h"

#include <map>
#include <string>
#include <variant>
#include <vector>

namespace kvopt::onnxruntime {

/// Value of an attribute. Lists and tensors, which no supported operator needs, are monostate.
using AttributeValue = std::variant<std::monostate, int64_t, float, std::string>;

struct OperandDescription {
  bool isGiven = false;
  ElementType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  bool isFromOuterScope = false;
};

struct NodeDescription {
  std::string name;
  std::string domain;
  std::string op;
  std::map<std::string, AttributeValue> attributes;
  std::vector<OperandDescription> inputs;
  std::vector<bool> outputs; ///< whether each result is given

  /// "domain::op"; the operator alone in ONNX's own domain.
  std::string fullName() const { return domain.empty() ? op : domain + "::" + op; }
  bool has(size_t input) const { return input < inputs.size() && inputs[input].isGiven; }
  bool wants(size_t output) const { return output < outputs.size() && outputs[output]; }
  ElementType typeOf(size_t input) const {
    return has(input) ? inputs[input].type : ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  }

  // Values of attributes; an attribute of another kind counts as absent.
  int64_t integer(const char* attribute, int64_t absent) const;
  float number(const char* attribute, float absent) const;
  std::string text(const char* attribute, const char* absent) const;
};

/// The description of a node of a session's graph.
NodeDescription describe(Ort::ConstNode node);

/// Whether the attribute's value says nothing: zero, an empty text or "NONE". Engines write the
/// defaults of attributes into nodes, including attributes of newer engines.
bool isNeutral(const AttributeValue& value);

} // namespace kvopt::onnxruntime
