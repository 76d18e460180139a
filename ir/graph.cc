// Graphs: creation and erasure of nodes, names, order.
#include "ir/graph.h"

#include "support/format.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallPtrSet.h"

namespace kvopt::ir {

OpName GraphContext::intern(OpName name) {
  return OpName(strings.save(name.domain()), strings.save(name.type()));
}

Graph::Graph(GraphContext& context, const OpsetImports& opsets, Node* parentNode)
    : sharedContext(context), imports(opsets), holder(parentNode) {
  if (holder) {
    ++holder->heldGraphs;
    ++holder->graph().heldGraphs;
  }
}

Graph::~Graph() {
  if (holder) {
    --holder->heldGraphs;
    --holder->graph().heldGraphs;
    // Outputs of a subgraph may be values of enclosing graphs, which outlive it.
    for (Value* output : outputList)
      --output->outputSlots;
  }
  // Erases readers first: a later node, or its subgraph, may read results of an earlier one.
  for (Node& node : llvm::reverse(nodeList))
    for (NamedAttribute& attribute : node.attributeList)
      attribute.value = Attribute();
  while (!nodeList.empty())
    nodeList.pop_back();
  // Names of inputs and initializers; nodes release their own names.
  if (holder)
    for (const auto& named : valuesByName)
      forgetSubgraphName(named.getKey());
}

int64_t Graph::opsetVersion(llvm::StringRef domain) const {
  auto found = imports.find(std::string_view(domain.data(), domain.size()));
  if (found == imports.end() && domain.empty())
    found = imports.find("ai.onnx");
  return found == imports.end() ? 0 : found->second;
}

Value* Graph::findValue(llvm::StringRef name, bool enclosing) const {
  for (const Graph* graph = this; graph;
       graph = enclosing && graph->holder ? &graph->holder->graph() : nullptr)
    if (Value* value = graph->valuesByName.lookup(name))
      return value;
  return nullptr;
}

void Graph::claimName(Value& value, llvm::StringRef name) {
  value.parent = this;
  if (name.empty())
    return;
  auto [entry, inserted] = valuesByName.try_emplace(name, &value);
  assert(inserted && "value names are unique in a graph");
  (void)inserted;
  value.valueName = entry->getKey();
  if (holder)
    ++sharedContext.subgraphNames[name];
}

void Graph::forgetSubgraphName(llvm::StringRef name) {
  auto found = sharedContext.subgraphNames.find(name);
  if (--found->second == 0)
    sharedContext.subgraphNames.erase(found);
}

void Graph::releaseName(Value& value) {
  if (!value.valueName.empty()) {
    if (holder)
      forgetSubgraphName(value.valueName);
    valuesByName.erase(value.valueName);
  }
  value.valueName = {};
}

void Graph::rename(Value& value, llvm::StringRef newName) {
  if (value.name() == newName)
    return;
  std::string owned = newName.str(); // may be the name that is released below
  releaseName(value);
  claimName(value, owned);
  sharedContext.noteEdit();
}

std::string Graph::freshName(llvm::StringRef hint) const {
  std::string base = hint.empty() ? "value" : hint.str();
  auto taken = [&](llvm::StringRef name) {
    return findValue(name, /*enclosing=*/true) || sharedContext.isNameInSubgraph(name);
  };
  // Returns no name twice: a node keeps its name after its result is renamed to an output's name.
  auto [known, isFirst] = freshCounters.try_emplace(base, 0);
  if (isFirst && !taken(base))
    return base;
  unsigned& counter = known->second;
  std::string candidate;
  do
    candidate = formatted("{}_{}", base, ++counter);
  while (taken(candidate));
  return candidate;
}

Value& Graph::addInput(llvm::StringRef name, TensorType type) {
  inputList.emplace_back(new Value());
  Value& value = *inputList.back();
  value.kind = Value::Kind::Input;
  value.tensorType = std::move(type);
  claimName(value, name);
  sharedContext.noteEdit();
  return value;
}

Value& Graph::addInitializer(llvm::StringRef name, TensorRef data) {
  assert(data);
  initializerList.emplace_back(new Value());
  Value& value = *initializerList.back();
  value.kind = Value::Kind::Initializer;
  value.tensorType = TensorType::fixed(data->elementType(), data->shape());
  value.initializerData = std::move(data);
  claimName(value, name);
  sharedContext.noteEdit();
  return value;
}

Value& Graph::addOpaqueInitializer(llvm::StringRef name, TensorType type) {
  initializerList.emplace_back(new Value());
  Value& value = *initializerList.back();
  value.kind = Value::Kind::Initializer;
  value.opaqueInitializer = true;
  value.tensorType = std::move(type);
  claimName(value, name);
  sharedContext.noteEdit();
  return value;
}

void Graph::setInputDefault(Value& input, TensorRef data) {
  assert(input.isGraphInput() && input.parent == this);
  input.initializerData = std::move(data);
  sharedContext.noteEdit();
}

void Graph::addOutput(Value& value) {
  outputList.push_back(&value);
  ++value.outputSlots;
  sharedContext.noteEdit();
}

void Graph::setOutput(unsigned slot, Value& value) {
  assert(slot < outputList.size());
  --outputList[slot]->outputSlots;
  outputList[slot] = &value;
  ++value.outputSlots;
  sharedContext.noteEdit();
}

void Graph::removeOutput(unsigned slot) {
  assert(slot < outputList.size());
  --outputList[slot]->outputSlots;
  outputList.erase(outputList.begin() + slot);
  sharedContext.noteEdit();
}

void Graph::removeInput(Value& input) {
  assert(input.isGraphInput() && input.isUnused());
  releaseName(input);
  llvm::erase_if(inputList, [&](const auto& owned) { return owned.get() == &input; });
  sharedContext.noteEdit();
}

void Graph::removeInitializer(Value& initializer) {
  assert(initializer.isInitializer() && !initializer.isGraphInput() && initializer.isUnused());
  releaseName(initializer);
  llvm::erase_if(initializerList, [&](const auto& owned) { return owned.get() == &initializer; });
  sharedContext.noteEdit();
}

Node& Graph::create(OpName op, llvm::ArrayRef<Value*> operands,
                    llvm::ArrayRef<llvm::StringRef> resultNames, Node* before) {
  auto* node = new (sharedContext.nodePool.allocate(1)) Node(*this, op);
  node->setOperands(operands);
  node->resultCount = static_cast<unsigned>(resultNames.size());
  node->resultValues = sharedContext.resultPool.allocate(resultNames.size());
  for (size_t i = 0; i < resultNames.size(); ++i) {
    Value& result = *new (node->resultValues + i) Value();
    result.producerNode = node;
    result.resultNumber = static_cast<unsigned>(i);
    claimName(result, resultNames[i]);
  }
  nodeList.insert(before ? before->getIterator() : nodeList.end(), node);
  ++listedNodes;
  number(*node);
  sharedContext.noteEdit();
  return *node;
}

Node& Graph::createFresh(OpName op, llvm::ArrayRef<Value*> operands, unsigned resultCount,
                         Node* before, llvm::StringRef hint) {
  Node& node = create(op, operands, std::vector<llvm::StringRef>(resultCount), before);
  std::string base = hint.empty() ? op.type().lower() : hint.str();
  for (Value& result : node.results())
    claimName(result, freshName(base));
  return node;
}

Value& Graph::addConstant(llvm::StringRef hint, TensorRef data) {
  return addInitializer(freshName(hint), std::move(data));
}

void Graph::erase(Node& node) {
  assert(node.isUnused());
  nodeList.erase(node.getIterator());
  --listedNodes;
  sharedContext.noteEdit();
}

Node* Graph::nodeAfter(Node& node) {
  const auto next = std::next(node.getIterator());
  return next == nodeList.end() ? nullptr : &*next;
}

void Graph::moveBefore(Node& node, Node* before) {
  nodeList.remove(node.getIterator());
  nodeList.insert(before ? before->getIterator() : nodeList.end(), &node);
  number(node);
  sharedContext.noteEdit();
}

void Graph::arrange(llvm::ArrayRef<Node*> nodes, Node* before) {
  // The nodes exchange their own numbers, so other nodes keep theirs.
  std::vector<uint64_t> numbers;
  numbers.reserve(nodes.size());
  for (const Node* node : nodes)
    numbers.push_back(node->order);
  llvm::sort(numbers);
  for (size_t i = 0; i < nodes.size(); ++i) {
    nodeList.remove(nodes[i]->getIterator());
    nodeList.insert(before ? before->getIterator() : nodeList.end(), nodes[i]);
    nodes[i]->order = numbers[i];
  }
  sharedContext.noteEdit();
}

unsigned Graph::eraseDeadNodes() {
  sharedContext.noteVisits(listedNodes);
  unsigned erased = 0;
  // Readers come after the values that they read, so one backward sweep erases whole chains.
  for (auto it = nodeList.rbegin(); it != nodeList.rend();) {
    Node& node = *it++;
    if (node.isUnused()) {
      erase(node);
      ++erased;
      continue;
    }
    for (Graph* nested : node.subgraphs())
      erased += nested->eraseDeadNodes();
  }
  size_t before = initializerList.size();
  llvm::erase_if(initializerList, [&](const std::unique_ptr<Value>& value) {
    if (!value->isUnused())
      return false;
    releaseName(*value);
    return true;
  });
  if (initializerList.size() != before)
    sharedContext.noteEdit();
  return erased;
}

namespace {
/// Distance between the numbers of adjacent nodes, which leaves room for insertions.
constexpr uint64_t orderSpacing = uint64_t{1} << 32;
/// Number of the first node, which leaves room for insertions before it.
constexpr uint64_t firstOrder = uint64_t{1} << 63;
/// Minimum distance after spreading. A smaller distance makes more nodes take part.
constexpr uint64_t leastSpacing = uint64_t{1} << 16;
} // namespace

void Graph::renumber() const {
  sharedContext.noteVisits(listedNodes);
  uint64_t next = firstOrder;
  for (const Node& node : nodeList)
    node.order = next += orderSpacing;
  orderValid = true;
}

/// Numbers a node that was inserted, unless all nodes are about to be renumbered.
void Graph::number(Node& node) {
  if (!orderValid)
    return;
  auto at = node.getIterator();
  auto after = std::next(at);
  bool isFirst = at == nodeList.begin();
  bool isLast = after == nodeList.end();
  uint64_t low = isFirst ? 0 : std::prev(at)->order;
  uint64_t high = isLast ? UINT64_MAX : after->order;
  if (isFirst && isLast)
    node.order = firstOrder;
  else if (isLast && high - low > orderSpacing)
    node.order = low + orderSpacing;
  else if (isFirst && high > orderSpacing)
    node.order = high - orderSpacing;
  else if (high - low > 1)
    node.order = low + (high - low) / 2;
  else
    spreadNumbers(node);
}

/// Renumbers the node and enough of its neighbors to make room for all of them.
void Graph::spreadNumbers(Node& node) {
  auto first = node.getIterator();
  auto last = first;
  uint64_t count = 1;
  for (uint64_t wanted = 64;; wanted *= 2) {
    bool isWhole = false;
    while (count < wanted && !isWhole) {
      isWhole = true;
      if (first != nodeList.begin()) {
        --first;
        ++count;
        isWhole = false;
      }
      if (std::next(last) != nodeList.end()) {
        ++last;
        ++count;
        isWhole = false;
      }
    }
    if (isWhole) {
      orderValid = false;
      return;
    }
    const uint64_t low = first == nodeList.begin() ? 0 : std::prev(first)->order;
    const auto after = std::next(last);
    const uint64_t high = after == nodeList.end() ? UINT64_MAX : after->order;
    const uint64_t spacing = (high - low) / (count + 1);
    if (spacing < leastSpacing)
      continue;
    sharedContext.noteVisits(count);
    uint64_t next = low;
    for (Node& spread : llvm::make_range(first, after))
      spread.order = next += spacing;
    return;
  }
}

void eraseDeadChains(llvm::SmallVector<Node*, 16> candidates,
                     llvm::function_ref<void(Node&)> erasing) {
  llvm::SmallPtrSet<const Node*, 16> erased;
  const auto addProducer = [&](const Value* value) {
    if (Node* producer = value ? value->producer() : nullptr)
      candidates.push_back(producer);
  };
  while (!candidates.empty()) {
    Node* node = candidates.pop_back_val();
    if (erased.count(node) || !node->isUnused())
      continue;
    for (const Use& use : node->operands())
      addProducer(use.value());
    for (const Value* captured : capturedValues(*node))
      addProducer(captured);
    erasing(*node);
    erased.insert(node);
    node->graph().erase(*node);
  }
}

void forEachGraph(Graph& graph, llvm::function_ref<void(Graph&)> visit) {
  visit(graph);
  if (!graph.hasSubgraphs())
    return;
  for (Node& node : graph.nodes())
    for (Graph* nested : node.subgraphs())
      forEachGraph(*nested, visit);
}

llvm::SmallVector<Value*, 4> capturedValues(const Node& node) {
  llvm::SmallVector<Value*, 4> captured;
  llvm::SmallPtrSet<const Graph*, 4> inside;
  llvm::SmallPtrSet<const Value*, 8> seen;
  auto take = [&](Value* value) {
    if (value && !inside.count(&value->graph()) && seen.insert(value).second)
      captured.push_back(value);
  };
  for (Graph* nested : node.subgraphs())
    forEachGraph(*nested, [&](Graph& graph) { inside.insert(&graph); });
  for (Graph* nested : node.subgraphs())
    forEachGraph(*nested, [&](Graph& graph) {
      for (const Node& inner : graph.nodes())
        for (const Use& use : inner.operands())
          take(use.value());
      for (Value* output : graph.outputs())
        take(output);
    });
  return captured;
}

} // namespace kvopt::ir
