// Construction and copying of attributes.
#include "ir/attribute.h"

#include "ir/graph.h"

namespace kvopt::ir {

namespace {
constexpr const char* kindNames[] = {"undefined",      "float",      "int",        "string",
                                     "tensor",         "graph",      "floats",     "ints",
                                     "strings",        "tensors",    "graphs",     "sparse_tensor",
                                     "sparse_tensors", "type_proto", "type_protos"};
} // namespace

llvm::StringRef attributeKindName(AttributeKind kind) {
  auto index = static_cast<size_t>(kind);
  return index < std::size(kindNames) ? kindNames[index] : kindNames[0];
}

AttributeKind attributeKindFromName(llvm::StringRef name) {
  for (size_t i = 1; i < std::size(kindNames); ++i)
    if (name == kindNames[i])
      return static_cast<AttributeKind>(i);
  return AttributeKind::Undefined;
}

Attribute::Attribute(Attribute&&) noexcept = default;
Attribute& Attribute::operator=(Attribute&&) noexcept = default;
Attribute::~Attribute() = default;

Attribute Attribute::ofFloat(float number) {
  Attribute made;
  made.valueKind = AttributeKind::Float;
  made.value = number;
  return made;
}

Attribute Attribute::ofInt(int64_t number) {
  Attribute made;
  made.valueKind = AttributeKind::Int;
  made.value = number;
  return made;
}

Attribute Attribute::ofString(std::string text) {
  Attribute made;
  made.valueKind = AttributeKind::String;
  made.value = std::move(text);
  return made;
}

Attribute Attribute::ofTensor(TensorRef tensor) {
  Attribute made;
  made.valueKind = AttributeKind::Tensor;
  made.value = std::vector<TensorRef>{std::move(tensor)};
  return made;
}

Attribute Attribute::ofFloats(std::vector<float> numbers) {
  Attribute made;
  made.valueKind = AttributeKind::Floats;
  made.value = std::move(numbers);
  return made;
}

Attribute Attribute::ofInts(std::vector<int64_t> numbers) {
  Attribute made;
  made.valueKind = AttributeKind::Ints;
  made.value = std::move(numbers);
  return made;
}

Attribute Attribute::ofStrings(std::vector<std::string> texts) {
  Attribute made;
  made.valueKind = AttributeKind::Strings;
  made.value = std::move(texts);
  return made;
}

Attribute Attribute::ofTensors(std::vector<TensorRef> list) {
  Attribute made;
  made.valueKind = AttributeKind::Tensors;
  made.value = std::move(list);
  return made;
}

Attribute Attribute::ofGraphs(std::vector<std::unique_ptr<Graph>> list, bool isList) {
  assert(isList || list.size() == 1);
  Attribute made;
  made.valueKind = isList ? AttributeKind::Graphs : AttributeKind::Graph;
  made.value = std::move(list);
  return made;
}

Attribute Attribute::reference(std::string name, AttributeKind kind) {
  Attribute made;
  made.valueKind = kind;
  made.referenceName = std::move(name);
  return made;
}

Attribute Attribute::opaque(AttributeKind kind, const onnx::AttributeProto* source) {
  Attribute made;
  made.valueKind = kind;
  made.sourceMessage = source;
  return made;
}

Attribute Attribute::clone() const {
  assert(graphs().empty());
  Attribute copy;
  copy.valueKind = valueKind;
  copy.referenceName = referenceName;
  copy.sourceMessage = sourceMessage;
  std::visit(
      [&](const auto& held) {
        using Held = std::decay_t<decltype(held)>;
        if constexpr (std::is_copy_constructible_v<Held> &&
                      !std::is_same_v<Held, std::vector<std::unique_ptr<Graph>>>)
          copy.value = held;
      },
      value);
  return copy;
}

} // namespace kvopt::ir
