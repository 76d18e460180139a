// Rotary positions in every spelling.
#include "driver/synthetic/decoder_parts.h"

#include <cmath>
#include <limits>

namespace kvopt::driver {
using namespace ir;

namespace {

double frequency(int64_t pair, int64_t width) {
  return std::pow(10000.0, -2.0 * static_cast<double>(pair) / static_cast<double>(width));
}

/// Adds tables with rows for positions 0, 1, …, as GroupQueryAttention reads them.
void addTables(DecoderContext& context, int64_t width) {
  const int64_t pairs = width / 2;
  std::vector<float> cosines;
  std::vector<float> sines;
  for (int64_t position = 0; position < context.spec.maxPositions; ++position)
    for (int64_t pair = 0; pair < pairs; ++pair) {
      const double angle = static_cast<double>(position) * frequency(pair, width);
      cosines.push_back(static_cast<float>(std::cos(angle)));
      sines.push_back(static_cast<float>(std::sin(angle)));
    }
  context.cosine = &context.build.table("cos_cache", {context.spec.maxPositions, pairs}, cosines);
  context.sine = &context.build.table("sin_cache", {context.spec.maxPositions, pairs}, sines);
}

} // namespace

void addRotation(DecoderContext& context, int64_t width) {
  if (context.isContrib())
    return addTables(context, width);
  GraphBuilder& build = context.build;
  std::vector<float> frequencies;
  for (int64_t pair = 0; pair < width / 2; ++pair)
    frequencies.push_back(static_cast<float>(frequency(pair, width)));
  const auto bytes = std::as_bytes(std::span(frequencies));
  Value& inverse = build.constant(llvm::cantFail(
      makeTensor(ElementType::Float, {1, width / 2, 1}, {bytes.begin(), bytes.end()})));
  Value& row = build.cast(build.unsqueeze(*context.positions, {1}), ElementType::Float);
  Value& angles = build.transpose(build.op("MatMul", {&inverse, &row}), {0, 2, 1});
  if (context.isOperator()) {
    context.cosine = &build.toReal(build.op("Cos", {&angles}));
    context.sine = &build.toReal(build.op("Sin", {&angles}));
    return;
  }
  Value& both = build.op("Concat", {&angles, &angles}, {{"axis", -1}});
  context.cosine = &build.unsqueeze(build.toReal(build.op("Cos", {&both})), {1});
  context.sine = &build.unsqueeze(build.toReal(build.op("Sin", {&both})), {1});
}

Value& rotated(const DecoderContext& context, Value& x, int64_t heads, int64_t width) {
  GraphBuilder& build = context.build;
  if (context.isOperator())
    return build.op("RotaryEmbedding", {&x, context.cosine, context.sine},
                    {{"interleaved", 0}, {"num_heads", heads}});
  Value* half = nullptr;
  if (context.spec.spelling == DecoderSpelling::TorchScript) {
    Value& halved = build.op("Div", {&build.extent(x, 3), &build.integer(2)});
    half = &build.listed(build.cast(build.cast(halved, ElementType::Int64), ElementType::Int64));
  } else {
    half = &build.ints({width / 2});
  }
  Value& low = build.slice(x, build.ints({0}), *half, 3);
  Value& high = build.slice(x, *half, build.ints({std::numeric_limits<int64_t>::max()}), 3);
  Value& turned = build.op("Concat", {&build.op("Neg", {&high}), &low}, {{"axis", -1}});
  Value& straight = build.op("Mul", {&x, context.cosine});
  return build.op("Add", {&straight, &build.op("Mul", {&turned, context.sine})});
}

} // namespace kvopt::driver
