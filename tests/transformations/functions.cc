// Runs of nodes in local functions, as exporters that build on functions write them.
#include "ir/shapes/shape_inference.h"
#include "support/format.h"
#include "tests/transformations/transformation.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/SmallPtrSet.h"

namespace kvopt {
using namespace ir;

namespace {

constexpr const char* localDomain = "local";

using Run = llvm::SmallVector<Node*, 16>;

bool canMove(const Node& node) {
  // A copy of a subgraph is more than this needs.
  return node.subgraphs().empty() && llvm::none_of(node.attributes(), [](const auto& attribute) {
           return attribute.value.kind() == AttributeKind::SparseTensor;
         });
}

/// What a run of nodes reads from outside, and what is read of it outside.
struct Boundary {
  llvm::SetVector<Value*> operands;
  llvm::SetVector<Value*> results;
};

Boundary boundaryOf(const Run& run) {
  llvm::SmallPtrSet<const Node*, 16> inside(run.begin(), run.end());
  Boundary boundary;
  for (Node* node : run) {
    for (const Use& use : node->operands())
      if (use.value() && !(use.value()->producer() && inside.count(use.value()->producer())))
        boundary.operands.insert(use.value());
    for (Value& result : node->results())
      if (result.isGraphOutput() ||
          llvm::any_of(result.uses(), [&](const Use& use) { return !inside.count(&use.user()); }))
        boundary.results.insert(&result);
  }
  return boundary;
}

/// Moves attributes of a kind that functions can have to the call, every second one at random.
void moveAttributes(TransformedModel& transformed, Function& function, Node& call) {
  for (Node& node : function.body.nodes()) {
    if (node.is("Constant"))
      continue;
    for (unsigned i = 0; i < node.attributes().size(); ++i) {
      const NamedAttribute& attribute = node.attributes()[i];
      const AttributeKind kind = attribute.value.kind();
      if ((kind != AttributeKind::Int && kind != AttributeKind::Ints &&
           kind != AttributeKind::Float) ||
          attribute.value.isReference() || transformed.below(2) == 0)
        continue;
      std::string name = formatted("a{}", function.attributes.size());
      call.setAttribute(name, attribute.value.clone());
      function.attributes.push_back(name);
      const std::string moved = attribute.name;
      node.setAttribute(moved, Attribute::reference(name, kind));
    }
  }
}

/// Replaces the run by the call of a new function of the same nodes.
Node& wrap(TransformedModel& transformed, const Run& run, bool takesAttributes) {
  Model& model = *transformed.model;
  Graph& graph = run.front()->graph();
  const Boundary boundary = boundaryOf(run);
  auto function = std::make_unique<Function>(model.context(), localDomain,
                                             formatted("run_{}", model.functions.size()));
  for (const auto& [domain, version] : model.opsets)
    function->opsets[domain] = version;
  llvm::DenseMap<const Value*, Value*> copies;
  for (size_t i = 0; i < boundary.operands.size(); ++i)
    copies[boundary.operands[i]] = &function->body.addInput(formatted("x{}", i), TensorType());
  size_t count = 0;
  for (const Node* node : run) {
    llvm::SmallVector<Value*, 8> operands;
    for (const Use& use : node->operands())
      operands.push_back(use.value() ? copies.lookup(use.value()) : nullptr);
    std::vector<std::string> names;
    for (const Value& result : node->results())
      names.push_back(result.isAbsent() ? "" : formatted("y{}", count++));
    Node& copy = function->body.create(node->op(), operands,
                                       std::vector<llvm::StringRef>(names.begin(), names.end()));
    for (const NamedAttribute& attribute : node->attributes())
      copy.setAttribute(attribute.name, attribute.value.clone());
    for (unsigned i = 0; i < node->results().size(); ++i)
      copies[&node->result(i)] = &copy.result(i);
  }
  for (Value* result : boundary.results)
    function->body.addOutput(*copies.lookup(result));

  Node& call = graph.createFresh(
      OpName(localDomain, function->name),
      llvm::SmallVector<Value*, 16>(boundary.operands.begin(), boundary.operands.end()),
      static_cast<unsigned>(boundary.results.size()), run.front());
  if (takesAttributes)
    moveAttributes(transformed, *function, call);
  for (size_t i = 0; i < boundary.results.size(); ++i) {
    call.result(static_cast<unsigned>(i)).setType(boundary.results[i]->type());
    boundary.results[i]->replaceAllUsesWith(call.result(static_cast<unsigned>(i)));
  }
  for (Node* node : llvm::reverse(run))
    graph.erase(*node);
  model.functions.push_back(std::move(function));
  return call;
}

/// Cuts the main graph into runs of `shortest` to `longest` nodes, and wraps three of four.
llvm::Expected<bool> wrapRuns(TransformedModel& transformed, size_t shortest, size_t longest,
                              bool takesAttributes) {
  Model& model = *transformed.model;
  // Calls have the types that their results really have: some files declare others.
  if (llvm::Error error = inferShapes(transformed.graph()))
    return error;
  constexpr int64_t firstVersionWithFunctions = 8;
  model.irVersion = std::max(model.irVersion, firstVersionWithFunctions);
  model.opsets.try_emplace(localDomain, 1);
  std::vector<Run> runs(1);
  size_t length = shortest;
  for (Node& node : transformed.graph().nodes()) {
    if (!canMove(node) || runs.back().size() == length) {
      runs.emplace_back();
      length = shortest + transformed.below(longest - shortest + 1);
    }
    if (canMove(node))
      runs.back().push_back(&node);
  }
  bool any = false;
  for (const Run& run : runs) {
    if (run.empty() || transformed.below(4) == 0)
      continue;
    wrap(transformed, run, takesAttributes);
    any = true;
  }
  return any;
}

} // namespace

llvm::Expected<bool> wrapInFunctions(TransformedModel& transformed) {
  return wrapRuns(transformed, 2, 12, false);
}

llvm::Expected<bool> wrapInNestedFunctions(TransformedModel& transformed) {
  // The second round wraps calls of the first.
  auto any = wrapRuns(transformed, 2, 6, true);
  if (!any || !*any)
    return any;
  return wrapRuns(transformed, 2, 4, true);
}

} // namespace kvopt
