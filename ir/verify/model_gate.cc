// Checks of models after reading.
#include "ir/verify/model_gate.h"

#include "ir/op.h"
#include "ir/verify/node_check.h"
#include "support/diagnostic.h"

#include "llvm/ADT/MapVector.h"

#include <algorithm>
#include <limits>

namespace kvopt::ir {
namespace {

/// Address space of a process, 2^47 bytes, on every processor that kvopt supports.
constexpr int64_t maxBytes = int64_t{1} << 47;

llvm::Error checkOpsets(const OpsetImports& opsets) {
  for (const auto& [domain, version] : opsets)
    if (version < 1)
      return invalid("version {} of operator set '{}' does not exist", version,
                     domain.empty() ? "ai.onnx" : domain);
  const auto shortName = opsets.find("");
  const auto longName = opsets.find("ai.onnx");
  if (shortName != opsets.end() && longName != opsets.end() &&
      shortName->second != longName->second)
    return invalid("operator set 'ai.onnx' is imported twice, as version {} and {}",
                   shortName->second, longName->second);
  return llvm::Error::success();
}

/// Extents that are symbolic or 0 count as 1.
llvm::Error checkExtentsOf(const Value& value) {
  const TensorType& type = value.type();
  if (!type.hasRank())
    return llvm::Error::success();
  int64_t bytes = static_cast<int64_t>(byteWidth(type.elementType()).value_or(1));
  for (const Dim& extent : type.shape()) {
    const int64_t factor = std::max<int64_t>(extent.value().value_or(1), 1);
    if (__builtin_mul_overflow(bytes, factor, &bytes) || bytes > maxBytes)
      return invalid("a tensor of type {} does not fit into memory", type.str())
          .value(value.name());
  }
  return llvm::Error::success();
}

/// Checks one graph of a model or function, and the graphs within it.
class GraphGate {
public:
  explicit GraphGate(bool isOfFunction) : inFunction(isOfFunction) {}

  // NOLINTNEXTLINE(misc-no-recursion): the readers limit how deep graphs are nested.
  llvm::Error check(const Graph& graph) {
    const int64_t version = graph.opsetVersion();
    for (const std::unique_ptr<Value>& input : graph.inputs())
      if (llvm::Error error = checkExtentsOf(*input))
        return error;
    for (const Node& node : graph.nodes()) {
      if (node.op().isOnnx() && version == 0)
        return at(node, invalid("the operator is ONNX's own, but no version of that operator set "
                                "is imported"));
      if (node.op().isOnnx() && version > newestOnnxOpset)
        return at(node,
                  unsupported("operator {} is of opset {}, and the newest that kvopt knows is {}",
                              node.op().type(), version, newestOnnxOpset));
      if (llvm::Error error = checkNode(node))
        return at(node, std::move(error));
    }
    return llvm::Error::success();
  }

private:
  static llvm::Error at(const Node& node, llvm::Error error) {
    llvm::StringRef name = node.name();
    if (name.empty() && !node.results().empty())
      name = node.result().name();
    return withNode(std::move(error), name, node.op().str());
  }

  llvm::Error checkNode(const Node& node) {
    if (llvm::Error error = checkDefinition(node))
      return error;
    for (const Value& result : node.results())
      if (llvm::Error error = checkExtentsOf(result))
        return error;
    bool hasBodies = false;
    for (const NamedAttribute& attribute : node.attributes()) {
      if (attribute.value.isReference() && !inFunction)
        return invalid("attribute '{}' refers to a function's attribute outside of a function",
                       attribute.name);
      for (const std::unique_ptr<Graph>& nested : attribute.value.graphs()) {
        hasBodies = true;
        if (llvm::Error error = check(*nested))
          return error;
      }
    }
    return hasBodies ? checkBodies(node) : llvm::Error::success();
  }

