// Elementwise arithmetic.
#include "ir/elementwise_definition.h"

#include <limits>

namespace kvopt::ir {

void register_arithmetic(OpRegistry& registry) {
  using enum ElementFunction;
  defineElementwise(registry, "Add", 7, {"A", "B"}, "C", Sum);
  defineElementwise(registry, "Sub", 7, {"A", "B"}, "C", Sum);
  defineElementwise(registry, "Mul", 7, {"A", "B"}, "C", Product);
  defineElementwise(registry, "Div", 7, {"A", "B"}, "C", Quotient);
  defineElementwise(registry, "Pow", 7, {"X", "Y"}, "Z", Nonlinear);
  defineElementwise(registry, "Mod", 10, {"A", "B"}, "C", Quotient).attr("fmod", int64_t{0});
  defineElementwise(registry, "Min", 8, {"data_0+"}, "min", Bound);
  defineElementwise(registry, "Max", 8, {"data_0+"}, "max", Bound);
  defineElementwise(registry, "Sum", 6, {"data_0+"}, "sum", Sum);
  defineElementwise(registry, "Mean", 6, {"data_0+"}, "mean", Sum);
  defineElementwise(registry, "Neg", 6, {"X"}, "Y", Sum);
  defineElementwise(registry, "Abs", 6, {"X"}, "Y", Nonlinear);
  defineElementwise(registry, "Floor", 6, {"X"}, "Y", Rounding);
  defineElementwise(registry, "Ceil", 6, {"X"}, "Y", Rounding);
  defineElementwise(registry, "Round", 11, {"X"}, "Y", Rounding);
  defineElementwise(registry, "Softplus", 1, {"X"}, "Y", Nonlinear);
  for (const char* name : {"Sqrt", "Reciprocal", "Exp"})
    defineElementwise(registry, name, 6, {"X"}, "Y", Nonlinear);
  const auto function = [&](const char* name, int64_t since) {
    defineElementwise(registry, name, since, {"input"}, "output", Nonlinear);
  };
  function("Log", 6);
  for (const char* name : {"Sin", "Cos", "Tan", "Asin", "Acos", "Atan"})
    function(name, 7);
  for (const char* name : {"Sinh", "Cosh", "Asinh", "Acosh", "Atanh", "Sign"})
    function(name, 9);
  defineElementwise(registry, "Clip", 6, {"input"}, "output", Bound)
      .attr("min", std::numeric_limits<float>::lowest())
      .attr("max", std::numeric_limits<float>::max());
  defineElementwise(registry, "Clip", 11, {"input", "min?", "max?"}, "output", Bound);
}

} // namespace kvopt::ir
