// Operators that return their first operand with some elements changed.
#include "ir/op.h"

namespace kvopt::ir {

void register_scatter(OpRegistry& registry) {
  define(registry, "ScatterElements", 11)
      .in("data")
      .in("indices")
      .in("updates")
      .out("output")
      .attr("axis", int64_t{0})
      .reuse(0, 0);
  define(registry, "ScatterElements", 16)
      .in("data")
      .in("indices")
      .in("updates")
      .out("output")
      .attr("axis", int64_t{0})
      .attr("reduction", "none")
      .reuse(0, 0);
  define(registry, "ScatterND", 11)
      .in("data")
      .in("indices")
      .in("updates")
      .out("output")
      .reuse(0, 0);
  define(registry, "ScatterND", 16)
      .in("data")
      .in("indices")
      .in("updates")
      .out("output")
      .attr("reduction", "none")
      .reuse(0, 0);
  define(registry, "TensorScatter", 24)
      .in("past_cache")
      .in("update")
      .in("write_indices?")
      .out("present_cache")
      .attr("axis", int64_t{-2})
      .attr("mode", "linear")
      .reuse(0, 0);
  const std::pair<const char*, int64_t> running[] = {{"CumSum", 11}, {"CumProd", 26}};
  for (const auto& [name, since] : running)
    define(registry, name, since)
        .in("x")
        .in("axis")
        .out("y")
        .attr("exclusive", int64_t{0})
        .attr("reverse", int64_t{0});
  define(registry, "Trilu", 14).in("input").in("k?").out("output").attr("upper", int64_t{1});
}

} // namespace kvopt::ir
