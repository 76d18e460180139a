// ai.kvopt::InPlaceKvSdpa: attention over a cache of fixed capacity that the new tokens' keys and
// values are written into.
#include "ir/attention_shapes.h"

namespace kvopt {
namespace {

struct CacheSide {
  unsigned added; // operand: [B,G,S,W]
  unsigned past;  // operand: [B,G,C,W], or [B,G,W,C] when the sequence lies on axis 3
  const char* axisName;
};

llvm::Expected<int64_t> sequenceAxis(const ShapeContext& context, const char* name) {
  int64_t axis = context.node().intAttr(name, 2);
  if (axis != 2 && axis != 3)
    return context.error(fmt::format("{} is {}, it should be 2 or 3", name, axis));
  return axis;
}

// Checks one cache against its new rows; returns the capacity.
llvm::Expected<Dim> checkCache(const ShapeContext& context, const CacheSide& side) {
  llvm::Expected<int64_t> axis = sequenceAxis(context, side.axisName);
  if (!axis)
    return axis.takeError();
  if (llvm::Error error = requireRank(context, side.past, 4))
    return error;
  const TensorType& added = context.type(side.added);
  const TensorType& past = context.type(side.past);
  if (llvm::Error error =
          requireEqual(context, added.dim(0), past.dim(0), "batch sizes of cache and new rows"))
    return error;
  if (llvm::Error error =
          requireEqual(context, added.dim(1), past.dim(1), "head counts of cache and new rows"))
    return error;
  if (llvm::Error error =
          requireEqual(context, added.dim(3), past.dim(5 - *axis), "widths of cache and new rows"))
    return error;
  if (past.elementType() != ElementType::Undefined &&
      added.elementType() != ElementType::Undefined && past.elementType() != added.elementType())
    return context.error(
        fmt::format("the cache is {}, its new rows are {}", past.str(), added.str()));
  Dim capacity = past.dim(*axis);
  if (capacity.isKnownLess(added.dim(2)))
    return context.error(
        fmt::format("{} new rows do not fit a capacity of {}", added.dim(2).str(), capacity.str()));
  return capacity;
}

llvm::Error checkMaskElements(const ShapeContext& context) {
  ElementType element = context.element(6);
  if (element == ElementType::Undefined)
    return llvm::Error::success();
  bool isBoolean = context.node().intAttr("mask_boolean", 0) != 0;
  if (isBoolean == (element == ElementType::Bool))
    return llvm::Error::success();
  return context.error(
      fmt::format("the mask is {}, mask_boolean is {}", context.type(6).str(), isBoolean ? 1 : 0));
}

llvm::Error inferInPlaceKvSdpa(ShapeContext& context) {
  if (llvm::Error error = checkAttentionOperands(context))
    return error;
  // The number of tokens attended to is known to past_length only.
  llvm::Expected<Dim> keyCapacity = checkCache(context, {1, 3, "key_axis"});
  if (!keyCapacity)
    return keyCapacity.takeError();
  llvm::Expected<Dim> valueCapacity = checkCache(context, {2, 4, "value_axis"});
  if (!valueCapacity)
    return valueCapacity.takeError();
  if (llvm::Error error = requireEqual(context, *keyCapacity, *valueCapacity, "capacities"))
    return error;
  if (llvm::Error error = checkPastLength(context, 5, context.type(0).dim(0)))
    return error;
  if (llvm::Error error = checkMask(context, 6, Dim::unknown()))
    return error;
  if (llvm::Error error = checkMaskElements(context))
    return error;
  if (llvm::Error error = checkSinks(context, 7))
    return error;
  context.setResult(0, attentionResult(context));
  context.setResult(1, context.type(3));
  context.setResult(2, context.type(4));
  return llvm::Error::success();
}

} // namespace

void register_in_place_kv_sdpa(OpRegistry& registry) {
  define(registry, OpName(kvoptDomain, "InPlaceKvSdpa"), 1)
      .in("query")
      .in("key_new")
      .in("value_new")
      .in("past_key")
      .in("past_value")
      .in("past_length")
      .in("mask?")
      .in("sinks?")
      .out("output")
      .out("present_key")
      .out("present_value")
      .requiredAttr("scale", AttributeKind::Float)
      .attr("causal", int64_t{0})
      .attr("window", int64_t{0})
      .attr("softcap", 0.0f)
      .attr("mask_boolean", int64_t{0})
      .attr("key_axis", int64_t{2})
      .attr("value_axis", int64_t{2})
      .inPlace(1, 3)
      .inPlace(2, 4)
      .shape(inferInPlaceKvSdpa);
}

} // namespace kvopt
