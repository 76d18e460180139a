// Reading nodes of ONNX Runtime's graphs.
#include "engines/onnxruntime/node_description.h"

namespace kvopt::onnxruntime {

namespace {

AttributeValue valueOf(const Ort::ConstOpAttr& attribute) {
  switch (attribute.GetType()) {
  case ORT_OP_ATTR_INT: {
    int64_t value = 0;
    Ort::ThrowOnError(attribute.GetValue(value));
    return value;
  }
  case ORT_OP_ATTR_FLOAT: {
    float value = 0;
    Ort::ThrowOnError(attribute.GetValue(value));
    return value;
  }
  case ORT_OP_ATTR_STRING: {
    std::string value;
    Ort::ThrowOnError(attribute.GetValue(value));
    return value;
  }
  default:
    return {};
  }
}

/// An omitted operand is a null pointer.
bool isGiven(const Ort::ConstValueInfo& value) {
  return static_cast<const OrtValueInfo*>(value) != nullptr;
}

template <class T> T valueOr(const NodeDescription& node, const char* attribute, const T& absent) {
  const auto found = node.attributes.find(attribute);
  const T* value = found == node.attributes.end() ? nullptr : std::get_if<T>(&found->second);
  return value ? *value : absent;
}

} // namespace

int64_t NodeDescription::integer(const char* attribute, int64_t absent) const {
  return valueOr(*this, attribute, absent);
}
float NodeDescription::number(const char* attribute, float absent) const {
  return valueOr(*this, attribute, absent);
}
std::string NodeDescription::text(const char* attribute, const char* absent) const {
  return valueOr(*this, attribute, std::string(absent));
}

NodeDescription describe(Ort::ConstNode node) {
  NodeDescription result;
  result.name = node.GetName();
  result.domain = node.GetDomain();
  if (result.domain == "ai.onnx")
    result.domain.clear();
  result.op = node.GetOperatorType();
  for (const Ort::ConstOpAttr& attribute : node.GetAttributes())
    result.attributes.emplace(attribute.GetName(), valueOf(attribute));
  for (const Ort::ConstValueInfo& input : node.GetInputs()) {
    OperandDescription operand;
    operand.isGiven = isGiven(input);
    if (operand.isGiven) {
      const auto type = input.TypeInfo();
      if (type.GetONNXType() == ONNX_TYPE_TENSOR)
        operand.type = type.GetTensorTypeAndShapeInfo().GetElementType();
      operand.isFromOuterScope = input.IsFromOuterScope();
    }
    result.inputs.push_back(operand);
  }
  for (const Ort::ConstValueInfo& output : node.GetOutputs())
    result.outputs.push_back(isGiven(output));
  return result;
}

bool isNeutral(const AttributeValue& value) {
  if (const auto* integer = std::get_if<int64_t>(&value))
    return *integer == 0;
  if (const auto* number = std::get_if<float>(&value))
    return *number == 0.0f;
  if (const auto* text = std::get_if<std::string>(&value))
    return text->empty() || *text == "NONE";
  return false;
}

} // namespace kvopt::onnxruntime
