// Removal of casts from a copy of a model.
#include "passes/unrounding/narrowed_model.h"

#include "ir/movement.h"
#include "ir/shapes/shape_inference.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::unrounding {
using namespace ir;

namespace {

void setElement(Value& value, ElementType element) {
  TensorType type = value.type();
  type.setElementType(element);
  value.setType(std::move(type));
}

/// The Cast to `narrow` from which an operand's elements are moved; null if there is none.
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

/// Operands that may be new rows if `use` reads the past. Attention has separate operands for keys
/// and values.
llvm::SmallVector<Value*, 2> rowsBeside(const Use& use, CacheRole role) {
  llvm::SmallVector<Value*, 2> rows;
  const bool isAttention = !use.user().op().isOnnx();
  for (const Use& other : use.user().operands())
    if (other.value() && other.value() != use.value() &&
        (!isAttention || other.operandIndex() == (role == CacheRole::Value ? 2U : 1U)))
      rows.push_back(other.value());
  return rows;
}

/// Removes the rounding of new rows that are joined to a past or to a view of it. Returns whether
/// there was any.
bool removeRounding(Value& past, const ManifestCache& cache) {
  bool isFound = false;
  llvm::SmallVector<Value*, 4> views = {&past};
  for (size_t i = 0; i < views.size(); ++i) {
    Value& view = *views[i]; // the list grows
    for (Use& use : view.uses()) {
      const auto kind = movementKind(use.user());
      if (kind && keepsOrder(*kind) && isMoved(use)) {
        views.push_back(&use.user().result());
        continue;
      }
      for (Value* rows : rowsBeside(use, cache.role))
        if (Node* cast = castBehind(*rows, cache.dtype)) {
          cast->setAttribute("to", Attribute::ofInt(static_cast<int64_t>(cache.exportedDtype)));
          isFound = true;
        }
    }
  }
  return isFound;
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
    std::vector<std::string> names = cache.blocks().vec();
    if (names.empty())
      names.push_back(cache.past);
    bool isFound = false;
    for (const std::string& name : names) {
      Value* past = graph.findValue(name);
      if (!past || !past->isGraphInput())
        return invalid("the model has no input '{}'", name);
      isFound |= removeRounding(*past, cache);
      setElement(*past, cache.exportedDtype);
    }
    if (!isFound)
      return invalid("the rows of cache '{}' are not rounded by a Cast", cache.past);
    if (Value* present = graph.findValue(cache.present))
      setElement(*present, cache.exportedDtype);
    cache.dtype = cache.exportedDtype;
    cache.exportedDtype = ElementType::Undefined;
  }
  // Types that were inferred from the narrow types are inferred again.
  for (Node& node : graph.nodes())
    for (Value& result : node.results())
      if (!result.isGraphOutput() && !result.isAbsent() &&
          isFloatingPoint(result.type().elementType()))
        setElement(result, ElementType::Undefined);
  return inferShapes(graph);
}

} // namespace kvopt::unrounding
