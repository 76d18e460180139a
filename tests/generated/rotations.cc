// Rotary positions.
#include "tests/generated/spellings.h"

#include <cmath>

namespace kvopt::generated {
using namespace ir;

namespace {

double frequency(int64_t column, int64_t width) {
  return std::pow(100.0, -2.0 * static_cast<double>(column) / static_cast<double>(width));
}

/// int64 [B,S], or [1,S] where every batch row has the same.
Value& positionsOf(DecoderGraph& g) {
  return g.positionIds ? *g.positionIds : g.unsqueeze(*g.queryRows, {0});
}

using Angles = Rotation(DecoderGraph& g);

Rotation gathered(DecoderGraph& g) {
  const int64_t half = g.sizes.width / 2;
  std::vector<float> cosines;
  std::vector<float> sines;
  for (int64_t row = 0; row < positionRows; ++row)
    for (int64_t column = 0; column < half; ++column) {
      const double angle = static_cast<double>(row) * frequency(column, g.sizes.width);
      cosines.push_back(static_cast<float>(std::cos(angle)));
      sines.push_back(static_cast<float>(std::sin(angle)));
    }
  Value& positions = positionsOf(g);
  const auto rows = [&](const std::vector<float>& table) {
    Value& values = g.op("Gather", {&g.floats({positionRows, half}, table), &positions});
    return &g.unsqueeze(values, {2});
  };
  Value* cosine = rows(cosines);
  return {cosine, rows(sines)};
}

Rotation computed(DecoderGraph& g) {
  std::vector<float> frequencies;
  for (int64_t column = 0; column < g.sizes.width / 2; ++column)
    frequencies.push_back(static_cast<float>(frequency(column, g.sizes.width)));
  Value& list = g.floats({1, 1, 1, g.sizes.width / 2}, frequencies);
  Value& angles = g.mul(g.unsqueeze(g.asFloat(positionsOf(g)), {2, 3}), list);
  Value* cosine = &g.op("Cos", {&angles});
  return {cosine, &g.op("Sin", {&angles})};
}

Rotation computedByProduct(DecoderGraph& g) {
  std::vector<float> frequencies;
  for (int64_t column = 0; column < g.sizes.width / 2; ++column)
    frequencies.push_back(static_cast<float>(frequency(column, g.sizes.width)));
  Value& list = g.floats({1, g.sizes.width / 2}, frequencies);
  Value& column = g.unsqueeze(g.asFloat(positionsOf(g)), {2});
  Value& angles = g.unsqueeze(g.op("MatMul", {&column, &list}), {2});
  Value* cosine = &g.op("Cos", {&angles});
  return {cosine, &g.op("Sin", {&angles})};
}

constexpr Spelling<Angles> angles[] = {
    {"angles/Gathered", gathered},
    {"angles/Computed", computed},
    {"angles/Product", computedByProduct},
};

using Turn = Value&(DecoderGraph& g, Value& x, const Rotation& rotation);

Value& byHalves(DecoderGraph& g, Value& x, const Rotation& rotation) {
  const int64_t half = g.sizes.width / 2;
  Value& left = g.slice(x, g.ints({0}), g.ints({half}), 3);
  Value& right = g.slice(x, g.ints({half}), g.ints({2 * half}), 3);
  Value& newLeft = g.sub(g.mul(left, *rotation.cosine), g.mul(right, *rotation.sine));
  Value& newRight = g.add(g.mul(right, *rotation.cosine), g.mul(left, *rotation.sine));
  return g.concat({&newLeft, &newRight}, 3);
}

Value& byTurnedHalves(DecoderGraph& g, Value& x, const Rotation& rotation) {
  const int64_t half = g.sizes.width / 2;
  Value& cosine = g.concat({rotation.cosine, rotation.cosine}, -1);
  Value& sine = g.concat({rotation.sine, rotation.sine}, -1);
  const auto parts = g.split(x, 3, {half, half});
  Value& turned = g.concat({&g.op("Neg", {parts[1]}), parts[0]}, -1);
  return g.add(g.mul(x, cosine), g.mul(turned, sine));
}

Value& byMatrix(DecoderGraph& g, Value& x, const Rotation& rotation) {
  const auto width = static_cast<size_t>(g.sizes.width);
  std::vector<float> quarterTurn(width * width);
  for (size_t column = 0; column < width / 2; ++column) {
    quarterTurn[(column + width / 2) * width + column] = -1;
    quarterTurn[column * width + column + width / 2] = 1;
  }
  Value& turned = g.op("MatMul", {&x, &g.floats({g.sizes.width, g.sizes.width}, quarterTurn)});
  Value& cosine = g.concat({rotation.cosine, rotation.cosine}, 3);
  Value& sine = g.concat({rotation.sine, rotation.sine}, 3);
  return g.add(g.mul(x, cosine), g.mul(turned, sine));
}

constexpr Spelling<Turn> turns[] = {
    {"rotation/Halves", byHalves},
    {"rotation/TurnedHalves", byTurnedHalves},
    {"rotation/Matrix", byMatrix},
};

} // namespace

Rotation rotationOf(DecoderGraph& g) {
  return g.sizes.positions == Positions::Rotary ? g.choose(angles)(g) : Rotation{};
}

Value& rotated(DecoderGraph& g, Value& x, const Rotation& rotation) {
  return rotation.cosine ? g.choose(turns)(g, x, rotation) : x;
}

} // namespace kvopt::generated
