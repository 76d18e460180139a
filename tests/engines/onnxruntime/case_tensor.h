// Tensors of operands and results, for tests of the library in ONNX Runtime.
#pragma once

#include "ir/element_type.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvopt {

/// A tensor of an operand or result.
struct CaseTensor {
  ir::ElementType element = ir::ElementType::Undefined;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;

  int64_t count() const;
  double get(int64_t index) const;
  /// Rounds the number to the element type.
  void set(int64_t index, double number);
};

/// Random numbers, rounded to the element type; integers of int8 over their whole range.
CaseTensor randomOf(ir::ElementType element, std::vector<int64_t> shape, unsigned seed,
                    double spread = 1);
CaseTensor filledWith(ir::ElementType element, std::vector<int64_t> shape, double number);
CaseTensor lengthsOf(std::vector<int64_t> lengths);

} // namespace kvopt
