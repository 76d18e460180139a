// Copies a graph node by node and expands calls of functions.
#include "runtime/exec/inline_functions.h"

#include "ir/op.h"
#include "ir/shapes/shape_inference.h"
#include "ir/verify/model_gate.h"
#include "ir/verify/node_check.h"
#include "runtime/exec/execution_plan.h"
#include "runtime/exec/static_sequences.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::runtime {
using namespace ir;

namespace {

constexpr unsigned maxDepth = 16;

using ValueMap = llvm::DenseMap<const Value*, Value*>;

/// State shared by all graphs of a copy.
struct CopyState {
  size_t nodes = 0;
  StaticSequences sequences;
};

class Inliner {
public:
  Inliner(const Model& source, const KernelRegistry& registry, Graph& copy, CopyState& shared)
      : model(source), kernels(registry), target(copy), state(shared) {}

  llvm::Error copyMain();

private:
  llvm::Error copySubgraphs(const NamedAttribute& attribute, Node& copy, ValueMap& values,
                            const Node* call, const Function* function, unsigned depth);
  llvm::Error copySubgraph(const Graph& source, ValueMap& values, const Node* call,
                           const Function* function, unsigned depth);
  llvm::Error addOutputs(const Graph& source, ValueMap& values);
  llvm::Error copyNodes(llvm::ArrayRef<const Node*> nodes, ValueMap& values, const Node* call,
                        const Function* function, unsigned depth);
  llvm::Error copyNode(const Node& node, ValueMap& values, const Node* call,
                       const Function* function, unsigned depth);
  llvm::Expected<bool> replaceSequences(const Node& node, ValueMap& values, const Node* call,
                                        const Function* function, unsigned depth);
  llvm::Error expand(const Node& call, const Function& function, ValueMap& values,
                     const Node* outerCall, const Function* outer, unsigned depth);

