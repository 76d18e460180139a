// Replaces calls of model-local functions by the functions' bodies.
//
//   before   y = local.Scores <alpha = 0.25> (q, kt)
//            Scores (a, b) { y = Mul(MatMul(a, b), alpha) }
//
//   after    y = Mul(MatMul(q, kt), 0.25)
//
// Exporters wrap pieces of attention in functions, and recognition reads operators. Calls of
// operators that kvopt knows remain, because their definitions describe them. Calls that cannot be
// inlined remain as well (functions nested too deeply, a body for another opset in which an
// operator has another meaning, a subgraph as an attribute); attention inside them is missed as in
// any unknown operator.
#include "ir/op.h"
#include "ir/verify/model_gate.h"
#include "passes/pass.h"
#include "support/format.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

#include <set>

namespace kvopt::transforms {
using namespace ir;
using namespace passes;
using namespace pattern;

namespace {

constexpr const char* inlineFunctionsName = "inline-functions";
constexpr unsigned maxDepth = 16;

using ValueMap = llvm::DenseMap<const Value*, Value*>;

/// The attribute's value in the body of a call: the value at the call, or the function's default;
/// null if it is left out.
const Attribute* valueAtCall(const Attribute& attribute, const Node& call,
                             const Function& function) {
  if (!attribute.isReference())
    return &attribute;
  if (const Attribute* given = call.attribute(attribute.referencedName()))
    return given;
  for (const NamedAttribute& otherwise : function.defaults)
    if (otherwise.name == attribute.referencedName())
      return &otherwise.value;
  return nullptr;
}

class Inliner {
public:
  explicit Inliner(Model& changed) : model(changed) {
    for (const std::unique_ptr<Function>& function : model.functions)
      byName[OpName(function->domain, function->name)].push_back(function.get());
  }

  /// Returns the number of calls that were replaced.
  unsigned run() {
    if (model.functions.empty())
      return 0;
    expandCalls(model.graph(), 0);
    if (replaced != 0)
      dropFunctions();
    return replaced;
  }

private:
  const Function* functionOf(const Node& node) const {
    if (node.definition())
      return nullptr;
    auto found = byName.find(node.op());
    if (found == byName.end())
      return nullptr;
    for (const Function* function : found->second)
      if (function->overload == node.overload())
        return function;
    return nullptr;
  }

  void expandCalls(Graph& graph, unsigned nesting) {
    llvm::SmallVector<Node*, 16> calls;
    for (Node& node : graph.nodes())
      if (functionOf(node))
        calls.push_back(&node);
    for (Node* call : calls)
      expand(*call, 1);
    // A function may call itself in a subgraph of its body.
    if (nesting < maxDepth && graph.hasSubgraphs())
      for (Node& node : graph.nodes())
        for (Graph* nested : node.subgraphs())
          expandCalls(*nested, nesting + 1);
  }

  /// Whether each operator of the body has the same meaning in the model's opset as in the
  /// function's.
  bool hasSameOpsets(const Graph& body, const Function& function) const {
    const OpRegistry& ops = model.graph().context().ops();
    return llvm::all_of(body.nodes(), [&](const Node& node) {
      const llvm::StringRef domain = node.op().domain();
      const int64_t there = function.body.opsetVersion(domain);
      const int64_t here = model.graph().opsetVersion(domain);
      const bool isSame =
          here == 0 || here == there ||
          (ops.find(node.op(), here) && ops.find(node.op(), here) == ops.find(node.op(), there));
      return isSame && llvm::all_of(node.subgraphs(), [&](const Graph* nested) {
               return hasSameOpsets(*nested, function);
             });
    });
  }

  static bool hasSparseConstant(const Graph& body) {
    bool found = false;
    forEachGraph(const_cast<Graph&>(body), [&](Graph& graph) {
      found |= llvm::any_of(graph.initializers(), [](const std::unique_ptr<Value>& constant) {
        return !constant->initializer();
      });
    });
    return found;
  }

