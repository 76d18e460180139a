// Digests of constants, operators and values.
#include "check/classes.h"

#include "ir/onnx/file_place.h"
#include "ir/op.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/SHA256.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

namespace kvopt::check {
using ir::Attribute;
using ir::AttributeKind;

namespace {

/// Hashes parts, each with its length, into a class.
class ClassHash {
public:
  void text(llvm::StringRef part) {
    number(part.size());
    hash.update(part);
  }
  void number(uint64_t value) {
    uint8_t bytes[sizeof(value)];
    std::memcpy(bytes, &value, sizeof(value));
    hash.update(llvm::ArrayRef<uint8_t>(bytes));
  }
  void add(const ValueClass& part) {
    number(part.bits[0]);
    number(part.bits[1]);
  }
  ValueClass take() {
    ValueClass result;
    const auto bytes = hash.final();
    std::memcpy(result.bits.data(), bytes.data(), sizeof(result.bits));
    return result;
  }
  llvm::SHA256 hash;
};

} // namespace

ValueClass classOf(llvm::StringRef kind, llvm::ArrayRef<ValueClass> parts,
                   llvm::ArrayRef<uint64_t> numbers) {
  ClassHash hash;
  hash.text(kind);
  for (uint64_t value : numbers)
    hash.number(value);
  hash.number(parts.size());
  for (const ValueClass& part : parts)
    hash.add(part);
  return hash.take();
}

namespace {

/// Hashes a constant by its place in a file, if it has one and `byPlace` is set, or by contents.
ValueClass constantClass(const ir::Model& model, const ir::TensorData& data, bool byPlace) {
  ClassHash hash;
  hash.text("constant");
  hash.number(static_cast<uint64_t>(data.elementType()));
  hash.number(data.shape().size());
  for (int64_t extent : data.shape())
    hash.number(static_cast<uint64_t>(extent));
  if (auto place = byPlace ? ir::filePlaceOf(data) : std::nullopt) {
    hash.text("file");
    for (uint64_t part : {place->file.device, place->file.inode, place->offset, place->length})
      hash.number(part);
  } else if (auto bytes = data.bytes()) {
    hash.hash.update(
        llvm::ArrayRef<uint8_t>(reinterpret_cast<const uint8_t*>(bytes->data()), bytes->size()));
  } else {
    llvm::consumeError(bytes.takeError());
    hash.text("only this one");
    hash.number(reinterpret_cast<uintptr_t>(&data));
    hash.number(reinterpret_cast<uintptr_t>(&model));
  }
  return hash.take();
}

} // namespace

ValueClass ConstantDigests::of(const ir::Model& model, const ir::TensorData& data) {
  auto [at, isNew] = known.try_emplace(&data);
  if (isNew)
    at->second = constantClass(model, data, /*byPlace=*/true);
  return at->second;
}

namespace {
constexpr int64_t mostElementsRead = 1 << 16; ///< of a constant in a file
} // namespace

bool ConstantDigests::hasInfinite(const ir::TensorData& data) {
  constexpr int64_t mostElements = 1 << 22;
  auto [at, isNew] = infinite.try_emplace(&data, false);
  if (!isNew || (data.elementCount() > mostElementsRead && ir::filePlaceOf(data)))
    return at->second;
  const auto numbers = ir::floatValues(data, mostElements);
  at->second =
      numbers && llvm::any_of(*numbers, [](double value) { return !std::isfinite(value); });
  return at->second;
}

ValueClass ConstantDigests::contentsOf(const ir::Model& model, const ir::TensorData& data) {
  if (data.elementCount() > mostElementsRead || !ir::filePlaceOf(data))
    return of(model, data);
  auto [at, isNew] = contents.try_emplace(&data);
  if (isNew)
    at->second = constantClass(model, data, /*byPlace=*/false);
  return at->second;
}

namespace {

using FileRange = std::array<uint64_t, 4>;

FileRange rangeOf(const ir::FilePlace& place) {
  return {place.file.device, place.file.inode, place.offset, place.length};
}

/// Constants in files, by type and shape.
using FileConstants =
    std::map<std::vector<int64_t>, std::vector<std::pair<FileRange, const ir::TensorData*>>>;

FileConstants fileConstantsOf(const ir::Model& model) {
  FileConstants found;
  ir::forEachGraph(const_cast<ir::Graph&>(model.graph()), [&](ir::Graph& graph) {
    for (const auto& constant : graph.initializers()) {
      const ir::TensorData* data = constant->initializer().get();
      const auto place = data ? ir::filePlaceOf(*data) : std::nullopt;
      if (!place)
        continue;
      std::vector<int64_t> form(data->shape().begin(), data->shape().end());
      form.push_back(static_cast<int64_t>(data->elementType()));
      found[form].push_back({rangeOf(*place), data});
    }
  });
  return found;
}

} // namespace

void ConstantDigests::readCopies(const ir::Model& before, const ir::Model& after) {
  const FileConstants first = fileConstantsOf(before);
  for (const auto& [form, constants] : fileConstantsOf(after)) {
    const auto like = first.find(form);
    if (like == first.end())
      continue;
    auto without = [](const auto& all, const auto& others) {
      std::set<FileRange> named;
      for (const auto& other : others)
        named.insert(other.first);
      std::vector<const ir::TensorData*> rest;
      for (const auto& [range, data] : all)
        if (!named.count(range))
          rest.push_back(data);
      return rest;
    };
    const auto onlyAfter = without(constants, like->second);
    const auto onlyBefore = without(like->second, constants);
    if (onlyAfter.empty() || onlyBefore.empty())
      continue;
    std::map<FileRange, ValueClass> digests;
    for (const auto& side : {onlyAfter, onlyBefore})
      for (const ir::TensorData* data : side) {
        auto [at, isNew] = digests.try_emplace(rangeOf(*ir::filePlaceOf(*data)));
        if (isNew) {
          auto bytes = data->bytes();
          if (!bytes) {
            llvm::consumeError(bytes.takeError());
            digests.erase(at);
            continue;
          }
          ClassHash hash;
          hash.text("contents of a file");
          for (int64_t part : form)
            hash.number(static_cast<uint64_t>(part));
          hash.hash.update(llvm::ArrayRef<uint8_t>(reinterpret_cast<const uint8_t*>(bytes->data()),
                                                   bytes->size()));
          at->second = hash.take();
        }
        known[data] = at->second;
      }
  }
}

bool isCommutative(const ir::Node& node) {
  static constexpr const char* names[] = {"Add",   "Mul", "And", "Or", "Xor",
                                          "Equal", "Max", "Min", "Sum"};
  return node.op().isOnnx() && llvm::is_contained(names, node.op().type());
}

Classes::Classes(const ir::Model& hashed, ConstantDigests& digests)
    : model(hashed), constants(digests) {}

ValueClass Classes::of(const ir::Value& value) {
  auto known = classes.find(&value);
  if (known != classes.end())
    return known->second;
  if (auto data = value.constantRef())
    return classes[&value] = constants.of(model, *data);
  if (value.isGraphInput() && !value.graph().parentNode()) {
    ClassHash hash;
    hash.text("input");
    hash.text(value.name());
    return classes[&value] = hash.take();
  }
  if (value.producer()) {
    hash(*value.producer());
    return classes[&value];
  }
  ClassHash hash;
  hash.text("only this one");
  hash.number(reinterpret_cast<uintptr_t>(&value));
  return classes[&value] = hash.take();
}

ValueClass Classes::attributesOf(llvm::ArrayRef<ir::NamedAttribute> attributes) {
  std::vector<ValueClass> parts;
  for (const ir::NamedAttribute& entry : attributes) {
    ClassHash hash;
    hash.text(entry.name);
    const Attribute& value = entry.value;
    hash.number(static_cast<uint64_t>(value.kind()));
    if (value.isReference()) {
      hash.text(value.referencedName());
      parts.push_back(hash.take());
      continue;
    }
    switch (value.kind()) {
    case AttributeKind::Float: {
      const float number = value.floatValue();
      hash.text({reinterpret_cast<const char*>(&number), sizeof(number)});
      break;
    }
    case AttributeKind::Int:
      hash.number(static_cast<uint64_t>(value.intValue()));
      break;
    case AttributeKind::String:
      hash.text(value.stringValue());
      break;
    case AttributeKind::Floats:
      for (float number : value.floats())
        hash.text({reinterpret_cast<const char*>(&number), sizeof(number)});
      break;
    case AttributeKind::Ints:
      for (int64_t number : value.ints())
        hash.number(static_cast<uint64_t>(number));
      break;
    case AttributeKind::Strings:
      for (const std::string& text : value.strings())
        hash.text(text);
      break;
    case AttributeKind::Tensor:
      hash.add(constants.of(model, *value.tensorValue()));
      break;
    case AttributeKind::Graph:
    case AttributeKind::Graphs:
      for (const auto& graph : value.graphs()) {
        hashGraph(*graph);
        hash.number(graph->inputs().size());
        for (const ir::Value* output : graph->outputs())
          hash.add(of(*output));
      }
      break;
    default: // a kind that is not interpreted equals only itself
      hash.number(reinterpret_cast<uintptr_t>(&value));
    }
    parts.push_back(hash.take());
  }
  std::sort(parts.begin(), parts.end());
  return classOf("attributes", parts);
}

void Classes::hashGraph(const ir::Graph& graph) {
  // Formal inputs of a loop's body are known by their place. Values of two different bodies that
  // have the same class compute the same function of their own formals.
  uint64_t depth = 0;
  for (const ir::Node* parent = graph.parentNode(); parent; parent = parent->graph().parentNode())
    ++depth;
  for (size_t i = 0; i < graph.inputs().size(); ++i)
    classes.try_emplace(graph.inputs()[i].get(), classOf("formal", {}, {depth, i}));
  for (const ir::Node& node : graph.nodes())
    hash(node);
}

ValueClass Classes::bodyOf(const ir::Function& function) {
  auto [at, isNew] = bodies.try_emplace(&function);
  if (!isNew)
    return at->second;
  ClassHash hash;
  Classes body(model, constants);
  for (size_t i = 0; i < function.body.inputs().size(); ++i)
    body.set(*function.body.inputs()[i], classOf("formal", {}, {uint64_t(0), i}));
  for (const ir::Value* output : function.body.outputs())
    hash.add(body.of(*output));
  hash.add(body.attributesOf(function.defaults));
  return bodies[&function] = hash.take();
}

namespace {

/// Version of the operator's meaning. Later versions of some operators only take more element
/// types.
int64_t meaningOf(const ir::Node& node) {
  static constexpr const char* names[] = {
      "Cast",    "CastLike", "Constant", "ConstantOfShape", "Equal",     "Flatten",  "If", "Pow",
      "Reshape", "Shape",    "Size",     "Squeeze",         "Transpose", "Unsqueeze"};
  constexpr int64_t settled = 13;
  const ir::OpDef* definition = node.definition();
  const int64_t version =
      definition ? int64_t(definition->since) : node.graph().opsetVersion(node.op().domain());
  return node.op().isOnnx() && llvm::is_contained(names, node.op().type())
             ? std::min(version, settled)
             : version;
}

} // namespace

ValueClass Classes::operatorOf(const ir::Node& node) {
  if (auto known = operators.find(&node); known != operators.end())
    return known->second;
  ClassHash hash;
  hash.text(node.op().domain());
  hash.text(node.op().type());
  hash.text(node.overload());
  hash.number(static_cast<uint64_t>(meaningOf(node)));
  hash.add(attributesOf(node.attributes()));
  // The number of parts determines their sizes.
  if (node.is("Split"))
    hash.number(node.results().size());
  if (const ir::Function* function = model.findFunction(node.op())) {
    hash.text("function");
    hash.add(bodyOf(*function));
  }
  const ValueClass own = hash.take();
  if (node.subgraphs().empty()) // those read values whose classes may change
    operators[&node] = own;
  return own;
}

Key Classes::identityOf(const ir::Node& node) {
  const ValueClass own = operatorOf(node);
  Key key{own.bits[0], own.bits[1], node.results().size()};
  for (const ir::Value& result : node.results())
    key.push_back(!result.isAbsent());
  return key;
}

namespace {

// Classes that no digest has, except with a probability of one in 2^127.
constexpr ValueClass absentClass{{1, 0}}; ///< of an operand that is left out
constexpr ValueClass sumClass{{2, 0}};    ///< of Add without attributes, as an operator

} // namespace

void Classes::set(const ir::Value& value, ValueClass given) {
  auto [at, isNew] = classes.try_emplace(&value, given);
  if (isNew || at->second == given)
    return;
  at->second = given;
  changed.insert(&value);
}

namespace {

/// Whether the node's first result is its first operand. Dropout is an identity if its training
/// mode is absent or the constant false.
bool isIdentity(const ir::Node& node) {
  if (node.results().size() != 1 || node.operands().empty() || !node.operand(0))
    return false;
  if (!node.is("Dropout"))
    return node.is("Identity");
  constexpr int64_t firstInference = 7;
  constexpr unsigned trainingMode = 2;
  if (node.graph().opsetVersion(node.op().domain()) < firstInference)
    return false;
  if (node.operands().size() <= trainingMode || !node.operand(trainingMode))
    return true;
  const auto data = node.operand(trainingMode)->constantRef();
  const auto isOn = data ? ir::integerValues(*data, 1) : std::nullopt;
  return isOn && isOn->size() == 1 && isOn->front() == 0;
}

} // namespace

void Classes::hash(const ir::Node& node) {
  const bool isHashed = llvm::all_of(node.results(), [&](const ir::Value& result) {
    return result.isAbsent() || classes.count(&result);
  });
  const bool isStale = llvm::any_of(node.operands(), [&](const ir::Use& use) {
    return use.value() && changed.count(use.value());
  });
  if (isHashed && !isStale && node.subgraphs().empty())
    return;
  if (isIdentity(node)) {
    set(node.result(0), of(*node.operand(0)));
    return;
  }
  std::vector<ValueClass> operands;
  for (const ir::Use& use : node.operands())
    operands.push_back(use.value() ? of(*use.value()) : absentClass);
  while (!operands.empty() && operands.back() == absentClass)
    operands.pop_back();
  if (isCommutative(node))
    std::sort(operands.begin(), operands.end());
  operands.push_back(node.is("Add") && node.attributes().empty() ? sumClass : operatorOf(node));
  // A constant is known by its contents.
  for (size_t i = 0; i < node.results().size(); ++i) {
    const ir::Value& result = node.result(unsigned(i));
    if (auto data = result.constantRef())
      set(result, constants.of(model, *data));
    else
      set(result, classOf("result", operands, {i}));
  }
  hashSum(node);
}

/// The last result of these operators is the sum that they normalize.
void Classes::hashSum(const ir::Node& node) {
  constexpr unsigned sumIndex = 3;
  const bool isSkip = node.is("com.microsoft::SkipLayerNormalization") ||
                      node.is("com.microsoft::SkipSimplifiedLayerNormalization");
  if (!isSkip || node.results().size() <= sumIndex || node.result(sumIndex).isAbsent())
    return;
  const unsigned bias = node.is("com.microsoft::SkipLayerNormalization") ? 4 : 3;
  if (node.operands().size() > bias && node.operand(bias))
    return;
  std::vector<ValueClass> terms{of(*node.operand(0)), of(*node.operand(1))};
  std::sort(terms.begin(), terms.end());
  terms.push_back(sumClass);
  set(node.result(sumIndex), classOf("result", terms, {0}));
}

void Classes::hashAll() {
  for (const ir::Node& node : model.graph().nodes())
    hash(node);
}

} // namespace kvopt::check
