// WeightForm: derivation of a constant from an initializer by transposes, casts and views, or by
// dequantization, without computing its elements.
#pragma once

#include "ir/graph.h"
#include "runtime/exec/constant_context.h"
#include "runtime/exec/constant_weights.h"

namespace kvopt::runtime {

struct WeightForm {
  enum class Kind {
    None,   ///< unknown, or not a format that products read
    Floats, ///< elements of `source`, widened
    Codes,  ///< (source - zero) * scale
  };
  Kind kind = Kind::None;
  const ir::Value* source = nullptr;
  /// Element type and extents of the derived constant.
  ir::ElementType element = ir::ElementType::Undefined;
  Extents shape;
  /// Whether its last two axes are swapped in `source`.
  bool transposed = false;
  /// For codes: operands of DequantizeLinear; `zero` may be null.
  const ir::Value* scale = nullptr;
  const ir::Value* zero = nullptr;
  int64_t axis = 0;  ///< axis of `source`, in [0,2)
  int64_t block = 0; ///< 0 without blocks

  /// Form of an initializer or of the result of a Constant node.
  static WeightForm ofConstant(const ir::Value& value);
  /// Form of the first result of `node`, whose first operand is `operand`.
  static WeightForm ofResult(const ir::Node& node, const WeightForm& operand);
};

/// Weights for operand `operand` of `product`, a MatMul, Gemm or FusedMatMul; null if products
/// cannot read this form, or if memory is short. Floating-point weights are read in place, and one
/// matrix of f32 can be kept in strips, too. Codes
/// are packed into `memory`, with float32 scales, one per column of the product's W or per block of
/// a multiple of 16 rows.
std::shared_ptr<const ConstantWeights> weightsOf(const WeightForm& form, const ir::Node& product,
                                                 ConstantMemory& memory, ThreadPool& pool);

} // namespace kvopt::runtime