  bool canExpand(const Node& call, const Function& function, unsigned depth) const {
    const Graph& body = function.body;
    if (depth > maxDepth || nodes >= maxExpandedNodes ||
        call.operands().size() > body.inputs().size() ||
        call.results().size() > body.outputs().size() || !hasSameOpsets(body, function) ||
        hasSparseConstant(body))
      return false;
    for (const NamedAttribute& attribute : call.attributes())
      if (attribute.value.isReference() || !attribute.value.graphs().empty())
        return false;
    // The body, or a subgraph of it, may return an operand that the call leaves out.
    for (unsigned formal = 0; formal < body.inputs().size(); ++formal)
      if (body.inputs()[formal]->isGraphOutput() && !call.operand(formal))
        return false;
    return fitsDefinitions(body, call, function);
  }

  /// Whether the nodes of the body satisfy their operators' definitions, although the call leaves
  /// operands out.
  static bool fitsDefinitions(const Graph& graph, const Node& call, const Function& function) {
    return llvm::all_of(graph.nodes(), [&](const Node& node) {
      const OpDef* definition = node.definition();
      for (size_t i = 0; definition && !definition->operands.empty() && i < node.operands().size();
           ++i) {
        const Formal& formal = definition->operands[std::min(i, definition->operands.size() - 1)];
        if (formal.arity != Formal::Arity::Optional &&
            isLeftOut(node.operands()[i].value(), call, function))
          return false;
      }
      for (size_t i = 0; definition && i < definition->attributes.size(); ++i) {
        const FormalAttribute& formal = definition->attributes[i];
        const Attribute* written = node.attribute(formal.name);
        if (!written || !written->isReference())
          continue;
        const Attribute* value = valueAtCall(*written, call, function);
        if (value ? formal.kind != AttributeKind::Undefined && value->kind() != formal.kind
                  : formal.required)
          return false;
      }
      return llvm::all_of(node.subgraphs(), [&](const Graph* nested) {
        return fitsDefinitions(*nested, call, function);
      });
    });
  }

  /// Whether the value is an operand of the function that the call leaves out.
  static bool isLeftOut(const Value* value, const Node& call, const Function& function) {
    if (!value || !value->isGraphInput() || &value->graph() != &function.body)
      return false;
    for (unsigned formal = 0; formal < function.body.inputs().size(); ++formal)
      if (function.body.inputs()[formal].get() == value)
        return !call.operand(formal);
    return false;
  }

  void expand(Node& call, unsigned depth) {
    const Function* function = functionOf(call);
    if (!function || !canExpand(call, *function, depth))
      return;
    // Operators of other domains get their definitions when their nodes are created.
    for (const auto& [domain, version] : function->opsets)
      if (model.graph().opsetVersion(domain) == 0)
        model.opsets[domain] = version;
    Graph& graph = call.graph();
    ValueMap values;
    llvm::ArrayRef<std::unique_ptr<Value>> formals = function->body.inputs();
    for (unsigned i = 0; i < formals.size(); ++i)
      values[formals[i].get()] = call.operand(i);
    llvm::SmallVector<Node*, 16> made;
    for (const Node& node : function->body.nodes())
      made.push_back(&copyNode(node, graph, &call, values, call, *function));
    llvm::SmallVector<std::pair<Value*, std::string>, 2> names;
    for (unsigned i = 0; i < call.results().size(); ++i) {
      Value& result = call.result(i);
      if (result.isUnused())
        continue;
      Value& inlined = *values.lookup(function->body.outputs()[i]);
      // The declared type of the call's result applies to the value that replaces it.
      if (inlined.producer() && !inlined.type().hasRank())
        inlined.setType(result.type());
      if (llvm::is_contained(made, inlined.producer()) && !result.isGraphOutput())
        names.emplace_back(&inlined, result.name().str());
      result.replaceAllUsesWith(inlined);
    }
    graph.erase(call);
    for (const auto& [value, name] : names)
      if (!value->isGraphOutput() && !graph.findValue(name))
        graph.rename(*value, name);
    ++replaced;
    for (Node* node : made)
      expand(*node, depth + 1);
  }

