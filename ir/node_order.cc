// A stable topological sort.
#include "ir/node_order.h"

#include "ir/op_name.h"
#include "support/diagnostic.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

#include <functional>
#include <queue>

namespace kvopt::ir {
namespace {

std::vector<llvm::StringRef> outerNames(const onnx::NodeProto& node);

/// Names that the graph reads from enclosing graphs.
std::vector<llvm::StringRef> outerNames(const onnx::GraphProto& graph) {
  llvm::StringSet<> own;
  for (const onnx::ValueInfoProto& input : graph.input())
    own.insert(input.name());
  for (const onnx::TensorProto& initializer : graph.initializer())
    own.insert(initializer.name());
  for (const onnx::SparseTensorProto& initializer : graph.sparse_initializer())
    own.insert(initializer.values().name());
  for (const onnx::NodeProto& node : graph.node())
    for (const std::string& result : node.output())
      own.insert(result);
  std::vector<llvm::StringRef> names;
  auto note = [&](llvm::StringRef name) {
    if (!own.contains(name))
      names.push_back(name);
  };
  for (const onnx::NodeProto& node : graph.node())
    for (llvm::StringRef name : outerNames(node))
      note(name);
  for (const onnx::ValueInfoProto& output : graph.output())
    note(output.name());
  return names;
}

std::vector<llvm::StringRef> outerNames(const onnx::NodeProto& node) {
  std::vector<llvm::StringRef> names;
  for (const std::string& operand : node.input())
    if (!operand.empty())
      names.push_back(operand);
  auto add = [&](const onnx::GraphProto& graph) {
    std::vector<llvm::StringRef> inner = outerNames(graph);
    names.insert(names.end(), inner.begin(), inner.end());
  };
  for (const onnx::AttributeProto& attribute : node.attribute()) {
    if (attribute.has_g())
      add(attribute.g());
    for (const onnx::GraphProto& graph : attribute.graphs())
      add(graph);
  }
  return names;
}

std::string nodeText(const onnx::NodeProto& node) {
  const bool hasName = !node.name().empty() || node.output_size() == 0;
  return formatted("'{}' ({})", hasName ? node.name() : node.output(0),
                   OpName(node.domain(), node.op_type()).str());
}

/// Sorts nodes. Indices are relative to `first`.
class Sorter {
public:
  Sorter(const NodeMessages& sorted, int firstIndex)
      : messages(sorted), first(firstIndex), readers(count()), waitsFor(count()) {
    llvm::StringMap<int> producers;
    for (int i = 0; i < count(); ++i)
      for (const std::string& result : message(i).output())
        if (!result.empty())
          producers.try_emplace(result, i);
    for (int i = 0; i < count(); ++i)
      for (llvm::StringRef name : outerNames(message(i)))
        if (auto producer = producers.find(name); producer != producers.end()) {
          readers[producer->second].push_back(i);
          waitsFor[i].push_back(producer->second);
        }
  }

  llvm::Expected<std::vector<int>> sort() {
    std::priority_queue<int, std::vector<int>, std::greater<>> ready;
    std::vector<size_t> missing(waitsFor.size());
    for (int i = 0; i < count(); ++i) {
      missing[i] = waitsFor[i].size();
      if (missing[i] == 0)
        ready.push(i);
    }
    std::vector<int> order;
    while (!ready.empty()) {
      const int next = ready.top();
      ready.pop();
      order.push_back(first + next);
      for (int reader : readers[next])
        if (--missing[reader] == 0)
          ready.push(reader);
    }
    if (order.size() < waitsFor.size())
      return cycle(missing);
    return order;
  }

private:
  int count() const { return messages.size() - first; }
  const onnx::NodeProto& message(int i) const { return messages.Get(first + i); }

  /// Every node that misses an operand waits for another such node, so following them leads to a
  /// cycle.
  llvm::Error cycle(llvm::ArrayRef<size_t> missing) const {
    int node = 0;
    while (missing[node] == 0)
      ++node;
    std::vector<int> path;
    std::vector<int> placeOf(missing.size(), -1);
    while (placeOf[node] < 0) {
      placeOf[node] = static_cast<int>(path.size());
      path.push_back(node);
      for (int producer : waitsFor[node])
        if (missing[producer] != 0) {
          node = producer;
          break;
        }
    }
    constexpr size_t mostNamed = 16;
    std::vector<std::string> names;
    for (size_t i = static_cast<size_t>(placeOf[node]); i < path.size() && names.size() < mostNamed;
         ++i)
      names.push_back(nodeText(message(path[i])));
    const size_t length = path.size() - static_cast<size_t>(placeOf[node]);
    if (length > names.size())
      names.push_back(formatted("{} more", length - names.size()));
    const onnx::NodeProto& at = message(node);
    const size_t after = static_cast<size_t>(placeOf[node]) + 1;
    return invalid("reads what is computed from its own result: a cycle through {}",
                   joinedText(names, ", "))
        .node(at.name(), OpName(at.domain(), at.op_type()).str())
        .value(valueFrom(message(after < path.size() ? path[after] : node), at));
  }

  /// Name of the result of `producer` that `reader` reads.
  static std::string valueFrom(const onnx::NodeProto& producer, const onnx::NodeProto& reader) {
    for (llvm::StringRef name : outerNames(reader))
      for (const std::string& result : producer.output())
        if (name == result)
          return result;
    return "";
  }

  const NodeMessages& messages;
  int first;
  std::vector<std::vector<int>> readers;
  std::vector<std::vector<int>> waitsFor;
};

} // namespace

void forEachOuterName(const onnx::NodeProto& node,
                      llvm::function_ref<void(llvm::StringRef)> visit) {
  for (llvm::StringRef name : outerNames(node))
    visit(name);
}

llvm::Expected<std::vector<int>> executionOrder(const NodeMessages& messages, int first) {
  return Sorter(messages, first).sort();
}

} // namespace kvopt::ir
