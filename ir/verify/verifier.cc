// Checks of scoping, names, operator definitions, use lists and aliasing.
#include "ir/verify/verifier.h"

#include "ir/op.h"
#include "ir/verify/node_check.h"
#include "support/diagnostic.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"

namespace kvopt::ir {
namespace {

DiagnosticBuilder nodeError(const Node& node, DiagnosticBuilder&& error) {
  llvm::StringRef name = node.name();
  if (name.empty() && !node.results().empty())
    name = node.result().name();
  return std::move(error).node(name, node.op().str());
}

/// The node of `scope` that is `node` or contains it; null if `node` is not within `scope`.
const Node* ancestorIn(const Node& node, const Graph& scope) {
  for (const Node* current = &node; current; current = current->graph().parentNode())
    if (&current->graph() == &scope)
      return current;
  return nullptr;
}

/// Whether the subgraphs between the node and `scope` run at most once: all are branches of an If.
bool runsOnceIn(const Node& node, const Graph& scope) {
  const Node* current = &node;
  while (&current->graph() != &scope) {
    current = current->graph().parentNode();
    if (!current || !current->is("If"))
      return false;
  }
  return true;
}

/// The node that is `reader` or contains it, if it may run after `node`; otherwise null. Only one
/// branch of an If runs.
const Node* runningAfter(const Node& reader, const Node& node) {
  for (const Node* current = &node; current; current = current->graph().parentNode()) {
    const Node* other = ancestorIn(reader, current->graph());
    if (!other)
      continue;
    bool isAfter = other == current ? !current->is("If") : current->comesBefore(*other);
    return isAfter ? other : nullptr;
  }
  return &reader;
}

class Verifier {
public:
  llvm::Error run(const Graph& graph);

private:
  void seeEnclosing(const Graph& graph);
  void reserve(const Graph& graph);
  llvm::Error declare(const Value& value, const Graph& graph);
  llvm::Error verifyGraph(const Graph& graph);
  llvm::Error verifyNode(const Node& node);
  llvm::Error verifyOperands(const Node& node);
  llvm::Error verifyOutputs(const Graph& graph);
  llvm::Error verifyAlias(const Node& node, const Alias& alias);
  llvm::Error verifyOverwritten(const Node& node, unsigned operand, const Value& shared);

