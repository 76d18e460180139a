// Conversions between types, and quantized numbers.
#include "meaning/definitions.h"
#include "meaning/operators/products.h"
#include "meaning/operators/reductions.h"
#include "support/format.h"

namespace kvopt::meaning {

namespace {

using Type = ir::ElementType;

/// A number of another type: floats are rounded towards zero, integers keep their lowest bits, and
/// what is not 0 is true. A float is rounded to its type where it is stored.
Scalar converted(Scalar value, Type type) {
  switch (sortOf(type)) {
  case Sort::Boolean:
    return toBoolean(value);
  case Sort::Integer:
    return wrapped(toInteger(value), type);
  case Sort::Real:
    break;
  }
  return toReal(value);
}
void cast(Call& call, Type type) {
  call.ignoreAttributes({"saturate", "round_mode"}); // of 8-bit floats, which are not defined
  const Tensor data = call[0];
  call.result(Tensor(listed(data.extents()), type,
                     [=](Index index) { return converted(data.at(index), type); }));
}
void defineCast(Call& call) { cast(call, call.typeAttribute("to", Type::Undefined)); }
void defineCastLike(Call& call) { cast(call, call[1].type()); }
void defineBitCast(Call& call) {
  const Tensor data = call[0];
  const Type type = call.typeAttribute("to", Type::Undefined);
  call.extents(0, type, data.extents());
  if (ir::bitWidth(type) && ir::bitWidth(data.type()) &&
      ir::bitWidth(type) != ir::bitWidth(data.type()))
    return call.reject(formatted("{} has {} bits, {} has {}", ir::onnxName(data.type()),
                                 *ir::bitWidth(data.type()), ir::onnxName(type),
                                 *ir::bitWidth(type)));
  call.refuse("the bits of numbers are not defined");
}
void defineBinarizer(Call& call) {
  const double threshold = call.realAttribute("threshold", 0);
  call.result(call.elementwise({call[0]}, call[0].type(), [=](auto x) {
    return select(x[0] > threshold, x[0].like(1), x[0].like(0));
  }));
}

/// The least and the largest number of a type of codes.
std::pair<double, double> limitsOf(Type type) {
  switch (type) {
  case Type::UInt8:
    return {0, 255};
  case Type::Int8:
    return {-128, 127};
  case Type::UInt16:
    return {0, 65535};
  case Type::Int16:
    return {-32768, 32767};
  case Type::UInt4:
    return {0, 15};
  case Type::Int4:
    return {-8, 7};
  default:
    return {-2147483648.0, 2147483647.0};
  }
}
/// round(x / scale) + zero, ties to even, within the limits of the type. The quotient is a number
/// of the scale's type, which decides ties.
Scalar quantized(Scalar quotient, Scalar zero, Type type) {
  const auto [low, high] = limitsOf(type);
  const Scalar code = apply(Function::Round, quotient) + toReal(zero);
  return toInteger(maximum(minimum(code, high), low));
}

/// A scale or zero point at a place of the data: one number, one for each place of an axis, or one
/// for each block of it.
std::function<Scalar(Index)> alongData(Call& call, const Tensor& data, const Tensor& parameter) {
  call.ignoreAttributes({"axis", "saturate", "precision"});
  const int64_t block = call.integerAttribute("block_size", 0);
  if (parameter.rank() == 0 || (parameter.rank() == 1 && parameter.extent(0).is(1)))
    return [=, zero = call.integer(0)](Index) {
      return parameter.at(Scalars(parameter.rank(), zero));
    };
  if (parameter.rank() != 1 && parameter.rank() != data.rank())
    call.refuse("a parameter has neither one axis nor those of the data");
  const unsigned axis = call.axisAttribute("axis", 1, data.rank());
  if (call.isRefused())
    return nullptr;
  if (block > 0)
    return [=](Index index) {
      return parameter.at(replaced(index, axis, quotient(index[axis], block)));
    };
  if (parameter.rank() == 1)
    return [=](Index index) { return parameter.at({index[axis]}); };
  return [=](Index index) { return parameter.at(index); };
}
void defineQuantizeLinear(Call& call) {
  const Tensor data = call[0];
  const Type written = call.typeAttribute("output_dtype", Type::Undefined);
  const Type type = call.has(2)                  ? call[2].type()
                    : written != Type::Undefined ? written
                                                 : Type::UInt8;
  call.extents(0, type, data.extents());
  if (sortOf(type) != Sort::Integer)
    return call.refuse("codes that are floats");
  const auto scale = alongData(call, data, call[1]);
  const auto zero = call.has(2) ? alongData(call, data, call[2])
                                : [none = call.integer(0)](Index) { return none; };
  if (call.isRefused())
    return;
  const Tensor quotients =
      call.rounded(Tensor(listed(data.extents()), call[1].type(),
                          [=](Index index) { return toReal(data.at(index)) / scale(index); }));
  call.result(Tensor(listed(data.extents()), type, [=](Index index) {
    return quantized(quotients.at(index), zero(index), type);
  }));
}
void defineDequantizeLinear(Call& call) {
  const Tensor data = call[0];
  const Type written = call.typeAttribute("output_dtype", Type::Undefined);
  const Type type = written != Type::Undefined ? written : call[1].type();
  call.extents(0, type, data.extents());
  if (sortOf(data.type()) != Sort::Integer)
    return call.refuse("codes that are floats");
  const auto scale = alongData(call, data, call[1]);
  const auto zero = call.has(2) ? alongData(call, data, call[2])
                                : [none = call.integer(0)](Index) { return none; };
  if (call.isRefused())
    return;
  call.result(Tensor(listed(data.extents()), type, [=](Index index) {
    return toReal(data.at(index) - zero(index)) * scale(index);
  }));
}
/// Codes of 8 bits with the scale and zero point of the data's range with 0.
struct Coded {
  Tensor codes, scale, zero;
};
Coded dynamicallyQuantized(Call& call, const Tensor& data) {
  llvm::SmallVector<unsigned> axes;
  for (unsigned axis = 0; axis < data.rank(); ++axis)
    axes.push_back(axis);
  const Tensor low = call.named(reduced(data, axes, false, Reduction::Minimum)),
               high = call.named(reduced(data, axes, false, Reduction::Maximum));
  // The codes are those of the scale that is written, which is rounded.
  const Tensor scale = call.rounded(Tensor({}, Type::Float, [=](Index) {
    return (maximum(high.at({}), 0) - minimum(low.at({}), 0)) / 255.0;
  }));
  const Tensor place = call.rounded(
      Tensor({}, Type::Float, [=](Index) { return -minimum(low.at({}), 0) / scale.at({}); }));
  const Tensor zero = call.named(Tensor({}, Type::UInt8, [=](Index) {
    const Scalar code = apply(Function::Round, place.at({}));
    return toInteger(maximum(minimum(code, 255), 0));
  }));
  const Tensor quotients = call.rounded(
      call.elementwise({data, scale}, Type::Float, [](auto x) { return x[0] / x[1]; }));
  const Tensor codes(listed(data.extents()), Type::UInt8, [=](Index index) {
    return quantized(quotients.at(index), zero.at({}), Type::UInt8);
  });
  return {codes, scale, zero};
}
void defineDynamicQuantizeLinear(Call& call) {
  const Coded coded = dynamicallyQuantized(call, call[0]);
  call.result(coded.codes);
  call.result(1, coded.scale);
  call.result(2, coded.zero);
}

/// com.microsoft: a sum of products of codes times their scales, of the columns of B, + bias.
void resultOfCodes(Call& call, const Tensor& codesA, const Tensor& codesB, const Tensor& scaleA,
                   const Tensor& scaleB, unsigned bias) {
  const Tensor sums = call.named(matrixProduct(call, codesA, codesB, Type::Int32));
  std::vector<Tensor> parts{sums, scaleA, scaleB};
  if (call.has(bias))
    parts.push_back(call[bias]);
  const Tensor all = call.elementwise(parts, scaleB.type(), [](auto x) {
    const Scalar product = toReal(x[0]) * (x[1] * x[2]);
    return x.size() > 3 ? product + x[3] : product;
  });
  call.result(Tensor(listed(sums.extents()), all.type(),
                     [=](Index index) { return all.at(broadcastIndex(all, index)); }));
}
void defineMatMulIntegerToFloat(Call& call) {
  resultOfCodes(call, withoutZeroPoint(call, call[0], 4, -2),
                withoutZeroPoint(call, call[1], 5, -1), call[2], call[3], 6);
}
void defineDynamicQuantizeMatMul(Call& call) {
  const Coded coded = dynamicallyQuantized(call, call[0]);
  const Tensor codes = call.named(coded.codes), zero = coded.zero;
  const Tensor centered(listed(codes.extents()), Type::Int32,
                        [=](Index index) { return codes.at(index) - zero.at({}); });
  resultOfCodes(call, centered, withoutZeroPoint(call, call[1], 3, -1), coded.scale, call[2], 4);
}

/// A parameter of a product: one number, or one for each place of an axis.
Scalar parameterAt(const Tensor& parameter, Index index, size_t axis) {
  if (parameter.rank() == 0 || (parameter.rank() == 1 && parameter.extent(0).is(1)))
    return parameter.at(Scalars(parameter.rank(), index[0].integer(0)));
  return parameter.rank() == 1 ? parameter.at({index[axis]})
                               : parameter.at(broadcastIndex(parameter, index));
}
void defineQLinearMatMul(Call& call) {
  const unsigned rank = std::min(call[0].rank(), call[3].rank());
  for (unsigned parameter : {1, 2, 4, 5, 6, 7})
    if (rank < 2 || call[parameter].rank() > rank)
      return call.refuse("an operand is not a matrix, or a parameter has more axes");
  const Tensor sums =
      call.named(matrixProduct(call, withoutZeroPoint(call, call[0], 2, -2),
                               withoutZeroPoint(call, call[3], 5, -1), Type::Int32));
  const Tensor scaleA = call[1], scaleB = call[4], scale = call[6], zero = call[7];
  const Type type = zero.type();
  if (sums.rank() < 2)
    return call.reject("an operand is not a matrix");
  call.result(Tensor(listed(sums.extents()), type, [=](Index index) {
    const size_t row = index.size() - 2, column = index.size() - 1;
    const Scalar real = toReal(sums.at(index)) * parameterAt(scaleA, index, row) *
                        parameterAt(scaleB, index, column);
    return quantized(real / parameterAt(scale, index, column), parameterAt(zero, index, column),
                     type);
  }));
}

} // namespace

void register_conversion(Definitions& all) {
  all.add("Cast", defineCast, 6);
  all.add("CastLike", defineCastLike, 15);
  all.add("BitCast", defineBitCast, 26);
  all.add("ai.onnx.ml::Binarizer", defineBinarizer);
  all.add("QuantizeLinear", defineQuantizeLinear, 10);
  all.add("DequantizeLinear", defineDequantizeLinear, 10);
  all.add("DynamicQuantizeLinear", defineDynamicQuantizeLinear, 11);
  all.add("QLinearMatMul", defineQLinearMatMul, 10);
  all.add("com.microsoft::MatMulIntegerToFloat", defineMatMulIntegerToFloat);
  all.add("com.microsoft::DynamicQuantizeMatMul", defineDynamicQuantizeMatMul);
}

} // namespace kvopt::meaning
