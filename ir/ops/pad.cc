// Pad.
#include "ir/op.h"

namespace kvopt::ir {

void register_pad(OpRegistry& registry) {
  define(registry, "Pad", 2)
      .in("data")
      .out("output")
      .attr("mode", "constant")
      .requiredAttr("pads", AttributeKind::Ints)
      .attr("value", 0.0f);
  define(registry, "Pad", 11)
      .in("data")
      .in("pads")
      .in("constant_value?")
      .out("output")
      .attr("mode", "constant");
  define(registry, "Pad", 18)
      .in("data")
      .in("pads")
      .in("constant_value?")
      .in("axes?")
      .out("output")
      .attr("mode", "constant");
}

} // namespace kvopt::ir
