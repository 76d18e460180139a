// Comparisons, boolean operators and selection.
#include "ir/elementwise_definition.h"

namespace kvopt::ir {

void register_logic(OpRegistry& registry) {
  using enum ElementFunction;
  const auto compare = [&](const char* name, int64_t since) {
    defineElementwise(registry, name, since, {"A", "B"}, "C", Comparison);
  };
  compare("Equal", 7);
  compare("Less", 7);
  compare("LessOrEqual", 12);
  compare("Greater", 7);
  compare("GreaterOrEqual", 12);
  defineElementwise(registry, "And", 7, {"A", "B"}, "C", Logic);
  defineElementwise(registry, "Or", 7, {"A", "B"}, "C", Logic);
  defineElementwise(registry, "Xor", 7, {"A", "B"}, "C", Logic);
  defineElementwise(registry, "Not", 1, {"X"}, "Y", Logic);
  for (const char* name : {"BitwiseAnd", "BitwiseOr", "BitwiseXor"})
    defineElementwise(registry, name, 18, {"A", "B"}, "C", Bits);
  defineElementwise(registry, "BitwiseNot", 18, {"X"}, "Y", Bits);
  defineElementwise(registry, "BitShift", 11, {"X", "Y"}, "Z", Bits)
      .requiredAttr("direction", AttributeKind::String);
  defineElementwise(registry, "IsNaN", 9, {"X"}, "Y", Test);
  defineElementwise(registry, "IsInf", 10, {"X"}, "Y", Test)
      .attr("detect_negative", int64_t{1})
      .attr("detect_positive", int64_t{1});
  defineElementwise(registry, "Where", 9, {"condition", "X", "Y"}, "output", Choice);
}

} // namespace kvopt::ir
