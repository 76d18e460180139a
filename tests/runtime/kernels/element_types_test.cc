// Every operator computes the same in every element type that its specification allows, as far as
// that type holds the numbers.
#include "tests/runtime/kernels/kernel_harness.h"

#include <functional>

namespace kvopt {
using namespace ir;

namespace {

using Element = ElementType;
using Elements = std::vector<ElementType>;

const Elements floatTypes = {Element::Float, Element::Double, Element::Float16, Element::BFloat16};
const Elements narrowFloats = {Element::Float, Element::Float16, Element::BFloat16};
const Elements signedTypes = {Element::Int8, Element::Int16, Element::Int32, Element::Int64};
const Elements unsignedTypes = {Element::UInt8, Element::UInt16, Element::UInt32, Element::UInt64};
const Elements boolTypes = {Element::Bool};
const Elements indexTypes = {Element::Int64, Element::Int32};
const Elements wideIntegers = {Element::Int32, Element::Int64, Element::UInt32, Element::UInt64};

Elements operator+(const Elements& a, const Elements& b) {
  Elements all = a;
  all.insert(all.end(), b.begin(), b.end());
  return all;
}
const Elements integerTypes = signedTypes + unsignedTypes;
const Elements numericTypes = floatTypes + integerTypes;
const Elements allTypes = numericTypes + boolTypes;

/// [2,3] of 1 2 3 4 5 6, of truth values 1 0 1 0 1 0.
TestTensor x(Element element) {
  if (element == Element::Bool)
    return {element, {2, 3}, {1, 0, 1, 0, 1, 0}};
  return {element, {2, 3}, {1, 2, 3, 4, 5, 6}};
}
/// [2,3] of 1 2 1 2 1 2.
TestTensor y(Element element) {
  if (element == Element::Bool)
    return {element, {2, 3}, {1, 1, 0, 0, 1, 1}};
  return {element, {2, 3}, {1, 2, 1, 2, 1, 2}};
}
TestTensor one(Element element, double value) { return {element, {}, {value}}; }

struct Row {
  const char* op;
  const char* varied; ///< what has the element type
  Elements elements;  ///< the first gives the expected results
  std::function<KernelResult(Element)> call;
  int64_t opset = 23;
};

void PrintTo(const Row& row, std::ostream* out) { *out << row.op << ", " << row.varied; }

Row unary(const char* op, const Elements& elements, int64_t opset = 23) {
  return {op, "X", elements, [=](Element e) { return KernelCall(op, opset).in(x(e)).run(); },
          opset};
}
Row binary(const char* op, const Elements& elements) {
  return {op, "A and B", elements,
          [=](Element e) { return KernelCall(op, 23).in(x(e)).in(y(e)).run(); }};
}
/// An operand of the given type, then integers.
Row with(const char* op, const Elements& elements, std::vector<TestTensor> more,
         int64_t opset = 23) {
  return {op, "data", elements,
          [=](Element e) {
            KernelCall call(op, opset);
            call.in(x(e));
            for (const TestTensor& operand : more)
              call.in(operand);
            return call.run();
          },
          opset};
}
Row indexed(const char* op, std::function<KernelResult(Element)> call) {
  return {op, "indices", indexTypes, std::move(call)};
}

std::vector<Row> arithmetic() {
  std::vector<Row> rows;
  for (const char* op : {"Add", "Mul", "Div", "Min", "Max"})
    rows.push_back(binary(op, numericTypes));
  // Nothing below zero: unsigned types have no such numbers.
  rows.push_back({"Sub", "A and B", numericTypes,
                  [](Element e) { return KernelCall("Sub", 23).in(x(e)).in(one(e, 1)).run(); }});
  rows.push_back(binary("Mod", integerTypes));
  rows.push_back({"Mod", "A and B, fmod", numericTypes, [](Element e) {
                    return KernelCall("Mod", 23).in(x(e)).in(y(e)).attr("fmod", 1).run();
                  }});
  const Elements bases = floatTypes + Elements{Element::Int32, Element::Int64};
  rows.push_back(binary("Pow", bases));
  for (Element base : bases)
    rows.push_back({"Pow", "Y", numericTypes,
                    [=](Element e) { return KernelCall("Pow", 23).in(x(base)).in(y(e)).run(); }});
  for (const char* op : {"Abs", "Sign"})
    rows.push_back(unary(op, numericTypes));
  rows.push_back(unary("Erf", floatTypes));
  rows.push_back(unary("Erf", integerTypes));
  for (const char* op : {"Neg", "Relu"})
    rows.push_back(unary(op, floatTypes + signedTypes));
  for (const char* op : {"Sqrt", "Reciprocal", "Exp", "Log", "Tanh", "Sigmoid", "Gelu", "Sin",
                         "Cos", "Floor", "Ceil", "Round", "Softplus", "Softmax", "LogSoftmax"})
    rows.push_back(unary(op, floatTypes));
  for (const char* op : {"Softmax", "LogSoftmax"})
    rows.push_back(unary(op, floatTypes, 12));
  for (const char* op : {"IsNaN", "IsInf"})
    rows.push_back(unary(op, floatTypes));
  rows.push_back(binary("Equal", allTypes));
  for (const char* op : {"Less", "LessOrEqual", "Greater", "GreaterOrEqual"})
    rows.push_back(binary(op, numericTypes));
  rows.push_back({"Clip", "X", numericTypes, [](Element e) {
                    return KernelCall("Clip", 23).in(x(e)).in(one(e, 2)).in(one(e, 5)).run();
                  }});
  return rows;
}

std::vector<Row> movement() {
  std::vector<Row> rows;
  for (const char* op :
       {"Transpose", "Flatten", "Squeeze", "Identity", "Shape", "Size", "Trilu", "NonZero"})
    rows.push_back(unary(op, allTypes));
  rows.push_back({"Concat", "inputs", allTypes, [](Element e) {
                    return KernelCall("Concat", 23).in(x(e)).in(y(e)).attr("axis", 1).run();
                  }});
  rows.push_back({"Split", "input", allTypes, [](Element e) {
                    return KernelCall("Split", 23)
                        .in(x(e))
                        .in(int64s({1, 2}))
                        .attr("axis", 1)
                        .results(2)
                        .run();
                  }});
  rows.push_back(with("Slice", allTypes, {int64s({1}), int64s({3}), int64s({1})}));
  rows.push_back(with("Expand", allTypes, {int64s({2, 2, 3})}));
  rows.push_back(with("Tile", allTypes, {int64s({2, 1})}));
  rows.push_back(with("Reshape", allTypes, {int64s({3, 2})}));
  rows.push_back(with("Unsqueeze", allTypes, {int64s({1})}));
  rows.push_back(with("Gather", allTypes, {int64s({1, 0})}));
  rows.push_back(with("GatherElements", allTypes, {int64s({1, 3}, {1, 0, 1})}));
  rows.push_back(with("GatherND", allTypes, {int64s({2, 2}, {1, 0, 0, 2})}));
  rows.push_back({"ScatterElements", "data", allTypes, [](Element e) {
                    return KernelCall("ScatterElements", 23)
                        .in(x(e))
                        .in(int64s({1, 3}, {1, 0, 1}))
                        .in(TestTensor(e, {1, 3}, {1, 0, 1}))
                        .run();
                  }});
  rows.push_back({"ScatterND", "data", allTypes, [](Element e) {
                    return KernelCall("ScatterND", 23)
                        .in(x(e))
                        .in(int64s({1, 2}, {1, 0}))
                        .in(TestTensor(e, {1}, {1}))
                        .run();
                  }});
  for (const char* reduction : {"add", "mul", "min", "max"}) {
    rows.push_back({"ScatterElements", reduction, numericTypes, [=](Element e) {
                      return KernelCall("ScatterElements", 23)
                          .in(x(e))
                          .in(int64s({1, 3}, {1, 0, 1}))
                          .in(TestTensor(e, {1, 3}, {1, 2, 3}))
                          .attr("reduction", reduction)
                          .run();
                    }});
    rows.push_back({"ScatterND", reduction, numericTypes, [=](Element e) {
                      return KernelCall("ScatterND", 23)
                          .in(x(e))
                          .in(int64s({2, 2}, {1, 0, 1, 0}))
                          .in(TestTensor(e, {2}, {3, 2}))
                          .attr("reduction", reduction)
                          .run();
                    }});
  }
  rows.push_back(
      {"Pad", "data", allTypes, [](Element e) {
         return KernelCall("Pad", 23).in(x(e)).in(int64s({1, 0, 0, 1})).in(one(e, 1)).run();
       }});
  rows.push_back(
      {"Where", "X and Y", allTypes, [](Element e) {
         return KernelCall("Where", 23).in(bools({1, 3}, {1, 0, 1})).in(x(e)).in(y(e)).run();
       }});
  rows.push_back({"TensorScatter", "cache", allTypes, [](Element e) {
                    TestTensor cache(e, {1, 4, 1}, {1, 0, 1, 0});
                    TestTensor update(e, {1, 2, 1}, {1, 1});
                    return KernelCall("TensorScatter", 24)
                        .in(cache)
                        .in(update)
                        .in(int64s({1}))
                        .attr("axis", 1)
                        .run();
                  }});
  rows.push_back({"ConstantOfShape", "value", allTypes, [](Element e) {
                    const TestTensor value = one(e, 1);
                    std::vector<std::byte> bytes(value.data(), value.data() + value.bytes());
                    return KernelCall("ConstantOfShape", 23)
                        .in(int64s({2, 3}))
                        .attr("value", Attribute::ofTensor(
                                           llvm::cantFail(makeTensor(e, {1}, std::move(bytes)))))
                        .run();
                  }});
  rows.push_back(indexed("Gather", [](Element e) {
    return KernelCall("Gather", 23).in(x(Element::Float)).in(TestTensor(e, {2}, {1, 0})).run();
  }));
  rows.push_back(indexed("GatherElements", [](Element e) {
    return KernelCall("GatherElements", 23)
        .in(x(Element::Float))
        .in(TestTensor(e, {1, 3}, {1, 0, 1}))
        .run();
  }));
  rows.push_back(indexed("ScatterElements", [](Element e) {
    return KernelCall("ScatterElements", 23)
        .in(x(Element::Float))
        .in(TestTensor(e, {1, 3}, {1, 0, 1}))
        .in(floats({1, 3}, {7, 8, 9}))
        .run();
  }));
  rows.push_back(indexed("Slice", [](Element e) {
    return KernelCall("Slice", 23)
        .in(x(Element::Float))
        .in(TestTensor(e, {1}, {1}))
        .in(TestTensor(e, {1}, {3}))
        .in(TestTensor(e, {1}, {1}))
        .run();
  }));
  return rows;
}

std::vector<Row> reductions() {
  std::vector<Row> rows;
  for (const char* op : {"ReduceSum", "ReduceMean", "ReduceProd", "ReduceSumSquare", "ReduceL1"})
    rows.push_back(with(op, floatTypes + wideIntegers, {int64s({0, 1})}));
  rows.push_back(with("ReduceL2", floatTypes, {int64s({1})}));
  for (const char* op : {"ReduceMax", "ReduceMin"})
    rows.push_back(
        with(op, floatTypes + wideIntegers + Elements{Element::Int8, Element::UInt8, Element::Bool},
             {int64s({1})}));
  for (const char* op : {"ArgMax", "ArgMin"})
    rows.push_back(unary(op, numericTypes));
  rows.push_back({"TopK", "X", numericTypes, [](Element e) {
                    return KernelCall("TopK", 23).in(x(e)).in(int64s({2})).results(2).run();
                  }});
  rows.push_back(with("CumSum", floatTypes + wideIntegers, {one(Element::Int64, 1)}));
  rows.push_back(indexed("CumSum", [](Element e) {
    return KernelCall("CumSum", 23).in(x(Element::Float)).in(one(e, 0)).run();
  }));
  rows.push_back({"OneHot", "values", allTypes, [](Element e) {
                    return KernelCall("OneHot", 23)
                        .in(int64s({1, 0}))
                        .in(one(Element::Int64, 3))
                        .in(TestTensor(e, {2}, {0, 1}))
                        .run();
                  }});
  rows.push_back({"OneHot", "indices and depth", numericTypes, [](Element e) {
                    return KernelCall("OneHot", 23)
                        .in(TestTensor(e, {2}, {1, 0}))
                        .in(one(e, 3))
                        .in(floats({2}, {0, 1}))
                        .run();
                  }});
  rows.push_back(
      {"Range", "all",
       Elements{Element::Float, Element::Double, Element::Int16, Element::Int32, Element::Int64},
       [](Element e) {
         return KernelCall("Range", 23).in(one(e, 1)).in(one(e, 8)).in(one(e, 2)).run();
       }});
  return rows;
}

std::vector<Row> linear() {
  std::vector<Row> rows;
  rows.push_back({"MatMul", "A and B", floatTypes + wideIntegers, [](Element e) {
                    return KernelCall("MatMul", 23).in(x(e)).in(y(e).reshaped({3, 2})).run();
                  }});
  rows.push_back(
      {"Gemm", "A, B and C", narrowFloats, [](Element e) {
         return KernelCall("Gemm", 23).in(x(e)).in(y(e)).in(one(e, 1)).attr("transB", 1).run();
       }});
  rows.push_back(
      {"Einsum", "inputs", numericTypes, [](Element e) {
         return KernelCall("Einsum", 23).in(x(e)).in(y(e)).attr("equation", "ij,kj->ik").run();
       }});
  rows.push_back({"Conv", "X, W and B", floatTypes, [](Element e) {
                    return KernelCall("Conv", 23)
                        .in(x(e).reshaped({1, 2, 3}))
                        .in(y(e).reshaped({1, 2, 3}))
                        .in(TestTensor(e, {1}, {1}))
                        .attr("pads", std::vector<int64_t>{1, 1})
                        .run();
                  }});
  for (Element b : {Element::Int8, Element::UInt8})
    rows.push_back({"MatMulInteger", "A", Elements{Element::Int8, Element::UInt8}, [=](Element e) {
                      return KernelCall("MatMulInteger", 23)
                          .in(x(e))
                          .in(y(b).reshaped({3, 2}))
                          .in(one(e, 1))
                          .in(one(b, 2))
                          .run();
                    }});
  rows.push_back(
      {"DequantizeLinear", "x",
       Elements{Element::Int8, Element::UInt8, Element::Int16, Element::UInt16, Element::Int32},
       [](Element e) {
         return KernelCall("DequantizeLinear", 23).in(x(e)).in(one(Element::Float, 0.5)).run();
       }});
  rows.push_back({"DequantizeLinear", "x_scale", narrowFloats, [](Element e) {
                    return KernelCall("DequantizeLinear", 23)
                        .in(x(Element::Int8))
                        .in(one(e, 0.5))
                        .in(one(Element::Int8, 1))
                        .run();
                  }});
  for (Element to : {Element::Int8, Element::UInt8, Element::Int16, Element::UInt16})
    rows.push_back(
        {"QuantizeLinear", "x and y_scale", narrowFloats, [=](Element e) {
           return KernelCall("QuantizeLinear", 23).in(x(e)).in(one(e, 0.5)).in(one(to, 3)).run();
         }});
  return rows;
}

std::vector<Row> decoders() {
  std::vector<Row> rows;
  rows.push_back({"LayerNormalization", "X, Scale and B", floatTypes, [](Element e) {
                    return KernelCall("LayerNormalization", 23)
                        .in(x(e))
                        .in(TestTensor(e, {3}, {1, 2, 1}))
                        .in(TestTensor(e, {3}, {1, 0, 1}))
                        .run();
                  }});
  for (const char* op : {"RMSNormalization", "SimplifiedLayerNormalization"})
    rows.push_back({op, "X and scale", floatTypes, [=](Element e) {
                      return KernelCall(op, 23).in(x(e)).in(TestTensor(e, {3}, {1, 2, 1})).run();
                    }});
  auto cube = [](Element e) { return TestTensor(e, {1, 1, 2, 2}, {1, 0.5, -1, 2}); };
  rows.push_back({"Attention", "Q, K and V", narrowFloats, [=](Element e) {
                    return KernelCall("Attention", 23).in(cube(e)).in(cube(e)).in(cube(e)).run();
                  }});
  for (Element mask : {Element::Float, Element::Float16})
    rows.push_back({"Attention", "attn_mask", allTypes, [=](Element e) {
                      return KernelCall("Attention", 23)
                          .in(cube(mask))
                          .in(cube(mask))
                          .in(cube(mask))
                          .in(TestTensor(e, {2, 2}, {1, 1, 1, 1}))
                          .run();
                    }});
  rows.push_back({"RotaryEmbedding", "X and caches", narrowFloats, [=](Element e) {
                    return KernelCall("RotaryEmbedding", 23)
                        .in(cube(e))
                        .in(TestTensor(e, {1, 2, 1}, {1, 0.5}))
                        .in(TestTensor(e, {1, 2, 1}, {0, 0.5}))
                        .run();
                  }});
  for (const char* op :
       {"com.microsoft::Gelu", "com.microsoft::FastGelu", "com.microsoft::QuickGelu"})
    rows.push_back(unary(op, narrowFloats));
  rows.push_back(
      {"com.microsoft::SkipSimplifiedLayerNormalization", "all", narrowFloats, [](Element e) {
         return KernelCall("com.microsoft::SkipSimplifiedLayerNormalization")
             .in(x(e).reshaped({1, 2, 3}))
             .in(y(e).reshaped({1, 2, 3}))
             .in(TestTensor(e, {3}, {1, 2, 1}))
             .run();
       }});
  rows.push_back({"com.microsoft::SkipLayerNormalization", "all", narrowFloats, [](Element e) {
                    return KernelCall("com.microsoft::SkipLayerNormalization")
                        .in(x(e).reshaped({1, 2, 3}))
                        .in(y(e).reshaped({1, 2, 3}))
                        .in(TestTensor(e, {3}, {1, 2, 1}))
                        .in(TestTensor(e, {3}, {0, 2, 1}))
                        .run();
                  }});
  rows.push_back(
      {"com.microsoft::RotaryEmbedding", "input and caches", narrowFloats, [=](Element e) {
         return KernelCall("com.microsoft::RotaryEmbedding")
             .in(cube(e))
             .in(int64s({1, 2}, {0, 1}))
             .in(TestTensor(e, {2, 1}, {1, 0.5}))
             .in(TestTensor(e, {2, 1}, {0, 0.5}))
             .run();
       }});
  return rows;
}

/// Units in the last place of `element` at `value`, as a part of it.
double roundingOf(Element element) {
  switch (element) {
  case Element::Float16:
    return 0x1p-9;
  case Element::BFloat16:
    return 0x1p-6;
  case Element::Float:
    return 0x1p-20;
  default:
    return 0x1p-20; // the expected number is computed in f32
  }
}

class ElementTypesTest : public testing::TestWithParam<Row> {};

TEST_P(ElementTypesTest, EveryTypeGivesTheSameNumbers) {
  const Row& row = GetParam();
  const KernelResult expected = row.call(row.elements.front());
  ASSERT_EQ(expected.error, "") << onnxName(row.elements.front()).str();
  for (Element element : row.elements) {
    SCOPED_TRACE(onnxName(element).str());
    const KernelResult result = row.call(element);
    ASSERT_EQ(result.outputs.size(), expected.outputs.size());
    EXPECT_EQ(result.error, "");
    // Truth values are other numbers.
    if (!result.ok() || (element == Element::Bool) != (row.elements.front() == Element::Bool))
      continue;
    for (size_t i = 0; i < expected.outputs.size(); ++i) {
      ASSERT_EQ(result.outputs[i].shape(), expected.outputs[i].shape());
      const bool rounds =
          isInteger(result.outputs[i].element()) && isFloatingPoint(expected.outputs[i].element());
      for (int64_t at = 0; at < expected.outputs[i].count(); ++at) {
        double wanted = expected.outputs[i].get(at);
        // Means and quotients of integers are integers, rounded towards zero.
        if (rounds)
          wanted = std::trunc(wanted + std::copysign(1e-5, wanted));
        EXPECT_NEAR(result.outputs[i].get(at), wanted,
                    isFloatingPoint(element) ? roundingOf(element) * (std::abs(wanted) + 1) : 0.0)
            << "element " << at << " of result " << i;
      }
    }
  }
}

std::string nameOf(const testing::TestParamInfo<Row>& row) {
  std::string name = row.param.op;
  name = name.substr(name.find_last_of(':') + 1);
  return formatted("{}_{}", name, row.index);
}

INSTANTIATE_TEST_SUITE_P(Arithmetic, ElementTypesTest, testing::ValuesIn(arithmetic()), nameOf);
INSTANTIATE_TEST_SUITE_P(Movement, ElementTypesTest, testing::ValuesIn(movement()), nameOf);
INSTANTIATE_TEST_SUITE_P(Reductions, ElementTypesTest, testing::ValuesIn(reductions()), nameOf);
INSTANTIATE_TEST_SUITE_P(Linear, ElementTypesTest, testing::ValuesIn(linear()), nameOf);
INSTANTIATE_TEST_SUITE_P(Decoders, ElementTypesTest, testing::ValuesIn(decoders()), nameOf);

TEST(ElementTypes, CastConvertsEveryTypeToEveryOther) {
  for (Element from : allTypes)
    for (Element to : allTypes)
      for (bool like : {false, true}) {
        KernelCall call(like ? "CastLike" : "Cast", 23);
        call.in(TestTensor(from, {2}, {1, 0}));
        if (like)
          call.in(one(to, 0));
        else
          call.attr("to", static_cast<int>(to));
        const KernelResult result = call.run();
        SCOPED_TRACE(formatted("{} to {}", onnxName(from).str(), onnxName(to).str()));
        expectTensor(result, {2}, {1, 0});
        if (result.ok()) {
          EXPECT_EQ(result.outputs[0].element(), to);
        }
      }
}

} // namespace
} // namespace kvopt
