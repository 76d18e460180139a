// Lengths of a step, and masks as exporters derive them from positions and padding.
#include "driver/synthetic/decoder_parts.h"

#include "support/half.h"

#include <limits>

namespace kvopt::driver {
using namespace ir;

namespace {

/// The numbers 0 … length-1.
Value& countUp(GraphBuilder& build, Value& length) {
  Value& zero = build.integer(0);
  Value& end = build.scalarOf(length);
  return build.op("Range", {&zero, &end, &build.integer(1)});
}

/// padding[b, j] at batch row b [B,1,1,1] and key j [1,1,1,T], through the flattened mask.
Value& flatGather(const DecoderContext& context, Value& rows, Value& keys) {
  GraphBuilder& build = context.build;
  Value& visible = build.cast(*context.padding, ElementType::Bool);
  Value& columns =
      build.op("Gather", {&build.op("Shape", {&visible}), &build.ints({1})}, {{"axis", 0}});
  Value& flat = build.op("Flatten", {&visible}, {{"axis", 2}});
  Value& index = build.op("Add", {&keys, &build.op("Mul", {&rows, &columns})});
  Value& list =
      build.op("Reshape", {&build.op("Gather", {&flat, &index}, {{"axis", 0}}), &build.ints({-1})});
  return build.op("Reshape", {&list, &build.op("Shape", {&index})});
}

/// padding[b, j], read through pairs of indices.
Value& pairGather(const DecoderContext& context, Value& rows, Value& keys) {
  GraphBuilder& build = context.build;
  Value& visible = build.cast(*context.padding, ElementType::Bool);
  Value& shape = build.op("Shape", {&build.op("Max", {&rows, &keys})});
  Value& row = build.unsqueeze(build.op("Expand", {&rows, &shape}), {-1});
  Value& key = build.unsqueeze(build.op("Expand", {&keys, &shape}), {-1});
  Value& index = build.op("Concat", {&row, &key}, {{"axis", -1}});
  return build.op("GatherND", {&visible, &index}, {{"batch_dims", 0}});
}

double lowestOf(ElementType type) {
  switch (type) {
  case ElementType::Float16:
    return -65504.0;
  case ElementType::BFloat16:
    return static_cast<double>(bf16ToFloat(0xFF7F));
  default:
    return static_cast<double>(std::numeric_limits<float>::lowest());
  }
}

} // namespace

void addLengths(DecoderContext& context, Value& embedded, Value* cache) {
  GraphBuilder& build = context.build;
  const bool isScript = context.spec.spelling == DecoderSpelling::TorchScript;
  context.batch = &build.extent(*context.tokens, 0);
  context.sequence = &build.extent(embedded, 1);
  if (cache)
    context.past = &build.extent(*cache, 2);
  else
    context.past = isScript ? &build.integer(0) : &build.ints({0});
  if (context.slots) {
    context.total = context.past;
    return;
  }
  context.total = &build.op("Add", {context.past, context.sequence});
}

void addMask(DecoderContext& context) {
  GraphBuilder& build = context.build;
  const bool isScript = context.spec.spelling == DecoderSpelling::TorchScript;
  Value& rows = build.unsqueeze(countUp(build, *context.batch), {1, 2, 3});
  Value& positions =
      context.slots
          ? *context.slots
          : build.op("Add", {&countUp(build, *context.sequence), &build.scalarOf(*context.past)});
  Value& queries = build.unsqueeze(positions, {0, 1, 3});
  Value& keys = build.unsqueeze(countUp(build, *context.total), {0, 1, 2});
  Value* seen = &build.op("LessOrEqual", {&keys, &queries});
  if (context.spec.window != 0) {
    Value& first = build.op("Sub", {&queries, &build.integer(context.spec.window)});
    seen = &build.op("And", {&build.op("Greater", {&keys, &first}), seen});
  }
  Value& visible = isScript ? flatGather(context, rows, keys) : pairGather(context, rows, keys);
  seen = &build.op("And", {seen, &visible});
  if (context.isOperator()) {
    context.mask = seen;
    return;
  }
  Value& shape =
      build.concatLists({&build.listed(*context.batch), &build.ints({1}),
                         &build.listed(*context.sequence), &build.listed(*context.total)});
  Value& all = build.op("Expand", {seen, &shape});
  Value& zero = build.real(0.0);
  context.mask = &build.op("Where", {&all, &zero, &build.real(lowestOf(context.spec.real))});
}

void addKeyCounts(DecoderContext& context) {
  GraphBuilder& build = context.build;
  Value& one = build.ints({1});
  Value& count = build.op("ReduceSum", {context.padding, &one}, {{"keepdims", 0}});
  context.lastKeys = &build.cast(build.op("Sub", {&count, &one}), ElementType::Int32);
  Value& length =
      build.op("Gather", {&build.op("Shape", {context.padding}), &build.integer(1)}, {{"axis", 0}});
  context.maskLength = &build.cast(length, ElementType::Int32);
}

} // namespace kvopt::driver