  /// Copies the node before `before`, or to the end of the graph if that is null.
  Node& copyNode(const Node& node, Graph& graph, Node* before, ValueMap& values, const Node& call,
                 const Function& function) {
    ++nodes;
    llvm::SmallVector<Value*, 6> operands;
    for (const Use& use : node.operands())
      operands.push_back(values.lookup(use.value()));
    llvm::SmallVector<llvm::StringRef, 3> absent(node.results().size());
    Node& copy = graph.create(node.op(), operands, absent, before);
    for (unsigned i = 0; i < node.results().size(); ++i) {
      values[&node.result(i)] = &copy.result(i);
      if (!node.result(i).isAbsent())
        graph.rename(copy.result(i), graph.freshName(node.result(i).name()));
    }
    if (!node.name().empty())
      copy.setName(call.name().empty() ? node.name().str()
                                       : formatted("{}/{}", call.name(), node.name()));
    copy.setOverload(node.overload().str());
    for (const NamedAttribute& attribute : node.attributes()) {
      if (!attribute.value.graphs().empty())
        copyGraphs(attribute, copy, values, call, function);
      else if (const Attribute* value = valueAtCall(attribute.value, call, function))
        copy.setAttribute(attribute.name, value->clone());
    }
    return copy;
  }

  void copyGraphs(const NamedAttribute& attribute, Node& holder, ValueMap& values, const Node& call,
                  const Function& function) {
    std::vector<std::unique_ptr<Graph>> graphs;
    llvm::SmallVector<Graph*, 2> copies;
    for (size_t i = 0; i < attribute.value.graphs().size(); ++i) {
      graphs.push_back(
          std::make_unique<Graph>(holder.graph().context(), holder.graph().opsets(), &holder));
      copies.push_back(graphs.back().get());
    }
    // Set before they are filled: the names of enclosing graphs are found through the node.
    const bool isList = attribute.value.kind() == AttributeKind::Graphs;
    holder.setAttribute(attribute.name, Attribute::ofGraphs(std::move(graphs), isList));
    for (size_t i = 0; i < copies.size(); ++i) {
      const Graph& source = *attribute.value.graphs()[i];
      Graph& copy = *copies[i];
      copy.setName(source.name().str());
      for (const std::unique_ptr<Value>& input : source.inputs())
        values[input.get()] = &copy.addInput(copy.freshName(input->name()), input->type());
      for (const std::unique_ptr<Value>& constant : source.initializers())
        if (TensorRef data = constant->constantRef())
          values[constant.get()] = &copy.addConstant(constant->name(), std::move(data));
      for (const Node& node : source.nodes())
        copyNode(node, copy, nullptr, values, call, function);
      for (const Value* output : source.outputs())
        copy.addOutput(*values.lookup(output));
    }
  }

  /// Removes functions that are no longer called, and imports of their domains.
  void dropFunctions() {
    llvm::DenseSet<OpName> used;
    llvm::DenseSet<const Function*> called;
    llvm::SmallVector<Graph*, 8> unseen{&model.graph()};
    auto collect = [&](Graph& graph) {
      for (const Node& node : graph.nodes()) {
        used.insert(node.op());
        Function* function = model.findFunction(node);
        if (function && called.insert(function).second)
          unseen.push_back(&function->body);
      }
    };
    while (!unseen.empty())
      forEachGraph(*unseen.pop_back_val(), collect);
    std::set<std::string> domains;
    llvm::erase_if(model.functions, [&](const std::unique_ptr<Function>& function) {
      const bool isDropped = !called.count(function.get());
      if (isDropped)
        domains.insert(function->domain);
      return isDropped;
    });
    for (const OpName& op : used)
      domains.erase(op.domain().str());
    for (const std::string& domain : domains)
      model.opsets.erase(domain);
  }

  Model& model;
  llvm::DenseMap<OpName, llvm::SmallVector<const Function*, 1>> byName;
  size_t nodes = 0;
  unsigned replaced = 0;
};

class InlineFunctions final : public Pass {
public:
  llvm::Error run(Model& model, PassContext& context) override {
    context.count(inlineFunctionsName, "calls", Inliner(model).run());
    return llvm::Error::success();
  }
};

} // namespace

void register_inline_functions(PassRegistry& registry) {
  registry.add({inlineFunctionsName,
                "Replaces calls of model-local functions by their bodies.",
                {},
                [](const PassOptions&) {
                  return llvm::Expected<std::unique_ptr<Pass>>(std::make_unique<InlineFunctions>());
                }});
}

} // namespace kvopt::transforms
