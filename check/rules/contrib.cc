// Rules of ONNX Runtime's quantized products: the weights that their codes represent are unknown
// numbers.
#include "check/arithmetic/call.h"

#include <cstring>

namespace kvopt::check {
namespace {

uint64_t contentsHash(const Tensor& tensor) {
  uint64_t hash = mixBits(static_cast<uint64_t>(tensor.type));
  for (int64_t extent : tensor.shape)
    hash = mixBits(hash ^ static_cast<uint64_t>(extent));
  for (int64_t value : tensor.integers)
    hash = mixBits(hash ^ static_cast<uint64_t>(value));
  for (double value : tensor.known) {
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    hash = mixBits(hash ^ bits);
  }
  for (const Exact& value : tensor.reals)
    hash = mixBits(hash ^ value.p ^ (uint64_t(value.status) << 40));
  return hash;
}

/// A product with weights in blocks of codes. Equal codes, scales, offsets and orders are equal
/// weights.
Results matMulNBits(Call& call) {
  const int64_t inner = call.integer("K", 0), columns = call.integer("N", 0);
  if (inner <= 0 || columns <= 0 || elementCount({inner, columns}) < 0 || call.in(0)->rank() == 0)
    return call.unsupported("its sizes are unknown");
  if (call.in(0)->isHollow) {
    Extents shape = call.in(0)->shape;
    shape.back() = columns;
    return call.hollow(shape);
  }
  uint64_t hash = nameHash("MatMulNBits") ^ uint64_t(call.integer("bits", 4)) ^
                  uint64_t(call.integer("block_size", 0)) << 8;
  constexpr unsigned bias = 5;
  for (unsigned i = 1; i < bias; ++i)
    if (call.in(i))
      hash = mixBits(mixBits(hash ^ i) ^ contentsHash(*call.in(i)));
  auto weights = std::make_shared<Tensor>();
  weights->shape = {inner, columns};
  for (int64_t i = 0; i < inner * columns; ++i)
    weights->reals.push_back(call.field().arbitrary(mixBits(hash) + static_cast<uint64_t>(i)));
  Ref product = matrixProduct(call, call.real(0), weights);
  if (product && call.in(bias))
    product = addReals(call, product, call.real(bias));
  return product ? Results{product} : call.fail("its operands do not fit");
}

Results biasGelu(Call& call) {
  const Ref sum = addReals(call, call.real(0), call.real(1));
  return sum ? Results{unknownOf(call, "Gelu", sum)} : call.fail("its operands do not fit");
}

} // namespace

void addContribRules(RuleTable& rules) {
  rules["com.microsoft::MatMulNBits"] = matMulNBits;
  rules["com.microsoft::BiasGelu"] = biasGelu;
}

} // namespace kvopt::check
