// Digests of operators and values.
#include "check/alignment/classes.h"

#include "ir/op.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace kvopt::check {
using ir::Attribute;
using ir::AttributeKind;

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
  if (const ir::Function* function = model.findFunction(node)) {
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
    key.push_back(result.isAbsent() ? 0 : isRead(result) ? 2 : 1);
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
  const bool isFunction = model.findFunction(node) != nullptr; // whatever its name
  if (!isFunction && (isIdentity(node) || types.isCastToSameType(node))) {
    set(node.result(0), of(*node.operand(0)));
    return;
  }
  std::vector<ValueClass> operands;
  for (const ir::Use& use : node.operands())
    operands.push_back(use.value() ? of(*use.value()) : absentClass);
  while (!operands.empty() && operands.back() == absentClass)
    operands.pop_back();
  if (!isFunction && isCommutative(node))
    std::sort(operands.begin(), operands.end());
  const bool isSum = !isFunction && node.is("Add") && node.attributes().empty();
  operands.push_back(isSum ? sumClass : operatorOf(node));
  // A constant is known by its contents.
  for (size_t i = 0; i < node.results().size(); ++i) {
    const ir::Value& result = node.result(unsigned(i));
    if (auto data = result.constantRef())
      set(result, constants.of(model, *data));
    else
      set(result, classOf("result", operands, {i}));
  }
  if (!isFunction)
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
  read.insert(model.graph().outputs().begin(), model.graph().outputs().end());
  for (const ir::Node& node : llvm::reverse(model.graph().nodes()))
    if (llvm::any_of(node.results(), [&](const ir::Value& result) { return isRead(result); }))
      for (const ir::Use& use : node.operands())
        if (use.value())
          read.insert(use.value());
}

} // namespace kvopt::check