  const Model& model;
  const KernelRegistry& kernels;
  Graph& target;
  CopyState& state;
};

bool needsBody(const Node& node, const Model& model, const KernelRegistry& kernels,
               int64_t version) {
  return !kernels.find(node.op(), version) && model.findFunction(node);
}

/// Whether the graph or one of its subgraphs calls a function or creates a sequence.
bool needsCopy(const Graph& graph, const Model& model, const KernelRegistry& kernels) {
  for (const Node* node : liveNodes(graph)) {
    if (needsBody(*node, model, kernels, model.graph().opsetVersion(node->op().domain())) ||
        StaticSequences::isSequenceOperator(*node))
      return true;
    for (const NamedAttribute& attribute : node->attributes())
      for (const std::unique_ptr<Graph>& nested : attribute.value.graphs())
        if (needsCopy(*nested, model, kernels))
          return true;
  }
  return false;
}

/// The operand's copy. Constants are added on first use, to the outermost graph, because later
/// readers may be in any graph.
Value* mapped(const Value* value, ValueMap& values, Graph& target) {
  if (!value)
    return nullptr;
  auto found = values.find(value);
  if (found != values.end())
    return found->second;
  TensorRef data = value->constantRef();
  assert(data && "a value is an input, a constant, or was produced by an earlier node");
  Graph* outermost = &target;
  while (const Node* holder = outermost->parentNode())
    outermost = &holder->graph();
  Value& copy = outermost->addConstant(value->name(), data);
  values[value] = &copy;
  return &copy;
}

llvm::Error Inliner::copyMain() {
  ValueMap values;
  const Graph& source = model.graph();
  target.setName(source.name().str());
  for (const std::unique_ptr<Value>& input : source.inputs()) {
    Value& copy = target.addInput(input->name(), input->type());
    if (input->initializer())
      target.setInputDefault(copy, input->initializer());
    values[input.get()] = &copy;
  }
  for (const std::unique_ptr<Value>& constant : source.initializers())
    if (constant->initializer() && constant->constant())
      values[constant.get()] = &target.addInitializer(constant->name(), constant->initializer());
  if (llvm::Error error = copyNodes(liveNodes(source), values, nullptr, nullptr, 0))
    return error;
  return addOutputs(source, values);
}

llvm::Error Inliner::addOutputs(const Graph& source, ValueMap& values) {
  for (const Value* output : source.outputs()) {
    if (state.sequences.find(output))
      return unsupported("a sequence is an output of a graph").value(output->name());
    Value* given = mapped(output, values, target);
    if (!given)
      return invalid("a function returns an operand that its call leaves out as an output")
          .value(output->name());
    if (given->name() != output->name() && &given->graph() == &target) {
      // A value of a body may already have the name.
      Value* other = target.findValue(output->name(), true);
      if (other && other->producer() && &other->graph() == &target && !other->isGraphOutput()) {
        target.rename(*other, target.freshName(output->name()));
        other = nullptr;
      }
      if (!other)
        target.rename(*given, output->name());
    }
    target.addOutput(*given);
  }
  return llvm::Error::success();
}

llvm::Error Inliner::copySubgraph(const Graph& source, ValueMap& values, const Node* call,
                                  const Function* function, unsigned depth) {
  target.setName(source.name().str());
  for (const std::unique_ptr<Value>& input : source.inputs())
    values[input.get()] = &target.addInput(target.freshName(input->name()), input->type());
  if (llvm::Error error = copyNodes(liveNodes(source), values, call, function, depth))
    return error;
  return addOutputs(source, values);
}

llvm::Error Inliner::copySubgraphs(const NamedAttribute& attribute, Node& copy, ValueMap& values,
                                   const Node* call, const Function* function, unsigned depth) {
  std::vector<std::unique_ptr<Graph>> graphs;
  std::vector<Graph*> copies;
  for (size_t i = 0; i < attribute.value.graphs().size(); ++i) {
    graphs.push_back(std::make_unique<Graph>(target.context(), target.opsets(), &copy));
    copies.push_back(graphs.back().get());
  }
  // Set before they are filled, because names in the copies are looked up through the node.
  bool isList = attribute.value.kind() == AttributeKind::Graphs;
  copy.setAttribute(attribute.name, Attribute::ofGraphs(std::move(graphs), isList));
  for (size_t i = 0; i < copies.size(); ++i)
    if (llvm::Error error =
            Inliner(model, kernels, *copies[i], state)
                .copySubgraph(*attribute.value.graphs()[i], values, call, function, depth))
      return error;
  return llvm::Error::success();
}

llvm::Error Inliner::copyNodes(llvm::ArrayRef<const Node*> nodes, ValueMap& values,
                               const Node* call, const Function* function, unsigned depth) {
  for (const Node* node : nodes) {
    if (++state.nodes > maxExpandedNodes)
      return unsupported("inlining the model's functions gives more than {} nodes",
                         maxExpandedNodes);
    auto isReplaced = replaceSequences(*node, values, call, function, depth);
    if (!isReplaced)
      return isReplaced.takeError();
    if (*isReplaced)
      continue;
    int64_t version = target.opsetVersion(node->op().domain());
    if (needsBody(*node, model, kernels, version)) {
      if (llvm::Error error =
              expand(*node, *model.findFunction(*node), values, call, function, depth + 1))
        return error;
    } else if (llvm::Error error = copyNode(*node, values, call, function, depth)) {
      return error;
    }
  }
  return llvm::Error::success();
}

llvm::Expected<bool> Inliner::replaceSequences(const Node& node, ValueMap& values, const Node* call,
                                               const Function* function, unsigned depth) {
  auto copyBody = [&](const Graph& body,
                      llvm::ArrayRef<Value*> arguments) -> llvm::Expected<std::vector<Value*>> {
    if (depth >= maxDepth)
      return unsupported("bodies are nested more than {} deep", maxDepth)
          .node(node.name(), node.op().str());
    ValueMap inner = values;
    for (size_t i = 0; i < arguments.size(); ++i)
      inner[body.inputs()[i].get()] = arguments[i];
    if (llvm::Error error = copyNodes(liveNodes(body), inner, call, function, depth + 1))
      return error;
    std::vector<Value*> outputs;
    for (const Value* output : body.outputs()) {
      if (state.sequences.find(output))
        return unsupported("a sequence is an output of a graph").value(output->name());
      outputs.push_back(mapped(output, inner, target));
    }
    return outputs;
  };
  auto mappedValue = [&](const Value* value) { return mapped(value, values, target); };
  // A function with a body accepts sequences.
  const bool isCall = needsBody(node, model, kernels, target.opsetVersion(node.op().domain())) &&
                      !StaticSequences::isSequenceOperator(node);
  return isCall ? false : state.sequences.replace(node, target, values, mappedValue, copyBody);
}

/// Value of an attribute at a call: from the call, or the function's default.
const Attribute* attributeAtCall(llvm::StringRef name, const Node& call, const Function& function) {
  if (const Attribute* given = call.attribute(name))
    return given;
  for (const NamedAttribute& otherwise : function.defaults)
    if (otherwise.name == name)
      return &otherwise.value;
  return nullptr;
}

llvm::Error Inliner::copyNode(const Node& node, ValueMap& values, const Node* call,
                              const Function* function, unsigned depth) {
  llvm::SmallVector<Value*, 6> operands;
  for (const Use& use : node.operands())
    operands.push_back(mapped(use.value(), values, target));
  llvm::SmallVector<std::string, 3> names;
  for (const Value& result : node.results())
    names.push_back(result.isAbsent() ? ""
                    : !call && !target.findValue(result.name(), true)
                        ? result.name().str()
                        : target.freshName(result.name()));
  // Two results of one node may request the same new name.
  for (size_t i = 0; i < names.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (!names[i].empty() && names[i] == names[j])
        names[i] = target.freshName(names[i] + "_" + std::to_string(i));
  llvm::SmallVector<llvm::StringRef, 3> nameRefs(names.begin(), names.end());
  Node& copy = target.create(node.op(), operands, nameRefs);
  copy.setName(call ? formatted("{}/{}", call->name(), node.name()) : node.name().str());
  for (const NamedAttribute& attribute : node.attributes()) {
    if (!attribute.value.graphs().empty()) {
      if (llvm::Error error = copySubgraphs(attribute, copy, values, call, function, depth))
        return error;
      continue;
    }
    if (!attribute.value.isReference()) {
      copy.setAttribute(attribute.name, attribute.value.clone());
      continue;
    }
    if (!call)
      return invalid("attribute '{}' refers to a function's attribute outside of a function",
                     attribute.name)
          .node(node.name(), node.op().str());
    if (const Attribute* value =
            attributeAtCall(attribute.value.referencedName(), *call, *function))
      copy.setAttribute(attribute.name, value->clone());
  }
  for (unsigned i = 0; i < node.results().size(); ++i) {
    if (!call)
      copy.result(i).setType(node.result(i).type());
    values[&node.result(i)] = &copy.result(i);
  }
  // The body's node may require an attribute that the call does not have.
  return call ? withNode(checkDefinition(copy), copy.name(), copy.op().str())
              : llvm::Error::success();
}

/// Checks the versions of a body's domains. They may differ from the model's if its operators are
/// defined alike.
llvm::Error checkVersions(const Function& function, llvm::ArrayRef<const Node*> nodes,
                          const Graph& target) {
  for (const Node* node : nodes) {
    for (const NamedAttribute& attribute : node->attributes())
      for (const std::unique_ptr<Graph>& nested : attribute.value.graphs())
        if (llvm::Error error = checkVersions(function, liveNodes(*nested), target))
          return error;
    llvm::StringRef domain = node->op().domain();
    int64_t here = target.opsetVersion(domain);
    int64_t there = function.body.opsetVersion(domain);
    const OpRegistry& ops = target.context().ops();
    if (here == there || (here != 0 && ops.find(node->op(), here) &&
                          ops.find(node->op(), here) == ops.find(node->op(), there)))
      continue;
    return unsupported("the body of function {}::{} uses {} of opset {}, the model has opset {}",
                       function.domain, function.name, node->op().str(), there, here)
        .node(node->name(), node->op().str());
  }
  return llvm::Error::success();
}

llvm::Error Inliner::expand(const Node& call, const Function& function, ValueMap& values,
                            const Node* outerCall, const Function* outer, unsigned depth) {
  if (depth > maxDepth)
    return unsupported("functions are nested more than {} deep", maxDepth)
        .node(call.name(), call.op().str());
  llvm::ArrayRef<std::unique_ptr<Value>> formals = function.body.inputs();
  if (call.operands().size() > formals.size() ||
      call.results().size() > function.body.outputs().size())
    return invalid("the call does not fit the function's operands and results")
        .node(call.name(), call.op().str());
  std::vector<const Node*> nodes = liveNodes(function.body);
  if (llvm::Error error = checkVersions(function, nodes, target))
    return error;
  // Attributes of this call may refer to those of the enclosing call.
  std::unique_ptr<Graph> holder = std::make_unique<Graph>(target.context(), target.opsets());
  Node& resolved = holder->create(call.op(), {}, {});
  resolved.setName(outerCall ? formatted("{}/{}", outerCall->name(), call.name())
                             : call.name().str());
  for (const NamedAttribute& attribute : call.attributes()) {
    const Attribute* value = &attribute.value;
    if (value->isReference())
      value = outerCall ? attributeAtCall(value->referencedName(), *outerCall, *outer) : nullptr;
    if (value && value->graphs().empty())
      resolved.setAttribute(attribute.name, value->clone());
  }
  ValueMap inner;
  for (unsigned i = 0; i < formals.size(); ++i) {
    if (const StaticSequences::Elements* sequence = state.sequences.find(call.operand(i))) {
      state.sequences.set(*formals[i], StaticSequences::Elements(*sequence));
      continue;
    }
    Value* operand = mapped(call.operand(i), values, target);
    if (!operand) {
      // Readers of an absent operand see an absent operand.
      inner[formals[i].get()] = nullptr;
      continue;
    }
    inner[formals[i].get()] = operand;
  }
  if (llvm::Error error = copyNodes(nodes, inner, &resolved, &function, depth))
    return error;
  for (unsigned i = 0; i < call.results().size(); ++i)
    if (const auto* sequence = state.sequences.find(function.body.outputs()[i]))
      state.sequences.set(call.result(i), StaticSequences::Elements(*sequence));
    else if (!call.result(i).isAbsent())
      values[&call.result(i)] = mapped(function.body.outputs()[i], inner, target);
  return llvm::Error::success();
}

/// Sparse constants have no contents that a copy could share.
llvm::Error checkNoSparseConstant(const Graph& graph) {
  llvm::Error problem = llvm::Error::success();
  forEachGraph(const_cast<Graph&>(graph), [&](Graph& each) {
    for (const std::unique_ptr<Value>& constant : each.initializers())
      if (!problem && !constant->initializer() && !constant->isUnused())
        problem = unsupported("the runtime does not read sparse constants").value(constant->name());
  });
  return problem;
}

} // namespace

InlinedGraph::InlinedGraph(const OpRegistry& registry, OpsetImports opsets)
    : context(registry), imports(std::move(opsets)), copy(context, imports) {}

llvm::Expected<std::unique_ptr<InlinedGraph>> inlineFunctions(const Model& model,
                                                              const KernelRegistry& kernels) {
  if (!needsCopy(model.graph(), model, kernels))
    return nullptr;
  if (llvm::Error error = checkNoSparseConstant(model.graph()))
    return error;
  for (const std::unique_ptr<Function>& function : model.functions)
    if (llvm::Error error = checkNoSparseConstant(function->body))
      return error;
  OpsetImports opsets = model.opsets;
  for (const std::unique_ptr<Function>& function : model.functions)
    for (const auto& [domain, version] : function->opsets)
      opsets.try_emplace(domain, version);
  auto inlined = std::make_unique<InlinedGraph>(model.graph().context().ops(), std::move(opsets));
  CopyState state;
  if (llvm::Error error = Inliner(model, kernels, inlined->graph(), state).copyMain())
    return error;
  if (llvm::Error error = inferShapes(inlined->graph()))
    return error;
  return inlined;
}

} // namespace kvopt::runtime
