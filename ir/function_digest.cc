// Hashes a body from its inputs to its outputs. The digest of a value covers the whole expression
// that computes it.
#include "ir/function_digest.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/SHA256.h"

#include <cstring>

namespace kvopt::ir {
namespace {

constexpr int64_t mostConstantBytes = 4096;

/// Hashes the parts of a digest. Each part is preceded by its length, so that different sequences
/// hash different bytes.
class PartHash {
public:
  explicit PartHash(llvm::StringRef what) { add(what); }

  void add(llvm::StringRef text) {
    addNumber(static_cast<int64_t>(text.size()));
    hash.update(text);
  }
  void addNumber(int64_t number) {
    uint8_t bytes[sizeof number];
    std::memcpy(bytes, &number, sizeof number);
    hash.update(llvm::ArrayRef<uint8_t>(bytes));
  }
  void addFloat(float number) {
    uint32_t bits = 0;
    std::memcpy(&bits, &number, sizeof bits);
    addNumber(bits);
  }
  void add(const FunctionDigest& digest) { hash.update(llvm::ArrayRef<uint8_t>(digest)); }

  FunctionDigest take() {
    FunctionDigest digest{};
    const auto bytes = hash.final();
    std::memcpy(digest.data(), bytes.data(), std::min(digest.size(), bytes.size()));
    return digest;
  }

private:
  llvm::SHA256 hash;
};

/// The operand that the node returns unchanged; null if it computes something.
const Value* passedOn(const Node& node) {
  if (node.results().size() != 1 || node.operands().size() != 1)
    return nullptr;
  if (node.is("Identity"))
    return node.operand(0);
  const auto order = node.is("Transpose") ? node.intsAttr("perm") : std::nullopt;
  if (!order || order->empty())
    return nullptr;
  for (size_t axis = 0; axis < order->size(); ++axis)
    if ((*order)[axis] != static_cast<int64_t>(axis))
      return nullptr;
  return node.operand(0);
}

class BodyHash {
public:
  std::optional<FunctionDigest> run(const Function& function) {
    const Graph& body = function.body;
    PartHash all("function");
    all.addNumber(static_cast<int64_t>(body.inputs().size()));
    for (size_t i = 0; i < body.inputs().size(); ++i) {
      PartHash input("input");
      input.addNumber(static_cast<int64_t>(i));
      digests[body.inputs()[i].get()] = input.take();
    }
    for (const Node& node : body.nodes())
      if (!see(node))
        return std::nullopt;
    std::vector<std::string> attributes = function.attributes;
    llvm::sort(attributes);
    for (const std::string& attribute : attributes)
      all.add(attribute);
    all.addNumber(static_cast<int64_t>(function.defaults.size()));
    if (!addAttributes(function.defaults, all))
      return std::nullopt;
    for (const Value* output : body.outputs())
      if (!addValue(output, all))
        return std::nullopt;
    return all.take();
  }

private:
  bool see(const Node& node) {
    if (const Value* same = passedOn(node)) {
      PartHash ignored("");
      if (!addValue(same, ignored))
        return false;
      const FunctionDigest passed = digests.find(same)->second;
      digests[&node.result()] = passed;
      return true;
    }
    if (node.is("Constant") && node.results().size() == 1 && node.result().constant())
      return true; // its readers hash its contents
    PartHash hash("node");
    hash.add(node.op().domain());
    hash.add(node.op().type());
    hash.add(node.overload());
    hash.addNumber(static_cast<int64_t>(node.operands().size()));
    for (const Use& use : node.operands())
      if (!addValue(use.value(), hash))
        return false;
    if (!addAttributes(node.attributes(), hash))
      return false;
    const FunctionDigest made = hash.take();
    for (const Value& result : node.results()) {
      PartHash one("result");
      one.add(made);
      one.addNumber(result.resultIndex());
      digests[&result] = one.take();
    }
    return true;
  }

  bool addValue(const Value* value, PartHash& hash) {
    if (!value) {
      hash.add("absent");
      return true;
    }
    auto found = digests.find(value);
    if (found == digests.end()) {
      if (!value->constant())
        return false; // not in this body, or not interpreted
      PartHash constant("constant");
      if (!addTensor(*value->constant(), constant))
        return false;
      found = digests.try_emplace(value, constant.take()).first;
    }
    hash.add(found->second);
    return true;
  }

  static bool addTensor(const TensorData& tensor, PartHash& hash) {
    if (tensor.byteSize().value_or(mostConstantBytes + 1) > mostConstantBytes)
      return false;
    auto bytes = tensor.bytes();
    if (!bytes) {
      llvm::consumeError(bytes.takeError());
      return false;
    }
    hash.addNumber(static_cast<int64_t>(tensor.elementType()));
    hash.addNumber(static_cast<int64_t>(tensor.shape().size()));
    for (int64_t extent : tensor.shape())
      hash.addNumber(extent);
    hash.add(llvm::StringRef(reinterpret_cast<const char*>(bytes->data()), bytes->size()));
    return true;
  }

  static bool addAttributes(llvm::ArrayRef<NamedAttribute> attributes, PartHash& hash) {
    llvm::SmallVector<const NamedAttribute*, 8> sorted;
    for (const NamedAttribute& attribute : attributes)
      sorted.push_back(&attribute);
    llvm::sort(sorted, [](const auto* a, const auto* b) { return a->name < b->name; });
    for (const NamedAttribute* attribute : sorted) {
      hash.add(attribute->name);
      if (!addAttribute(attribute->value, hash))
        return false;
    }
    return true;
  }

  static bool addAttribute(const Attribute& attribute, PartHash& hash) {
    hash.addNumber(static_cast<int64_t>(attribute.kind()));
    hash.add(attribute.referencedName());
    if (attribute.isReference())
      return true;
    switch (attribute.kind()) {
    case AttributeKind::Float:
      hash.addFloat(attribute.floatValue());
      return true;
    case AttributeKind::Int:
      hash.addNumber(attribute.intValue());
      return true;
    case AttributeKind::String:
      hash.add(attribute.stringValue());
      return true;
    case AttributeKind::Tensor:
      return attribute.tensorValue() && addTensor(*attribute.tensorValue(), hash);
    case AttributeKind::Floats:
      hash.addNumber(static_cast<int64_t>(attribute.floats().size()));
      for (float number : attribute.floats())
        hash.addFloat(number);
      return true;
    case AttributeKind::Ints:
      hash.addNumber(static_cast<int64_t>(attribute.ints().size()));
      for (int64_t number : attribute.ints())
        hash.addNumber(number);
      return true;
    case AttributeKind::Strings:
      hash.addNumber(static_cast<int64_t>(attribute.strings().size()));
      for (const std::string& text : attribute.strings())
        hash.add(text);
      return true;
    default:
      return false;
    }
  }

  llvm::DenseMap<const Value*, FunctionDigest> digests;
};

} // namespace

std::optional<FunctionDigest> functionDigest(const Function& function) {
  return BodyHash().run(function);
}

} // namespace kvopt::ir