  llvm::DenseSet<const Value*> visible;
  /// Uses in the lists of the values seen so far, without those found at their readers.
  llvm::DenseMap<const Use*, const Value*> unclaimed;
  llvm::DenseSet<const Graph*> verified;
};

llvm::Error Verifier::run(const Graph& graph) {
  seeEnclosing(graph);
  if (llvm::Error error = verifyGraph(graph))
    return error;
  if (!unclaimed.empty())
    return invalid("has a reader that is not in the graph")
        .value(unclaimed.begin()->second->name());
  return llvm::Error::success();
}

void Verifier::seeEnclosing(const Graph& graph) {
  for (const Node* holder = graph.parentNode(); holder; holder = holder->graph().parentNode()) {
    const Graph& scope = holder->graph();
    for (const auto& input : scope.inputs())
      visible.insert(input.get());
    for (const auto& initializer : scope.initializers())
      visible.insert(initializer.get());
    for (const Node& node : scope.nodes()) {
      if (&node == holder)
        break;
      for (const Value& result : node.results())
        visible.insert(&result);
    }
  }
}

/// Growing a table entry by entry would cost more than the checks.
void Verifier::reserve(const Graph& graph) {
  visible.reserve(static_cast<unsigned>(visible.size() + graph.valueCount()));
  unclaimed.reserve(static_cast<unsigned>(unclaimed.size() + graph.valueCount()));
}

/// Registers a value whose definition verification has reached.
llvm::Error Verifier::declare(const Value& value, const Graph& graph) {
  visible.insert(&value);
  if (&value.graph() != &graph)
    return invalid("belongs to another graph").value(value.name());
  if (value.isAbsent()) {
    if (value.hasUses() || value.isGraphOutput())
      return invalid("a value without a name is read");
    return llvm::Error::success();
  }
  for (const Node* holder = graph.parentNode(); holder; holder = holder->graph().parentNode()) {
    const Value* outer = holder->graph().findValue(value.name());
    if (outer && visible.count(outer))
      return invalid("hides a value of an enclosing graph").value(value.name());
  }
  for (const Use& use : value.uses()) {
    if (use.value() != &value)
      return invalid("the list of its readers holds a reader of another value").value(value.name());
    unclaimed.try_emplace(&use, &value);
  }
  return llvm::Error::success();
}

llvm::Error Verifier::verifyGraph(const Graph& graph) {
  verified.insert(&graph);
  reserve(graph);
  for (const auto& input : graph.inputs())
    if (llvm::Error error = declare(*input, graph))
      return error;
  for (const auto& initializer : graph.initializers())
    if (llvm::Error error = declare(*initializer, graph))
      return error;
  for (const Node& node : graph.nodes()) {
    if (llvm::Error error = verifyNode(node)) {
      Diagnostic location = nodeError(node, invalid("")).take();
      return withNode(std::move(error), location.node, location.op);
    }
  }
  if (llvm::Error error = verifyOutputs(graph))
    return error;

  // Code outside of the graph cannot read its values.
  if (!graph.parentNode())
    return llvm::Error::success();
  for (const auto& input : graph.inputs())
    visible.erase(input.get());
  for (const auto& initializer : graph.initializers())
    visible.erase(initializer.get());
  for (const Node& node : graph.nodes())
    for (const Value& result : node.results())
      visible.erase(&result);
  return llvm::Error::success();
}

llvm::Error Verifier::verifyNode(const Node& node) {
  if (llvm::Error error = verifyOperands(node))
    return error;
  for (const NamedAttribute& attribute : node.attributes())
    for (const std::unique_ptr<Graph>& nested : attribute.value.graphs()) {
      if (nested->parentNode() != &node)
        return invalid("attribute '{}' holds a graph of another node", attribute.name);
      if (llvm::Error error = verifyGraph(*nested))
        return error;
    }
  if (const OpDef* definition = node.definition()) {
    if (llvm::Error error = checkDefinition(node))
      return error;
    for (const Alias& alias : definition->aliases)
      if (alias.kind == Alias::Kind::InPlace)
        if (llvm::Error error = verifyAlias(node, alias))
          return error;
  }
  for (const Value& result : node.results()) {
    if (result.producer() != &node)
      return invalid("a result names another node as its producer").value(result.name());
    if (llvm::Error error = declare(result, node.graph()))
      return error;
  }
  return llvm::Error::success();
}

llvm::Error Verifier::verifyOperands(const Node& node) {
  unsigned index = 0;
  for (const Use& use : node.operands()) {
    if (&use.user() != &node || use.operandIndex() != index++)
      return invalid("an operand slot belongs to another node");
    const Value* value = use.value();
    if (!value)
      continue;
    if (!visible.count(value))
      return invalid("reads a value that is not defined before it").value(value->name());
    // Values of enclosing graphs have readers that are not visited.
    if (verified.count(&value->graph()) && !unclaimed.erase(&use))
      return invalid("is missing from the list of the value's readers").value(value->name());
  }
  return llvm::Error::success();
}

llvm::Error Verifier::verifyOutputs(const Graph& graph) {
  for (const Value* output : graph.outputs()) {
    if (!visible.count(output))
      return invalid("a graph output that is not defined in the graph").value(output->name());
    if (!output->isGraphOutput())
      return invalid("fills an output slot without knowing it").value(output->name());
  }
  return llvm::Error::success();
}

/// All values that may share storage with `value` through views, including `value`.
llvm::SetVector<const Value*> storageOf(const Value& value) {
  llvm::SetVector<const Value*> shared;
  shared.insert(&value);
  for (size_t i = 0; i < shared.size(); ++i) {
    const Value& current = *shared[i];
    if (const Node* producer = current.producer(); producer && producer->definition())
      for (const Alias& alias : producer->definition()->aliases)
        if (alias.kind == Alias::Kind::View && alias.result == current.resultIndex())
          if (const Value* viewed = producer->operand(alias.operand))
            shared.insert(viewed);
    for (const Use& use : current.uses())
      if (const OpDef* definition = use.user().definition())
        for (const Alias& alias : definition->aliases)
          if (alias.kind == Alias::Kind::View && alias.operand == use.operandIndex() &&
              alias.result < use.user().results().size())
            shared.insert(&use.user().result(alias.result));
  }
  return shared;
}

llvm::Error Verifier::verifyAlias(const Node& node, const Alias& alias) {
  const Value* operand = node.operand(alias.operand);
  if (!operand)
    return llvm::Error::success();
  for (const Value* shared : storageOf(*operand))
    if (llvm::Error error = verifyOverwritten(node, alias.operand, *shared))
      return error;
  return llvm::Error::success();
}

llvm::Error Verifier::verifyOverwritten(const Node& node, unsigned operand, const Value& shared) {
  const Node* holder = ancestorIn(node, shared.graph());
  const Node* viewer = shared.producer();
  // A view in a subgraph that ran before, or that does not run when this node does.
  if (!holder && viewer && !runningAfter(*viewer, node) && !shared.isGraphOutput())
    return llvm::Error::success();
  if (!holder || !runsOnceIn(node, shared.graph()))
    return invalid("overwrites a value of another graph").value(shared.name());
  if (shared.isInitializer() || shared.constant())
    return invalid("overwrites a constant").value(shared.name());
  if (shared.isGraphOutput())
    return invalid("overwrites a graph output").value(shared.name());
  for (const Use& use : shared.uses()) {
    const Node& reader = use.user();
    if (&reader == &node && use.operandIndex() == operand)
      continue;
    if (ancestorIn(reader, node.graph()) == &node)
      return invalid("overwrites a value that it also reads otherwise").value(shared.name());
    if (const Node* later = runningAfter(reader, node))
      return invalid("overwrites a value that {} reads afterwards", later->describe())
          .value(shared.name());
  }
  return llvm::Error::success();
}

} // namespace

llvm::Error verify(const Graph& graph) { return Verifier().run(graph); }

llvm::Error verify(const Model& model) {
  if (llvm::Error error = withFile(verify(model.graph()), model.path))
    return error;
  for (const std::unique_ptr<Function>& function : model.functions) {
    llvm::Error error = verify(function->body);
    if (!error)
      continue;
    Diagnostic diagnostic = takeDiagnostic(std::move(error));
    diagnostic.file = model.path;
    diagnostic.notes.push_back(formatted("in function '{}'", function->name));
    return makeError(std::move(diagnostic));
  }
  return llvm::Error::success();
}

} // namespace kvopt::ir
