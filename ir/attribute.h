// Attribute: the value of a node's attribute.
#pragma once

#include "ir/tensor.h"
#include "ir/type.h"

#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace kvopt::onnx {
class AttributeProto;
} // namespace kvopt::onnx

namespace kvopt::ir {

class Graph;

/// Kinds of `AttributeProto.AttributeType`, with their published numbers.
enum class AttributeKind : int32_t {
  Undefined = 0,
  Float = 1,
  Int = 2,
  String = 3,
  Tensor = 4,
  Graph = 5,
  Floats = 6,
  Ints = 7,
  Strings = 8,
  Tensors = 9,
  Graphs = 10,
  SparseTensor = 11,
  SparseTensors = 12,
  TypeProto = 13,
  TypeProtos = 14,
};

llvm::StringRef attributeKindName(AttributeKind kind);
/// The inverse; Undefined for an unknown name.
AttributeKind attributeKindFromName(llvm::StringRef name);

/// One attribute value. Move-only, because it may own subgraphs. Kinds that kvopt does not
/// interpret (sparse tensors, types) are kept in their source message.
class Attribute {
public:
  Attribute() = default;
  static Attribute ofFloat(float value);
  static Attribute ofInt(int64_t value);
  static Attribute ofString(std::string value);
  static Attribute ofTensor(TensorRef value);
  static Attribute ofFloats(std::vector<float> values);
  static Attribute ofInts(std::vector<int64_t> values);
  static Attribute ofStrings(std::vector<std::string> values);
  static Attribute ofTensors(std::vector<TensorRef> values);
  static Attribute ofGraphs(std::vector<std::unique_ptr<Graph>> values, bool list);
  /// In a function body: refers to the value that a call gives the function's attribute `name`.
  static Attribute reference(std::string name, AttributeKind kind);
  /// An attribute of a kind that kvopt does not interpret.
  static Attribute opaque(AttributeKind kind, const onnx::AttributeProto* source);

  Attribute(Attribute&&) noexcept;
  Attribute& operator=(Attribute&&) noexcept;
  ~Attribute();
  /// A deep copy. Requires a kind without subgraphs.
  Attribute clone() const;

  AttributeKind kind() const { return valueKind; }
  bool isReference() const { return !referenceName.empty(); }
  llvm::StringRef referencedName() const { return referenceName; }

  /// Accessors by kind; each asserts that the attribute has this kind.
  float floatValue() const { return std::get<float>(value); }
  int64_t intValue() const { return std::get<int64_t>(value); }
  llvm::StringRef stringValue() const { return std::get<std::string>(value); }
  const TensorRef& tensorValue() const { return std::get<std::vector<TensorRef>>(value).front(); }
  llvm::ArrayRef<float> floats() const { return std::get<std::vector<float>>(value); }
  llvm::ArrayRef<int64_t> ints() const { return std::get<std::vector<int64_t>>(value); }
  llvm::ArrayRef<std::string> strings() const { return std::get<std::vector<std::string>>(value); }
  llvm::ArrayRef<TensorRef> tensors() const { return std::get<std::vector<TensorRef>>(value); }
  /// Subgraphs of an attribute of kind Graph or Graphs; empty for other kinds.
  llvm::ArrayRef<std::unique_ptr<Graph>> graphs() const {
    const auto* list = std::get_if<std::vector<std::unique_ptr<Graph>>>(&value);
    return list ? llvm::ArrayRef<std::unique_ptr<Graph>>(*list)
                : llvm::ArrayRef<std::unique_ptr<Graph>>();
  }

  /// Message from which the attribute was read, or null. Export writes it back unchanged.
  const onnx::AttributeProto* source() const { return sourceMessage; }
  void setSource(const onnx::AttributeProto* message) { sourceMessage = message; }

private:
  AttributeKind valueKind = AttributeKind::Undefined;
  std::variant<std::monostate, float, int64_t, std::string, std::vector<TensorRef>,
               std::vector<float>, std::vector<int64_t>, std::vector<std::string>,
               std::vector<std::unique_ptr<Graph>>>
      value;
  std::string referenceName;
  const onnx::AttributeProto* sourceMessage = nullptr;
};

struct NamedAttribute {
  std::string name;
  Attribute value;
};

} // namespace kvopt::ir
