// WeightForm: how a constant follows from an initializer by transposes, casts and views, or by
// dequantization, without any of its elements being computed.
#pragma once

#include "ir/graph.h"
#include "runtime/exec/constant_context.h"
#include "runtime/exec/constant_weights.h"

namespace kvopt::runtime {

struct WeightForm {
  enum class Kind {
    None,   ///< not known, or not of a form that products read
    Floats, ///< elements of `source`, widened
    Codes,  ///< (source - zero) * scale
  };
  Kind kind = Kind::None;
  const ir::Value* source = nullptr;
  /// Element type and extents of the constant that is described.
  ir::ElementType element = ir::ElementType::Undefined;
  Extents shape;
  /// Its last two axes are swapped in `source`.
  bool transposed = false;
  /// Codes: operands of DequantizeLinear, of which `zero` may be null.
  const ir::Value* scale = nullptr;
  const ir::Value* zero = nullptr;
  int64_t axis = 0;  ///< of `source`, in [0,2)
  int64_t block = 0; ///< 0 where there are no blocks

  /// An initializer or the result of a Constant node.
  static WeightForm ofConstant(const ir::Value& value);
  /// The first result of `node`, whose first operand is `operand`.
  static WeightForm ofResult(const ir::Node& node, const WeightForm& operand);
};

/// The weights that operand `operand` of `product`, a MatMul, Gemm or FusedMatMul, reads; null
/// where products cannot read this form. Floating-point weights are read where they are. Codes are
/// packed in `memory`, with float32 scales, one per column of the product's W or per block of a
/// multiple of 16 rows; null when memory is short.
std::shared_ptr<const ConstantWeights> weightsOf(const WeightForm& form, const ir::Node& product,
                                                 ConstantMemory& memory, ThreadPool& pool);

} // namespace kvopt::runtime
