// Reading and writing of TypeProto.
#include "ir/onnx/types.h"

namespace kvopt::ir {
namespace {

/// Whether the text is a name that exporters write for an unknown extent; two of them may differ.
bool isPlaceholder(llvm::StringRef text) { return text == "None" || text == "?" || text == "*"; }

/// Whether the text is a name, even an unusual one, rather than an expression that Dim::parse does
/// not support.
bool isPlainName(llvm::StringRef text) {
  return !text.empty() && text.trim() == text &&
         text.find_first_of("+-*/%()[]{},<>=!&|^~?") == llvm::StringRef::npos;
}

Dim dimOf(const onnx::TensorShapeProto::Dimension& dimension) {
  if (dimension.has_dim_value())
    return dimension.dim_value() < 0 ? Dim::unknown() : Dim::fixed(dimension.dim_value());
  if (!dimension.has_dim_param() || isPlaceholder(dimension.dim_param()))
    return Dim::unknown();
  llvm::StringRef text = dimension.dim_param();
  if (std::optional<Dim> parsed = Dim::parse(text))
    return parsed->value().value_or(0) < 0 ? Dim::unknown() : *parsed;
  return isPlainName(text) ? Dim::symbol(text) : Dim::unknown();
}

void writeDim(onnx::TensorShapeProto::Dimension& dimension, const Dim& dim) {
  if (dim.isUnknown() || dimOf(dimension) == dim)
    return;
  if (std::optional<int64_t> value = dim.value()) {
    if (*value >= 0)
      dimension.set_dim_value(*value);
    else
      dimension.clear_value();
  } else {
    dimension.set_dim_param(dim.str());
  }
}

} // namespace

bool declaresNonTensor(const onnx::ValueInfoProto& message) {
  return message.type().value_case() != onnx::TypeProto::VALUE_NOT_SET &&
         !message.type().has_tensor_type();
}

TensorType declaredType(const onnx::ValueInfoProto& message) {
  if (!message.type().has_tensor_type())
    return TensorType();
  const onnx::TypeProto::Tensor& tensor = message.type().tensor_type();
  TensorType type(static_cast<ElementType>(tensor.elem_type()));
  if (!tensor.has_shape())
    return type;
  Shape shape;
  for (const onnx::TensorShapeProto::Dimension& dimension : tensor.shape().dim())
    shape.push_back(dimOf(dimension));
  type.setShape(std::move(shape));
  return type;
}

void declareType(onnx::ValueInfoProto& message, const TensorType& type) {
  if (type.elementType() == ElementType::Undefined && !type.hasRank())
    return;
  onnx::TypeProto::Tensor& tensor = *message.mutable_type()->mutable_tensor_type();
  if (type.elementType() != ElementType::Undefined)
    tensor.set_elem_type(static_cast<int32_t>(type.elementType()));
  if (!type.hasRank())
    return;
  onnx::TensorShapeProto& shape = *tensor.mutable_shape();
  if (static_cast<size_t>(shape.dim_size()) != type.shape().size())
    shape.clear_dim();
  for (size_t axis = 0; axis < type.shape().size(); ++axis) {
    auto index = static_cast<int>(axis);
    writeDim(index < shape.dim_size() ? *shape.mutable_dim(index) : *shape.add_dim(),
             type.shape()[axis]);
  }
}

} // namespace kvopt::ir
