// Rewriter: creation, replacement with the cycle check, node order.
#include "passes/pattern/rewriter.h"

#include "ir/shapes/shape_inference.h"
#include "support/format.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallPtrSet.h"

#include <queue>

namespace kvopt::pattern {
using namespace ir;

unsigned Journal::applications(llvm::StringRef rule) const {
  return static_cast<unsigned>(
      llvm::count_if(entries, [&](const JournalEntry& entry) { return entry.rule == rule; }));
}

llvm::StringMap<std::string> raisedRoots(const Journal& journal,
                                         llvm::function_ref<bool(llvm::StringRef rule)> isRaising) {
  llvm::StringMap<std::string> roots;
  for (const JournalEntry& entry : journal.entries) {
    std::string root = roots.lookup(entry.root);
    if (root.empty() && isRaising(entry.rule))
      root = entry.root;
    if (root.empty())
      continue;
    for (llvm::StringRef created : entry.created)
      roots[created.split(' ').second] = root;
  }
  return roots;
}

Rewriter::Rewriter(Graph& graph, std::string ruleName, Journal& journalToFill,
                   llvm::StringRef rootName)
    : edited(graph), journal(journalToFill) {
  entry.rule = std::move(ruleName);
  entry.root = rootName.str();
}

Rewriter::~Rewriter() {
  if (replacedAny)
    journal.entries.push_back(std::move(entry));
}

Node& Rewriter::create(OpName op, llvm::ArrayRef<Value*> operands,
                       std::vector<NamedAttribute> attributes, unsigned resultCount,
                       llvm::StringRef hint) {
  Node* last = nullptr;
  for (Value* operand : operands) {
    Node* producer = operand ? operand->producer() : nullptr;
    if (producer && &producer->graph() == &edited && (!last || last->comesBefore(*producer)))
      last = producer;
  }
  Node* before = last ? edited.nodeAfter(*last) : edited.firstNode();
  Node& node = edited.createFresh(op, operands, resultCount, before, hint);
  for (NamedAttribute& attribute : attributes)
    node.setAttribute(attribute.name, std::move(attribute.value));
  node.setName(node.result().name().str());
  // The verifier that runs after the pass catches operands that contradict the definition.
  llvm::consumeError(inferNode(node));
  entry.created.push_back(formatted("{} {}", op.str(), node.name().str()));
  createdNodes.push_back(&node);
  touchedNodes.push_back(&node);
  return node;
}

Node& Rewriter::createLike(const Node& like, llvm::ArrayRef<Value*> operands,
                           llvm::StringRef hint) {
  return create(like.op(), operands, cloneAttributes(like), 1, hint);
}

Value& Rewriter::constant(llvm::StringRef hint, TensorRef data) {
  Value& value = edited.addConstant(hint, std::move(data));
  createdConstants.push_back(&value);
  return value;
}

void Rewriter::recordSources(Node& fused, llvm::ArrayRef<Node*> sources) {
  std::string names;
  for (Node* source : sources) {
    if (!names.empty())
      names += ' ';
    names += source->name().empty() && !source->results().empty() ? source->result().name().str()
                                                                  : source->name().str();
  }
  fused.setMetadata({{ruleMetadataKey, entry.rule}, {sourceMetadataKey, names}});
}

namespace {

/// The first producer of the goals in the node list, if one graph computes all goals.
const Node* firstProducer(llvm::ArrayRef<const Value*> goals) {
  const Node* first = nullptr;
  for (const Value* goal : goals) {
    const Node* producer = goal->producer();
    if (!producer || (first && &first->graph() != &producer->graph()))
      return nullptr;
    if (!first || producer->comesBefore(*first))
      first = producer;
  }
  return first;
}

bool encloses(const Graph& outer, const Graph& inner) {
  for (const Node* holder = inner.parentNode(); holder; holder = holder->graph().parentNode())
    if (&holder->graph() == &outer)
      return true;
  return false;
}

/// Whether the node precedes `first`. Then no operand of the node depends on a result of `first` or
/// of a later node, because operands precede their readers.
bool isBefore(const Node& node, const Node& first) {
  return &node.graph() == &first.graph() ? node.comesBefore(first)
                                         : encloses(node.graph(), first.graph());
}

} // namespace

std::vector<const Value*> dependencyPath(const Value& from, llvm::ArrayRef<const Value*> goals) {
  const Node* first = firstProducer(goals);
  const llvm::SmallPtrSet<const Value*, 8> goalSet(goals.begin(), goals.end());
  llvm::DenseMap<const Value*, const Value*> cameFrom;
  llvm::SmallVector<const Value*, 32> pending{&from};
  cameFrom[&from] = nullptr;
  while (!pending.empty()) {
    const Value* value = pending.pop_back_val();
    value->graph().context().noteVisits(1);
    if (goalSet.contains(value)) {
      std::vector<const Value*> path;
      for (const Value* step = value; step; step = cameFrom.lookup(step))
        path.push_back(step);
      std::reverse(path.begin(), path.end());
      return path;
    }
    const Node* producer = value->producer();
    if (!producer || (first && isBefore(*producer, *first)))
      continue;
    auto visit = [&](const Value* operand) {
      if (operand && cameFrom.try_emplace(operand, value).second)
        pending.push_back(operand);
    };
    for (const Use& use : producer->operands())
      visit(use.value());
    for (const Value* captured : capturedValues(*producer))
      visit(captured);
  }
  return {};
}

namespace {

/// `preferred`, with its unknown parts taken from `other`. Both describe one tensor.
TensorType merged(const TensorType& preferred, const TensorType& other) {
  TensorType type = preferred;
  if (type.elementType() == ElementType::Undefined)
    type.setElementType(other.elementType());
  if (!other.hasRank() || (type.hasRank() && type.rank() != other.rank()))
    return type;
  if (!type.hasRank()) {
    type.setShape(Shape(other.shape().begin(), other.shape().end()));
    return type;
  }
  Shape shape(type.shape().begin(), type.shape().end());
  for (size_t axis = 0; axis < shape.size(); ++axis)
    if (shape[axis].isUnknown())
      shape[axis] = other.shape()[axis];
  type.setShape(std::move(shape));
  return type;
}

void keepType(const Value& before, Value& after) {
  // Facts about a value inside a branch need not hold outside it.
  if (&after.graph() != &before.graph())
    return;
  if (after.isGraphInput() || after.isInitializer() || after.isGraphOutput())
    return;
  after.setType(before.isGraphOutput() ? merged(before.type(), after.type())
                                       : merged(after.type(), before.type()));
}

} // namespace

std::optional<MatchFailure> Rewriter::replace(llvm::ArrayRef<Replacement> replacements) {
  llvm::SmallVector<const Value*, 4> outgoing;
  for (const Replacement& replacement : replacements) {
    outgoing.push_back(replacement.before);
    if (&replacement.before->graph() != &edited)
      return MatchFailure{ReasonCode::InSubgraph, replacement.before->name().str(),
                          "a value of the graph that is rewritten",
                          "one of an enclosing graph, which others may read", ""};
  }
  // Operands precede their readers, so a value before all replaced ones depends on none of them.
  const Node* firstOutgoing = firstProducer(outgoing);
  auto standsBefore = [&](const Value& value) {
    const Node* producer = value.producer();
    return producer && &producer->graph() == &edited && firstOutgoing &&
           producer->comesBefore(*firstOutgoing);
  };
  for (const Replacement& replacement : replacements) {
    if (standsBefore(*replacement.after))
      continue;
    std::vector<const Value*> path = dependencyPath(*replacement.after, outgoing);
    if (path.empty())
      continue;
    std::string text;
    for (const Value* value : path) {
      if (!text.empty())
        text += " <- ";
      text += value->name().str();
    }
    return MatchFailure{ReasonCode::WouldCreateCycle, path.back()->name().str(),
                        "operands of the new node that do not depend on what it replaces", text,
                        "compute the operand from the inputs instead"};
  }

  replacedAny = true;
  Node* firstReader = nullptr; // first of the readers that precede their new operands
  Node* lastRead = nullptr;
  for (const Replacement& replacement : replacements) {
    entry.replaced.push_back(replacement.before->name().str());
    Node* producer = replacement.after->producer();
    if (producer && &producer->graph() != &edited)
      producer = nullptr; // a value of an enclosing graph, defined before this graph begins
    for (Use& use : replacement.before->uses()) {
      Node* reader = &use.user();
      touchedNodes.push_back(reader);
      // The position of a reader in a subgraph is that of the node that holds the subgraph.
      while (&reader->graph() != &edited && reader->graph().parentNode())
        reader = reader->graph().parentNode();
      if (!producer || &reader->graph() != &edited || !reader->comesBefore(*producer))
        continue;
      if (!firstReader || reader->comesBefore(*firstReader))
        firstReader = reader;
      if (!lastRead || lastRead->comesBefore(*producer))
        lastRead = producer;
    }
    if (replacement.before->producer())
      outdatedNodes.push_back(replacement.before->producer());
    keepType(*replacement.before, *replacement.after);
    replacement.before->replaceAllUsesWith(*replacement.after);
  }
  if (firstReader)
    restoreOrder(*firstReader, *lastRead);
  return std::nullopt;
}

void Rewriter::discard() {
  for (Node* node : llvm::reverse(createdNodes))
    if (node->isUnused()) {
      llvm::erase_if(touchedNodes, [&](Node* touched) { return touched == node; });
      edited.erase(*node);
    }
  createdNodes.clear();
  for (Value* value : createdConstants)
    if (value->isUnused())
      edited.removeInitializer(*value);
  createdConstants.clear();
}

void restoreOrder(Graph& graph) {
  if (!graph.nodes().empty())
    restoreOrder(graph.nodes().front(), graph.nodes().back());
}

void restoreOrder(Node& first, Node& last) {
  // Kahn's algorithm. Ready nodes keep their previous relative order.
  Graph& graph = first.graph();
  Node* const after = graph.nodeAfter(last);
  std::vector<Node*> nodes;
  llvm::DenseMap<const Node*, unsigned> position;
  for (Node* node = &first; node != after; node = graph.nodeAfter(*node)) {
    position[node] = static_cast<unsigned>(nodes.size());
    nodes.push_back(node);
  }
  graph.context().noteVisits(nodes.size());
  std::vector<unsigned> waiting(nodes.size(), 0);
  std::vector<llvm::SmallVector<unsigned, 4>> readers(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    auto dependOn = [&](const Value* value) {
      const Node* producer = value ? value->producer() : nullptr;
      auto found = producer ? position.find(producer) : position.end();
      if (found == position.end())
        return;
      readers[found->second].push_back(static_cast<unsigned>(i));
      ++waiting[i];
    };
    for (const Use& use : nodes[i]->operands())
      dependOn(use.value());
    for (const Value* captured : capturedValues(*nodes[i]))
      dependOn(captured);
  }
  std::priority_queue<unsigned, std::vector<unsigned>, std::greater<>> ready;
  for (unsigned i = 0; i < nodes.size(); ++i)
    if (waiting[i] == 0)
      ready.push(i);
  std::vector<Node*> ordered;
  ordered.reserve(nodes.size());
  while (!ready.empty()) {
    unsigned index = ready.top();
    ready.pop();
    ordered.push_back(nodes[index]);
    for (unsigned reader : readers[index])
      if (--waiting[reader] == 0)
        ready.push(reader);
  }
  assert(ordered.size() == nodes.size() && "the graph has a cycle");
  graph.arrange(ordered, after);
}

} // namespace kvopt::pattern
