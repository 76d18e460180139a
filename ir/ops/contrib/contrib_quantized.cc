// Products of 8-bit codes in ONNX Runtime's domain com.microsoft.
#include "ir/op.h"
#include "ir/ops/contrib/contrib_domain.h"

namespace kvopt::ir {

void register_contrib_quantized(OpRegistry& registry) {
  OpDefBuilder integers = define(registry, OpName(contribDomain, "MatMulIntegerToFloat"), 1);
  for (const char* name :
       {"A", "B", "a_scale", "b_scale", "a_zero_point?", "b_zero_point?", "bias?"})
    integers.in(name);
  integers.out("Y");
  OpDefBuilder dynamic = define(registry, OpName(contribDomain, "DynamicQuantizeMatMul"), 1);
  for (const char* name : {"A", "B", "b_scale", "b_zero_point?", "bias?"})
    dynamic.in(name);
  dynamic.out("Y");
}

} // namespace kvopt::ir
