// Casts, copies, and values that depend only on shapes.
#include "ir/shapes/shape_rules.h"

#include <algorithm>
#include <cmath>

namespace kvopt::ir {

void register_conversion(OpRegistry& registry) {
  define(registry, "Cast", 6)
      .in("input")
      .out("output")
      .requiredAttr("to", AttributeKind::Int)
      .moves(MovementKind::Convert);
  define(registry, "Cast", 19)
      .in("input")
      .out("output")
      .requiredAttr("to", AttributeKind::Int)
      .attr("saturate", int64_t{1})
      .moves(MovementKind::Convert);
  define(registry, "Cast", 24)
      .in("input")
      .out("output")
      .requiredAttr("to", AttributeKind::Int)
      .attr("saturate", int64_t{1})
      .attr("round_mode", "up")
      .moves(MovementKind::Convert);
  define(registry, "BitCast", 26)
      .in("input")
      .out("output")
      .requiredAttr("to", AttributeKind::Int)
      .elementwise(ElementFunction::Bits);
  define(registry, "CastLike", 15)
      .in("input")
      .in("target_type")
      .out("output")
      .moves(MovementKind::Convert);
  define(registry, "CastLike", 19)
      .in("input")
      .in("target_type")
      .out("output")
      .attr("saturate", int64_t{1})
      .moves(MovementKind::Convert);
  define(registry, "Identity", 1).in("input").out("output").moves(MovementKind::Same).view();
  define(registry, "Dropout", 7).in("data").out("output").out("mask?").attr("ratio", 0.5f);
  define(registry, "Dropout", 12)
      .in("data")
      .in("ratio?")
      .in("training_mode?")
      .out("output")
      .out("mask?")
      .attr("seed", AttributeKind::Int);
  define(registry, "Constant", 1).out("output").requiredAttr("value", AttributeKind::Tensor);
  define(registry, "Constant", 11)
      .out("output")
      .attr("value", AttributeKind::Tensor)
      .attr("sparse_value", AttributeKind::SparseTensor);
  define(registry, "Constant", 12)
      .out("output")
      .attr("value", AttributeKind::Tensor)
      .attr("sparse_value", AttributeKind::SparseTensor)
      .attr("value_int", AttributeKind::Int)
      .attr("value_ints", AttributeKind::Ints)
      .attr("value_float", AttributeKind::Float)
      .attr("value_floats", AttributeKind::Floats)
      .attr("value_string", AttributeKind::String)
      .attr("value_strings", AttributeKind::Strings);
  define(registry, "ConstantOfShape", 9)
      .in("input")
      .out("output")
      .attr("value", AttributeKind::Tensor);
  define(registry, "Shape", 1).in("data").out("shape");
  define(registry, "Shape", 15)
      .in("data")
      .out("shape")
      .attr("start", int64_t{0})
      .attr("end", AttributeKind::Int);
  define(registry, "Size", 1).in("data").out("size");
  define(registry, "Range", 11).in("start").in("limit").in("delta").out("output");
  define(registry, "Range", 27)
      .in("start")
      .in("limit")
      .in("delta")
      .out("output")
      .attr("stash_type", int64_t{1});
}

} // namespace kvopt::ir
