// Casts taken out of a copy of a model.
#include "runtime/equivalence/narrowed_model.h"

#include "ir/movement.h"
#include "ir/shapes/shape_inference.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::runtime {
using namespace ir;

namespace {

void setElement(Value& value, ElementType element) {
  TensorType type = value.type();
  type.setElementType(element);
  value.setType(std::move(type));
}

/// The Cast to `narrow` that an operand's elements are moved from; null if there is none.
Node* castBehind(Value& operand, ElementType narrow) {
  Value* value = &operand;
  while (Node* node = value ? value->producer() : nullptr) {
    const auto kind = movementKind(*node);
    if (!kind || *kind == MovementKind::Concat)
      return nullptr;
    if (*kind == MovementKind::Convert && node->result().type().elementType() == narrow)
      return node;
    value = movedOperand(*node);
  }
  return nullptr;
}

} // namespace

bool hasNarrowedCaches(const Manifest& manifest) {
  return llvm::any_of(manifest.caches, [](const ManifestCache& cache) {
    return cache.exportedDtype != ElementType::Undefined;
  });
}

llvm::Error keepExportedRows(Model& model, Manifest& manifest) {
  Graph& graph = model.graph();
  for (ManifestCache& cache : manifest.caches) {
    if (cache.exportedDtype == ElementType::Undefined)
      continue;
    std::vector<std::string> names = cache.blocks;
    if (names.empty())
      names.push_back(cache.past);
    bool isFound = false;
    for (const std::string& name : names) {
      Value* past = graph.findValue(name);
      if (!past || !past->isGraphInput())
        return invalid("the model has no input '{}'", name);
      for (Use& use : past->uses())
        for (const Use& other : use.user().operands())
          if (other.value() && other.value() != past)
            if (Node* cast = castBehind(*other.value(), cache.dtype)) {
              cast->setAttribute("to", Attribute::ofInt(static_cast<int64_t>(cache.exportedDtype)));
              isFound = true;
            }
      setElement(*past, cache.exportedDtype);
    }
    if (!isFound)
      return invalid("the rows of cache '{}' are not rounded by a Cast", cache.past);
    if (Value* present = graph.findValue(cache.present))
      setElement(*present, cache.exportedDtype);
    cache.dtype = cache.exportedDtype;
    cache.exportedDtype = ElementType::Undefined;
  }
  // What was inferred from the narrow types is inferred anew.
  for (Node& node : graph.nodes())
    for (Value& result : node.results())
      if (!result.isGraphOutput() && !result.isAbsent() &&
          isFloatingPoint(result.type().elementType()))
        setElement(result, ElementType::Undefined);
  return inferShapes(graph);
}

} // namespace kvopt::runtime