  bool inFunction;
};

uint64_t saturatedSum(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

uint64_t saturatedProduct(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

/// Counts the nodes to which functions expand, and finds functions that call themselves. Every body
/// is read once, however often the function is called.
class CallGraph {
public:
  explicit CallGraph(const Model& model) {
    for (const std::unique_ptr<Function>& function : model.functions)
      known[OpName(function->domain, function->name)].push_back(function.get());
  }

  llvm::Error check(const Model& model, uint64_t maxNodes) {
    for (const std::unique_ptr<Function>& function : model.functions)
      if (llvm::Error error = visit(*function))
        return error;
    const Calls calls = callsOf(model.graph());
    const uint64_t nodes = expandedNodes(calls);
    if (nodes <= maxNodes || calls.functions.empty())
      return llvm::Error::success();
    const auto largest =
        std::max_element(calls.functions.begin(), calls.functions.end(),
                         [this](const auto& a, const auto& b) { return sizeOf(a) < sizeOf(b); });
    return unsupported("the model has {} nodes once its functions are expanded; calls of "
                       "'{}' give {} of them; the limit is {}",
                       textOf(nodes), largest->first->name, textOf(sizeOf(*largest)), maxNodes)
        .hint("--max-nodes raises the limit");
  }

private:
  enum class State { New, Open, Done };
  /// Calls in one graph and the graphs within it, with their numbers.
  struct Calls {
    uint64_t nodes = 0;
    llvm::MapVector<const Function*, uint64_t> functions;
  };
  struct Frame {
    const Function* function;
    Calls calls;
    size_t visited = 0;
  };

  static std::string textOf(uint64_t nodes) {
    return nodes == UINT64_MAX ? "more than 2^64" : std::to_string(nodes);
  }

  uint64_t sizeOf(const std::pair<const Function*, uint64_t>& calls) const {
    return saturatedProduct(calls.second, sizes.lookup(calls.first));
  }

  uint64_t expandedNodes(const Calls& calls) const {
    uint64_t nodes = calls.nodes;
    for (const auto& called : calls.functions)
      nodes = saturatedSum(nodes, sizeOf(called));
    return nodes;
  }

  Calls callsOf(const Graph& graph) const {
    Calls calls;
    forEachGraph(const_cast<Graph&>(graph), [&](Graph& each) {
      for (const Node& node : each.nodes()) {
        ++calls.nodes;
        if (const Function* callee = calleeOf(node))
          ++calls.functions[callee];
      }
    });
    return calls;
  }

  /// Calls of an operator that kvopt knows are not expanded.
  const Function* calleeOf(const Node& node) const {
    if (node.definition())
      return nullptr;
    auto found = known.find(node.op());
    if (found == known.end())
      return nullptr;
    for (const Function* function : found->second)
      if (function->overload == node.overload())
        return function;
    return found->second.front();
  }

  /// Depth first, without recursion, because files may nest calls to any depth.
  llvm::Error visit(const Function& first) {
    if (states.lookup(&first) == State::Done)
      return llvm::Error::success();
    std::vector<Frame> stack;
    stack.push_back(open(first));
    while (!stack.empty()) {
      Frame& frame = stack.back();
      if (frame.visited == frame.calls.functions.size()) {
        states[frame.function] = State::Done;
        sizes[frame.function] = expandedNodes(frame.calls);
        stack.pop_back();
        continue;
      }
      const Function& callee = *frame.calls.functions.begin()[frame.visited++].first;
      const State state = states.lookup(&callee);
      if (state == State::Open)
        return invalid("function '{}' of domain '{}' calls itself", callee.name, callee.domain);
      if (state == State::New)
        stack.push_back(open(callee));
    }
    return llvm::Error::success();
  }

  Frame open(const Function& function) {
    states[&function] = State::Open;
    return {&function, callsOf(function.body)};
  }

  llvm::DenseMap<OpName, llvm::SmallVector<const Function*, 1>> known;
  llvm::DenseMap<const Function*, State> states;
  llvm::DenseMap<const Function*, uint64_t> sizes; ///< number of nodes in the expanded body
};

llvm::Error checkFunction(const Function& function) {
  if (llvm::Error error = checkOpsets(function.opsets))
    return error;
  return GraphGate(/*isOfFunction=*/true).check(function.body);
}

/// Rule for functions of that name; null if every function is valid.
BodyRule bodyRuleOf(const Model& model, const Function& function) {
  const OpDef* definition = model.graph().context().ops().find(
      OpName(function.domain, function.name), std::numeric_limits<int64_t>::max());
  return definition ? definition->checkBody : nullptr;
}

/// Fails for a function that gives an operator of ONNX another meaning: an engine runs the
/// function, and kvopt would run the operator.
llvm::Error checkRedefinition(const Model& model, const Function& function) {
  const OpName name(function.domain, function.name);
  if (!name.isOnnx() ||
      !model.graph().context().ops().find(name, std::numeric_limits<int64_t>::max()))
    return llvm::Error::success();
  return unsupported("function '{}' redefines an operator of ONNX", name.str())
      .hint("give the function a domain of its own");
}

} // namespace

llvm::Error checkFunctionBodies(const Model& model) {
  llvm::DenseMap<OpName, llvm::SmallVector<const Node*, 16>> calls;
  for (const std::unique_ptr<Function>& function : model.functions)
    if (bodyRuleOf(model, *function))
      calls.try_emplace(OpName(function->domain, function->name));
  if (calls.empty())
    return llvm::Error::success();
  const auto collect = [&](Graph& visited) {
    for (const Node& node : visited.nodes())
      if (auto found = calls.find(node.op()); found != calls.end() && node.definition())
        found->second.push_back(&node);
  };
  // Read only: const_cast is needed because nodes return mutable subgraphs.
  forEachGraph(const_cast<Graph&>(model.graph()), collect);
  for (const std::unique_ptr<Function>& function : model.functions)
    forEachGraph(function->body, collect);
  for (const std::unique_ptr<Function>& function : model.functions)
    if (BodyRule rule = bodyRuleOf(model, *function))
      if (llvm::Error error = rule(*function, calls[OpName(function->domain, function->name)]))
        return error;
  return llvm::Error::success();
}

// NOLINTNEXTLINE(misc-no-recursion): the readers limit how deep graphs are nested.
llvm::Error checkExtents(const Graph& graph) {
  for (const std::unique_ptr<Value>& input : graph.inputs())
    if (llvm::Error error = checkExtentsOf(*input))
      return error;
  for (const Node& node : graph.nodes()) {
    for (const Value& result : node.results())
      if (llvm::Error error = checkExtentsOf(result))
        return error;
    for (const NamedAttribute& attribute : node.attributes())
      for (const std::unique_ptr<Graph>& nested : attribute.value.graphs())
        if (llvm::Error error = checkExtents(*nested))
          return error;
  }
  return llvm::Error::success();
}

llvm::Error admit(const Model& model, const ModelLimits& limits) {
  if (llvm::Error error = checkOpsets(model.opsets))
    return error;
  if (llvm::Error error = GraphGate(/*isOfFunction=*/false).check(model.graph()))
    return error;
  for (const std::unique_ptr<Function>& function : model.functions) {
    if (llvm::Error error = checkRedefinition(model, *function))
      return error;
    if (llvm::Error error = checkFunction(*function)) {
      Diagnostic diagnostic = takeDiagnostic(std::move(error));
      diagnostic.notes.push_back(formatted("in function '{}'", function->name));
      return makeError(std::move(diagnostic));
    }
  }
  if (model.functions.empty())
    return llvm::Error::success();
  if (limits.checksBodies)
    if (llvm::Error error = checkFunctionBodies(model))
      return error;
  return CallGraph(model).check(model, limits.maxNodes);
}

} // namespace kvopt::ir
