// Convolutions, rotations, gates and operators on codes.
#include "tests/differential/operators.h"

namespace kvopt::differential {
using namespace ir;

namespace {

Numbers small(Dice& dice, Wanted wanted) { return integers(dice, std::move(wanted), -3, 3); }

Instance convolution(const char* name, Dice& dice) {
  Instance instance(name, dice.anyOf<int64_t>({11, 22}));
  const auto axes = static_cast<size_t>(dice.between(1, 2));
  const int64_t groups = dice.anyOf<int64_t>({1, 1, 2}), each = dice.between(1, 2);
  const int64_t channels = groups * dice.between(1, 2);
  Extents data{dice.between(1, 2), groups * each}, weights{channels, each};
  std::vector<int64_t> pads(2 * axes), strides, dilations;
  for (size_t i = 0; i < axes; ++i) {
    const int64_t taps = dice.between(1, 3);
    strides.push_back(dice.between(1, 2));
    dilations.push_back(dice.between(1, 2));
    pads[i] = dice.between(0, 2);
    pads[i + axes] = dice.between(0, 2);
    data.push_back((taps - 1) * dilations.back() + dice.between(1, 3));
    weights.push_back(taps);
  }
  instance.in(small(dice, {ElementType::Float, data}));
  instance.in(small(dice, {ElementType::Float, weights}));
  if (dice.oneIn(2))
    instance.in(small(dice, {ElementType::Float, {channels}}));
  if (dice.oneIn(2))
    instance.attr("kernel_shape", std::vector<int64_t>(weights.begin() + 2, weights.end()));
  if (groups != 1 || dice.oneIn(3))
    instance.attr("group", groups);
  if (!dice.oneIn(3))
    instance.attr("strides", std::move(strides));
  if (!dice.oneIn(3))
    instance.attr("dilations", std::move(dilations));
  if (dice.oneIn(4))
    instance.attr("auto_pad", dice.anyOf({"VALID", "SAME_UPPER", "SAME_LOWER", "NOTSET"}));
  else if (dice.oneIn(2))
    instance.attr("pads", std::move(pads));
  return instance;
}

Instance rotation(const char* name, Dice& dice) {
  Instance instance(name, 23);
  const int64_t batches = dice.between(1, 2), heads = dice.between(1, 2), rows = dice.between(1, 3);
  const int64_t width = dice.anyOf<int64_t>({4, 8});
  const bool isPartial = dice.oneIn(3), isFolded = dice.oneIn(2), hasPositions = dice.oneIn(2);
  const int64_t half = isPartial ? width / 4 : width / 2;
  constexpr int64_t places = 5;
  instance.in(small(dice, {ElementType::Float, isFolded ? Extents{batches, rows, heads * width}
                                                        : Extents{batches, heads, rows, width}}));
  for (int table = 0; table < 2; ++table)
    instance.in(small(dice, {ElementType::Float,
                             hasPositions ? Extents{places, half} : Extents{batches, rows, half}}));
  if (hasPositions)
    instance.select(integers(dice, {ElementType::Int64, {batches, rows}}, 0, places - 1));
  if (isFolded)
    instance.attr("num_heads", heads);
  if (isPartial)
    instance.attr("rotary_embedding_dim", 2 * half);
  if (dice.oneIn(2))
    instance.attr("interleaved", dice.between(0, 1));
  return instance;
}

Instance gate(const char* name, Dice& dice) {
  Instance instance(name, 28);
  const ElementType type = floatType(dice);
  const Extents extents = dice.extents(0, 3);
  instance.in(varied(dice, {type, extents})).in(varied(dice, {type, extents}));
  if (dice.oneIn(2))
    instance.attr("alpha", 2.0f);
  return instance.rounded(100).opaque();
}

Instance sameBits(const char* name, Dice& dice) {
  using enum ElementType;
  Instance instance(name, 26);
  const ElementType from = dice.anyOf({Int32, UInt32, Float});
  instance.in(varied(dice, {from, dice.extents(0, 3)}));
  return instance.attr("to", static_cast<int64_t>(dice.anyOf({Int32, UInt32}))).opaque();
}

ElementType codeType(Dice& dice) { return dice.anyOf({ElementType::Int8, ElementType::UInt8}); }

Instance quantized(const char* name, Dice& dice) {
  const bool isBack = name == std::string("DequantizeLinear");
  Instance instance(name, dice.anyOf<int64_t>({13, 19, 21}));
  const Extents extents = dice.extents(1, 3);
  const int64_t axis = dice.axis(extents.size());
  const bool isPerAxis = dice.oneIn(2);
  const auto place = static_cast<size_t>(axis < 0 ? axis + int64_t(extents.size()) : axis);
  const Extents scales = isPerAxis ? Extents{extents[place]} : Extents{};
  const ElementType code = codeType(dice);
  instance.in(isBack ? varied(dice, {code, extents}) : small(dice, {ElementType::Float, extents}));
  instance.in(integers(dice, {ElementType::Float, scales}, 1, 2));
  instance.in(integers(dice, {code, scales}, 0, 3));
  if (isPerAxis)
    instance.attr("axis", axis);
  return instance.opaque();
}

Instance coded(const char* name, Dice& dice) {
  Instance instance(name, 11);
  instance.results = 3;
  return instance.in(small(dice, {ElementType::Float, {dice.between(1, 3), 3}})).rounded().opaque();
}

Instance codeProduct(const char* name, Dice& dice) {
  Instance instance(name, 10);
  const int64_t depth = dice.between(1, 4), rows = dice.extent(), columns = dice.extent();
  const auto batches = broadcastExtents(dice, 2);
  Extents left = batches[0], right = batches[1];
  left.insert(left.end(), {rows, depth});
  right.insert(right.end(), {depth, columns});
  const ElementType leftCode = codeType(dice), rightCode = codeType(dice);
  instance.in(varied(dice, {leftCode, left})).in(varied(dice, {rightCode, right}));
  if (dice.oneIn(2))
    instance.in(integers(dice, {leftCode, {}}, 0, 3)).in(integers(dice, {rightCode, {}}, 0, 3));
  return instance;
}

constexpr Operator operators[] = {
    {"Conv", convolution},
    {"RotaryEmbedding", rotation},
    {"SwiGLU", gate},
    {"BitCast", sameBits},
    {"QuantizeLinear", quantized},
    {"DequantizeLinear", quantized},
    {"DynamicQuantizeLinear", coded},
    {"MatMulInteger", codeProduct},
};

} // namespace

llvm::ArrayRef<Operator> layerOperators() { return operators; }

} // namespace kvopt::differential
