// Names without a meaning, and no remarks.
#include "driver/reduce/anonymous.h"

#include "support/format.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"

namespace kvopt::driver {
using namespace ir;

namespace {

bool isOpaque(const std::unique_ptr<Value>& initializer) { return !initializer->initializer(); }

/// Whether the value holds something that only its message describes, such as a sequence.
bool needsMessage(const Value& value) {
  return value.type().elementType() == ElementType::Undefined && !value.type().hasRank();
}

void removeRemarksOf(Graph& graph) {
  graph.setName("graph");
  for (const std::unique_ptr<Value>& input : graph.inputs())
    if (!needsMessage(*input))
      input->setSource(nullptr);
  for (Node& node : graph.nodes()) {
    node.setSource(nullptr);
    node.setName("");
    node.setMetadata({});
    for (Value& result : node.results())
      if (!needsMessage(result))
        result.setSource(nullptr);
  }
  // Messages of sparse tensors are needed; types that only messages describe, too.
  const bool hasOpaque = llvm::any_of(graph.initializers(), isOpaque) ||
                         llvm::any_of(graph.inputs(), [](const std::unique_ptr<Value>& input) {
                           return needsMessage(*input);
                         });
  if (!hasOpaque)
    graph.setSource(nullptr);
}

llvm::StringRef prefixFor(const Value& value) {
  if (value.producer())
    return "v";
  return value.isGraphInput() ? "i" : "w";
}

/// The type with other symbols; symbols without a new name are numbered in order of appearance.
TensorType renamed(const TensorType& type, llvm::StringMap<std::string>& names) {
  if (!type.hasRank())
    return type;
  Shape shape;
  for (const Dim& dim : type.shape()) {
    for (const std::string& symbol : dim.symbols())
      names.try_emplace(symbol, formatted("n{}", names.size()));
    shape.push_back(dim.substitute([&](llvm::StringRef symbol) -> std::optional<Dim> {
      return Dim::symbol(names.lookup(symbol));
    }));
  }
  return TensorType(type.elementType(), std::move(shape));
}

} // namespace

bool removeRemarks(Model& model) {
  model.producerName.clear();
  model.producerVersion.clear();
  model.domain.clear();
  model.docString.clear();
  model.modelVersion = 0;
  model.metadata.clear();
  forEachGraph(model.graph(), removeRemarksOf);
  for (const auto& function : model.functions) {
    function->docString.clear();
    forEachGraph(function->body, removeRemarksOf);
  }
  model.markEdited();
  return true;
}

std::vector<std::string> valueNames(const Graph& graph) {
  std::vector<std::string> names;
  for (const std::unique_ptr<Value>& input : graph.inputs())
    names.push_back(input->name().str());
  for (const std::unique_ptr<Value>& initializer : graph.initializers())
    if (!isOpaque(initializer))
      names.push_back(initializer->name().str());
  for (const Node& node : graph.nodes())
    for (const Value& result : node.results())
      if (!result.isAbsent())
        names.push_back(result.name().str());
  return names;
}

bool renameValues(Graph& graph, llvm::ArrayRef<std::string> names) {
  bool changes = false;
  unsigned number = 0;
  for (const std::string& name : names) {
    Value* value = graph.findValue(name);
    unsigned digits = 0;
    llvm::StringRef rest = name;
    if (!value || (rest.consume_front(prefixFor(*value)) && !rest.getAsInteger(10, digits)))
      continue;
    std::string fresh;
    do
      fresh = formatted("{}{}", prefixFor(*value), number++);
    while (graph.findValue(fresh) || graph.context().isNameInSubgraph(fresh));
    graph.rename(*value, fresh);
    changes = true;
  }
  return changes;
}

bool renameSymbols(Model& model) {
  Graph& graph = model.graph();
  llvm::StringMap<std::string> names;
  for (const std::unique_ptr<Value>& input : graph.inputs())
    input->setType(renamed(input->type(), names));
  for (Node& node : graph.nodes())
    for (Value& result : node.results())
      result.setType(renamed(result.type(), names));
  model.markEdited();
  return llvm::any_of(names, [](const auto& entry) { return entry.first() != entry.second; });
}

} // namespace kvopt::driver
