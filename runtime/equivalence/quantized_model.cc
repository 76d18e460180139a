// Edits of copies of models.
#include "runtime/equivalence/quantized_model.h"

#include "ir/shapes/shape_inference.h"
#include "support/diagnostic.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"

namespace kvopt::runtime {
using namespace ir;

namespace {

constexpr const char* quantizedOp = "ai.kvopt::InPlaceQuantizedKvSdpa";
/// A name that no kernel has: it runs through its function.
constexpr const char* definitionOp = "ai.kvopt::InPlaceQuantizedKvSdpaDefinition";

void copyAttributes(const Node& from, Node& to) {
  for (const NamedAttribute& attribute : from.attributes())
    to.setAttribute(attribute.name, attribute.value.clone());
}

void removeOutputOf(Value& value) {
  Graph& graph = value.graph();
  for (unsigned slot = graph.outputs().size(); slot-- > 0;)
    if (graph.outputs()[slot] == &value)
      graph.removeOutput(slot);
}

void setElementType(Value& value, ElementType element) {
  TensorType type = value.type();
  value.setType(type.hasRank()
                    ? TensorType(element, Shape(type.shape().begin(), type.shape().end()))
                    : TensorType(element));
}

} // namespace

bool hasQuantizedCaches(const Manifest& manifest) {
  return llvm::any_of(manifest.caches,
                      [](const ManifestCache& cache) { return isScale(cache.role); });
}

std::vector<std::string> miswiredCaches(const Model& model, const Manifest& manifest) {
  constexpr unsigned firstCache = 3; // operands: keys, their scales, values, theirs
  constexpr unsigned firstPresent = 1;
  std::vector<std::string> found;
  for (const Node& node : model.graph().nodes()) {
    if (!node.is(quantizedOp))
      continue;
    for (unsigned i = 0; i < 4; ++i) {
      const Value* past = node.operand(firstCache + i);
      const llvm::StringRef written = node.result(firstPresent + i).name();
      for (const ManifestCache& cache : manifest.caches)
        if (past && cache.past == past->name() && written != cache.present)
          found.push_back(fmt::format("cache '{}' continues as '{}', but its attention writes '{}'",
                                      cache.past, cache.present, written));
    }
  }
  return found;
}

llvm::Error unquantize(Model& model, Manifest& manifest) {
  Graph& graph = model.graph();
  llvm::StringMap<ElementType> elements; // of caches that are codes no more
  for (Node& node : llvm::make_early_inc_range(graph.nodes())) {
    if (!node.is(quantizedOp))
      continue;
    const ElementType element = node.operand(1)->type().elementType();
    if (element == ElementType::Undefined)
      return invalid("{}: the type of the new rows is not known", node.describe());
    llvm::SmallVector<Value*, 8> operands;
    for (unsigned i : {0u, 1u, 2u, 3u, 5u, 7u, 8u, 9u})
      operands.push_back(node.operand(i));
    Value* const scales[] = {node.operand(4), node.operand(6)};
    Node& plain = graph.createFresh("ai.kvopt::InPlaceKvSdpa", operands, 3, &node, "attention");
    copyAttributes(node, plain);
    constexpr std::pair<unsigned, unsigned> same[] = {{0, 0}, {1, 1}, {3, 2}};
    for (const auto& [before, after] : same) {
      plain.result(after).setType(node.result(before).type());
      node.result(before).replaceAllUsesWith(plain.result(after));
    }
    for (unsigned result : {2u, 4u})
      removeOutputOf(node.result(result));
    for (unsigned operand : {3u, 4u}) {
      setElementType(*plain.operand(operand), element);
      setElementType(plain.result(operand - 2), element);
      elements[plain.operand(operand)->name()] = element;
    }
    graph.erase(node);
    for (Value* scale : scales)
      if (scale->isGraphInput() && scale->isUnused())
        graph.removeInput(*scale);
  }
  llvm::erase_if(manifest.caches, [](const ManifestCache& cache) { return isScale(cache.role); });
  for (ManifestCache& cache : manifest.caches)
    if (auto found = elements.find(cache.past); found != elements.end())
      cache.dtype = found->second;
  return inferShapes(graph);
}

llvm::Expected<std::vector<DefinedSite>> addDefinitions(Model& model) {
  std::vector<DefinedSite> sites;
  Function* body = model.findFunction(quantizedOp);
  Graph& graph = model.graph();
  for (Node& node : graph.nodes()) {
    if (!node.is(quantizedOp))
      continue;
    if (!body)
      return invalid("the model has no function body for {}", quantizedOp);
    llvm::SmallVector<Value*, 10> operands;
    for (const Use& use : node.operands())
      operands.push_back(use.value());
    Node& definition = graph.createFresh(definitionOp, operands, 5, &node, "defined");
    copyAttributes(node, definition);
    DefinedSite site;
    for (Value* output : {&node.result(), &definition.result()})
      if (!output->isGraphOutput())
        graph.addOutput(*output);
    site.output = node.result().name().str();
    site.definedOutput = definition.result().name().str();
    for (unsigned i = 0; i < 4; ++i) {
      definition.result(i + 1).setType(node.result(i + 1).type());
      graph.addOutput(definition.result(i + 1));
      site.presents[i] = node.result(i + 1).name().str();
      site.definedPresents[i] = definition.result(i + 1).name().str();
    }
    definition.result().setType(node.result().type());
    sites.push_back(std::move(site));
  }
  if (body)
    body->name = OpName(definitionOp).type().str();
  return sites;
}

} // namespace kvopt::runtime
