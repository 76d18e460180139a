// Hashing of models, independently of internal names.
#include "runtime/cache/model_fingerprint.h"

#include "runtime/cache/checksum.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/Support/SHA256.h"

#include <algorithm>
#include <cstring>

namespace kvopt::runtime {
using namespace ir;

namespace {

class ModelHasher {
public:
  ModelFingerprint run(const Model& model) {
    text("kvopt model 2");
    for (const auto& [domain, version] : model.opsets) {
      text(domain);
      number(version);
    }
    number(model.functions.size());
    for (const std::unique_ptr<Function>& function : model.functions) {
      text(function->domain);
      text(function->name);
      text(function->overload);
      for (const auto& [domain, version] : function->opsets) {
        text(domain);
        number(version);
      }
      for (const std::string& attribute : function->attributes)
        text(attribute);
      attributes(function->defaults);
      graph(function->body);
    }
    graph(model.graph(), /*named=*/true);
    ModelFingerprint result{};
    const auto digest = hash.final();
    std::memcpy(result.data(), digest.data(), std::min(result.size(), digest.size()));
    return result;
  }

private:
  void bytes(const void* data, size_t size) {
    hash.update({static_cast<const uint8_t*>(data), size});
  }
  template <class Integer> void number(Integer value) {
    auto wide = static_cast<uint64_t>(value);
    bytes(&wide, sizeof(wide));
  }
  /// Includes the length, so that two texts in a row cannot equal two others.
  void text(llvm::StringRef value) {
    number(value.size());
    bytes(value.data(), value.size());
  }

  void graph(const Graph& visited, bool named = false) {
    number(visited.inputs().size());
    for (const std::unique_ptr<Value>& input : visited.inputs()) {
      if (named)
        text(input->name());
      number(static_cast<int32_t>(input->type().elementType()));
      use(input.get());
      if (input->initializer())
        tensor(*input->initializer());
    }
    for (const Node& node : visited.nodes()) {
      text(node.op().domain());
      text(node.op().type());
      text(node.overload());
      number(node.operands().size());
      for (const Use& operand : node.operands())
        use(operand.value());
      attributes(node.attributes());
      number(node.results().size());
      for (const Value& result : node.results())
        use(&result);
    }
    number(visited.outputs().size());
    for (const Value* output : visited.outputs()) {
      if (named)
        text(output->name());
      use(output);
    }
  }

  /// Identifies a value by a number, followed by the contents of a constant at its first use.
  void use(const Value* value) {
    if (!value)
      return number(UINT64_MAX);
    auto [entry, isNew] = numbers.try_emplace(value, numbers.size());
    number(entry->second);
    if (isNew && value->isInitializer() && !value->isGraphInput() && value->initializer())
      tensor(*value->initializer());
  }

  void attributes(llvm::ArrayRef<NamedAttribute> list) {
    number(list.size());
    for (const NamedAttribute& attribute : list) {
      text(attribute.name);
      number(static_cast<int32_t>(attribute.value.kind()));
      text(attribute.value.referencedName());
      if (!attribute.value.isReference())
        contents(attribute.value);
    }
  }

  void contents(const Attribute& attribute) {
    switch (attribute.kind()) {
    case AttributeKind::Float:
      return floats(attribute.floatValue());
    case AttributeKind::Int:
      return number(attribute.intValue());
    case AttributeKind::String:
      return text(attribute.stringValue());
    case AttributeKind::Tensor:
      return tensor(*attribute.tensorValue());
    case AttributeKind::Floats:
      return floats(attribute.floats());
    case AttributeKind::Ints:
      number(attribute.ints().size());
      for (int64_t value : attribute.ints())
        number(value);
      return;
    case AttributeKind::Strings:
      number(attribute.strings().size());
      for (const std::string& value : attribute.strings())
        text(value);
      return;
    case AttributeKind::Tensors:
      number(attribute.tensors().size());
      for (const TensorRef& value : attribute.tensors())
        tensor(*value);
      return;
    case AttributeKind::Graph:
    case AttributeKind::Graphs:
      number(attribute.graphs().size());
      for (const std::unique_ptr<Graph>& value : attribute.graphs())
        graph(*value);
      return;
    default:
      return; // copied but not interpreted, so no kernel reads it
    }
  }

  void floats(llvm::ArrayRef<float> values) {
    number(values.size());
    bytes(values.data(), values.size() * sizeof(float));
  }

  void tensor(const TensorData& data) {
    number(static_cast<int32_t>(data.elementType()));
    number(data.shape().size());
    for (int64_t extent : data.shape())
      number(extent);
    llvm::Expected<std::span<const std::byte>> all = data.bytes();
    if (!all) {
      // Strings and unavailable data, which no runnable model reads.
      llvm::consumeError(all.takeError());
      return number(UINT64_MAX);
    }
    if (all->size() <= hashedConstantBytes)
      return bytes(all->data(), all->size());
    number(Checksum::of(*all));
  }

  llvm::SHA256 hash;
  llvm::DenseMap<const Value*, uint64_t> numbers;
};

} // namespace

ModelFingerprint modelFingerprint(const Model& model) { return ModelHasher().run(model); }

} // namespace kvopt::runtime
