// Results of single nodes from definitions: edge cases, element types, and what is refused.
#include "ir/op.h"
#include "ir/text/reader.h"
#include "meaning/numbers/element_access.h"
#include "meaning/numbers/node_numbers.h"
#include "support/diagnostic.h"

#include <gmock/gmock.h>

#include <numeric>

namespace kvopt::meaning {
namespace {

using ir::ElementType;
using testing::ElementsAre;
using testing::HasSubstr;

/// An operand with its elements as doubles.
struct Numbers {
  ElementType type = ElementType::Float;
  llvm::SmallVector<int64_t, 6> extents;
  std::vector<double> elements;
};

Numbers floats(llvm::ArrayRef<int64_t> extents, std::vector<double> elements) {
  return {ElementType::Float, {extents.begin(), extents.end()}, std::move(elements)};
}
Numbers integers(llvm::ArrayRef<int64_t> extents, std::vector<double> elements) {
  return {ElementType::Int64, {extents.begin(), extents.end()}, std::move(elements)};
}
Numbers counting(llvm::ArrayRef<int64_t> extents) {
  const int64_t count =
      std::accumulate(extents.begin(), extents.end(), int64_t{1}, std::multiplies<>());
  std::vector<double> elements(static_cast<size_t>(count));
  std::iota(elements.begin(), elements.end(), 0);
  return floats(extents, std::move(elements));
}

class NodeNumbersTest : public testing::Test {
protected:
  NodeNumbersTest() {
    ir::registerAll(ops);
    registerAll(definitions);
  }

  /// Computes `call`, as in "Slice <axis = 1> (a, b)", whose operands are a, b, c, …; a null
  /// operand is absent.
  llvm::Error compute(const std::string& call, const std::vector<Numbers>& operands,
                      int64_t opset = 21) {
    std::string inputs;
    for (size_t k = 0; k < operands.size(); ++k)
      inputs +=
          formatted("{}{}[{}] {}", k ? ", " : "", ir::onnxName(operands[k].type).str(),
                    joinedExtents(operands[k].extents), std::string(1, static_cast<char>('a' + k)));
    const std::string text =
        formatted("<ir_version: 10, opset_import: [\"\" : {}, \"com.microsoft\" : 1, "
                  "\"ai.onnx.ml\" : 3]>\n"
                  "g ({}) => (float r) {{\n  r, second = {}\n}}",
                  opset, inputs, call);
    auto model = ir::readText(withResults(text, call), ops);
    if (!model)
      return model.takeError();
    const ir::Node& node = *(*model)->graph().nodes().begin();
    std::vector<std::vector<std::byte>> bytes(operands.size());
    std::vector<Array> arrays(operands.size());
    std::vector<const Array*> all;
    for (size_t k = 0; k < operands.size(); ++k) {
      arrays[k].type = operands[k].type;
      arrays[k].extents = operands[k].extents;
      bytes[k].resize(operands[k].elements.size() * widthInMemory(operands[k].type));
      if (sortOf(operands[k].type) == Sort::Real) {
        storeReals(operands[k].type, bytes[k].data(), 0, operands[k].elements.data(),
                   operands[k].elements.size());
      } else {
        const std::vector<int64_t> whole(operands[k].elements.begin(), operands[k].elements.end());
        storeIntegers(operands[k].type, bytes[k].data(), 0, whole.data(), whole.size());
      }
      arrays[k].data = bytes[k].data();
    }
    for (const ir::Use& use : node.operands())
      all.push_back(use.value() ? &arrays[static_cast<size_t>(use.value()->name()[0] - 'a')]
                                : nullptr);
    const Define define = definitions.find(node.op(), opset);
    if (!define)
      return unsupported("not defined");
    std::vector<std::vector<std::byte>> stored(2);
    results.assign(2, {});
    llvm::Error error =
        computeNode(define, node, opset, all,
                    [&](unsigned k, ElementType type,
                        llvm::ArrayRef<int64_t> extents) -> llvm::Expected<std::byte*> {
                      results[k].type = type;
                      results[k].extents.assign(extents.begin(), extents.end());
                      results[k].elements.resize(static_cast<size_t>(std::accumulate(
                          extents.begin(), extents.end(), int64_t{1}, std::multiplies<>())));
                      stored[k].resize(results[k].elements.size() * widthInMemory(type) + 1);
                      return stored[k].data();
                    });
    if (error)
      return error;
    for (size_t k = 0; k < 2; ++k)
      for (size_t place = 0; place < results[k].elements.size(); ++place) {
        const auto at = static_cast<int64_t>(place);
        int64_t whole = 0;
        if (sortOf(results[k].type) == Sort::Real) {
          loadReals(results[k].type, stored[k].data(), &at, 1, &results[k].elements[place]);
        } else {
          loadIntegers(results[k].type, stored[k].data(), &at, 1, &whole);
          results[k].elements[place] = static_cast<double>(whole);
        }
      }
    return llvm::Error::success();
  }

  void expect(const std::string& call, const std::vector<Numbers>& operands,
              llvm::ArrayRef<int64_t> extents, const std::vector<double>& elements,
              int64_t opset = 21) {
    SCOPED_TRACE(call);
    if (llvm::Error error = compute(call, operands, opset)) {
      ADD_FAILURE() << takeDiagnostic(std::move(error)).str();
      return;
    }
    EXPECT_EQ(llvm::ArrayRef<int64_t>(results[0].extents), extents);
    EXPECT_EQ(results[0].elements, elements);
  }
  std::string errorOf(const std::string& call, const std::vector<Numbers>& operands,
                      int64_t opset = 21) {
    if (llvm::Error error = compute(call, operands, opset))
      return takeDiagnostic(std::move(error)).str();
    return "";
  }

  static std::string joinedExtents(llvm::ArrayRef<int64_t> extents) {
    std::string all;
    for (int64_t extent : extents)
      all += (all.empty() ? "" : ", ") + std::to_string(extent);
    return all;
  }
  /// Only operators with two results name the second.
  static std::string withResults(std::string text, const std::string& call) {
    const bool hasTwo = call.starts_with("TopK") || call.starts_with("MaxPool");
    if (const size_t at = text.find("r, second"); !hasTwo && at != std::string::npos)
      text.replace(at, 9, "r");
    return text;
  }

  ir::OpRegistry ops;
  Definitions definitions;
  std::vector<Numbers> results;
};

TEST_F(NodeNumbersTest, PlacesFromEitherEnd) {
  const Numbers data = counting({2, 4});
  expect(
      "Slice (a, b, c, d, e)",
      {data, integers({1}, {-1}), integers({1}, {-100}), integers({1}, {1}), integers({1}, {-2})},
      {2, 2}, {3, 1, 7, 5});
  expect("Slice (a, b, c, d)",
         {data, integers({1}, {1}), integers({1}, {9e18}), integers({1}, {-1})}, {2, 3},
         {1, 2, 3, 5, 6, 7});
  expect("Gather <axis = 1> (a, b)", {data, integers({2}, {-1, 0})}, {2, 2}, {3, 0, 7, 4});
  expect("GatherND <batch_dims = 1> (a, b)", {data, integers({2, 1}, {-1, 1})}, {2}, {3, 5});
  expect("Pad (a, b)", {data, integers({4}, {0, -1, 1, 0})}, {3, 3}, {1, 2, 3, 5, 6, 7, 0, 0, 0});
  EXPECT_THAT(errorOf("Gather (a, b)", {data, integers({1}, {2})}),
              HasSubstr("an index is outside of axis 0"));
  EXPECT_THAT(errorOf("GatherElements <axis = 1> (a, b)", {data, integers({1, 1}, {-5})}),
              HasSubstr("an index is outside of axis 1"));
  EXPECT_THAT(errorOf("ScatterND (a, b, c)", {data, integers({1, 1}, {7}), counting({1, 4})}),
              HasSubstr("an index is outside of axis 0"));
}

TEST_F(NodeNumbersTest, UpdatesOfOnePlace) {
  const Numbers data = floats({3}, {1, 1, 1}), places = integers({3}, {0, 2, 0}),
                updates = floats({3}, {2, 3, 4});
  expect("ScatterElements (a, b, c)", {data, places, updates}, {3}, {4, 1, 3});
  expect("ScatterElements <reduction = \"add\"> (a, b, c)", {data, places, updates}, {3},
         {7, 1, 4});
  expect("ScatterElements <reduction = \"max\"> (a, b, c)", {data, places, updates}, {3},
         {4, 1, 3});
  expect("ScatterElements <reduction = \"min\"> (a, b, c)", {data, places, updates}, {3},
         {1, 1, 1});
}

TEST_F(NodeNumbersTest, EmptyAxes) {
  expect("ReduceSum <keepdims = 0> (a, b)", {counting({2, 0}), integers({1}, {1})}, {2}, {0, 0});
  expect("ReduceProd <keepdims = 0> (a, b)", {counting({2, 0}), integers({1}, {1})}, {2}, {1, 1});
  expect("MatMul (a, b)", {counting({2, 0}), counting({0, 2})}, {2, 2}, {0, 0, 0, 0});
  expect("Concat <axis = 0> (a, b)", {counting({0}), counting({2})}, {2}, {0, 1});
  expect("Reshape <allowzero = 1> (a, b)", {counting({0, 3}), integers({2}, {3, 0})}, {3, 0}, {});
}

TEST_F(NodeNumbersTest, TypesOfElements) {
  const Numbers small{ElementType::Int8, {3}, {127, -128, 100}};
  expect("Add (a, b)", {small, small}, {3}, {-2, 0, -56});
  expect("Neg (a)", {small}, {3}, {-127, -128, -100});
  // The nearest half, ties to even; a sum is rounded once.
  const Numbers halves{ElementType::Float16, {3}, {2048, 1, 0.1}};
  expect("Add (a, b)", {halves, Numbers{ElementType::Float16, {1}, {1}}}, {3},
         {2048, 2, 1.099609375});
  const Numbers brains{ElementType::BFloat16, {2}, {256, 3}};
  expect("Add (a, b)", {brains, Numbers{ElementType::BFloat16, {1}, {1}}}, {2}, {256, 4});
  expect("Div (a, b)", {integers({4}, {7, -7, 7, -7}), integers({4}, {2, 2, -2, -2})}, {4},
         {3, -3, -3, 3});
  expect("Mod (a, b)", {integers({4}, {7, -7, 7, -7}), integers({4}, {3, 3, -3, -3})}, {4},
         {1, 2, -2, -1});
  expect("Mod <fmod = 1> (a, b)", {integers({2}, {7, -7}), integers({1}, {3})}, {2}, {1, -1});
  expect("Cast <to = 6> (a)", {floats({3}, {1.9, -1.9, 3})}, {3}, {1, -1, 3});
  expect("Cast <to = 9> (a)", {floats({3}, {0, -0.5, 2})}, {3}, {0, 1, 1});
  expect("BitwiseXor (a, b)",
         {Numbers{ElementType::UInt8, {2}, {12, 255}}, Numbers{ElementType::UInt8, {1}, {10}}}, {2},
         {6, 245});
}

TEST_F(NodeNumbersTest, CodesEndAtTheLimitsOfTheirType) {
  const Numbers data = floats({4}, {-1000, 1000, 2.5, -3.5});
  auto quantized = [&](ElementType type, std::vector<double> codes) {
    expect("QuantizeLinear (a, b, c)", {data, floats({}, {1}), Numbers{type, {}, {0}}}, {4},
           std::move(codes));
  };
  quantized(ElementType::Int8, {-128, 127, 2, -4});
  quantized(ElementType::UInt8, {0, 255, 2, 0});
  quantized(ElementType::Int4, {-8, 7, 2, -4});
  quantized(ElementType::UInt4, {0, 15, 2, 0});
  quantized(ElementType::Int16, {-1000, 1000, 2, -4});
}

TEST_F(NodeNumbersTest, NothingIsBeyondAnEnd) {
  expect("Range (a, b, c)", {floats({}, {5}), floats({}, {2}), floats({}, {1})}, {0}, {});
  expect("Range (a, b, c)", {integers({}, {2}), integers({}, {5}), integers({}, {-1})}, {0}, {});
  // The range of codes has a 0.
  expect("DynamicQuantizeLinear (a)", {floats({2}, {-2, -0.5})}, {2}, {0, 191});
  // A step that is longer than the window.
  expect("MaxPool <kernel_shape = [1], strides = [2], auto_pad = \"SAME_UPPER\"> (a)",
         {counting({1, 1, 4})}, {1, 1, 2}, {0, 2});
}

TEST_F(NodeNumbersTest, EqualOnesAndTies) {
  expect("MaxPool <kernel_shape = [2]> (a)", {floats({1, 1, 3}, {2, 2, 1})}, {1, 1, 2}, {2, 2});
  EXPECT_THAT(results[1].elements, ElementsAre(0, 1));
  expect("MaxUnpool <kernel_shape = [2], strides = [2]> (a, b)",
         {floats({1, 1, 2}, {5, 6}), integers({1, 1, 2}, {1, 1})}, {1, 1, 4}, {0, 6, 0, 0});
  expect("Shrink (a)", {floats({4}, {0.5, -0.5, 0.75, -1})}, {4}, {0, 0, 0.75, -1});
  expect("ai.onnx.ml.Binarizer (a)", {floats({3}, {-1, 0, 1})}, {3}, {0, 0, 1});
  expect("DynamicQuantizeLinear (a)", {floats({2}, {-0.5, 254.5})}, {2}, {0, 254});
}

TEST_F(NodeNumbersTest, DefaultsOfAttributes) {
  expect("DepthToSpace <blocksize = 2> (a)", {counting({1, 8, 1, 1})}, {1, 2, 2, 2},
         {0, 2, 4, 6, 1, 3, 5, 7});
  expect("LRN <size = 1, alpha = 1.0, bias = 0.0> (a)", {floats({1, 1, 1}, {4})}, {1, 1, 1}, {0.5});
  expect("NegativeLogLikelihoodLoss (a, b)",
         {floats({2, 2}, {-1, -2, -3, -5}), integers({2}, {0, 1})}, {}, {3});
  expect("ReverseSequence (a, b)", {counting({2, 2}), integers({2}, {2, 1})}, {2, 2}, {2, 1, 0, 3});
}

TEST_F(NodeNumbersTest, OneNumberForEachPlace) {
  const auto bytes = [](llvm::ArrayRef<int64_t> extents, std::vector<double> elements) {
    return Numbers{ElementType::UInt8, {extents.begin(), extents.end()}, std::move(elements)};
  };
  const Numbers one = floats({}, {1}), zero = bytes({}, {0});
  expect("MatMulInteger (a, b, c, d)",
         {bytes({1, 1}, {1}), bytes({1, 2}, {5, 5}), zero, bytes({2}, {1, 2})}, {1, 2}, {4, 3});
  expect("QLinearMatMul (a, b, c, d, e, f, g, h)",
         {bytes({2, 1}, {4, 4}), floats({2}, {1, 2}), zero, bytes({1, 2}, {1, 1}), one, zero, one,
          zero},
         {2, 2}, {4, 4, 8, 8});
  expect("DequantizeLinear <axis = 0, block_size = 2> (a, b)",
         {bytes({4}, {1, 1, 1, 1}), floats({2}, {1, 3})}, {4}, {1, 1, 3, 3});
  // A scale for each group, before version 21.
  expect("GroupNormalization <num_groups = 2> (a, b, c)",
         {floats({1, 4, 1}, {0, 0, 0, 0}), floats({2}, {1, 1}), floats({2}, {5, 6})}, {1, 4, 1},
         {5, 5, 6, 6}, 18);
}

TEST_F(NodeNumbersTest, HeadsAndRowsOfAttention) {
  // Two heads read one group of keys and values.
  expect("Attention (a, b, c)",
         {floats({1, 4, 1, 1}, {1, 1, 1, 1}), floats({1, 2, 2, 1}, {500, -500, -500, 500}),
          floats({1, 2, 2, 1}, {1, 2, 3, 4})},
         {1, 4, 1, 1}, {1, 1, 4, 4}, 23);
  // A mask for each row of the batch, and a bias for each head.
  const Numbers values = floats({2, 1, 2, 1}, {1, 2, 3, 4}),
                none = floats({2, 1, 2, 1}, {0, 0, 0, 0});
  expect("Attention (a, b, c, d)",
         {floats({2, 1, 1, 1}, {0, 0}), none, values,
          Numbers{ElementType::Bool, {2, 1, 1, 2}, {1, 0, 0, 1}}},
         {2, 1, 1, 1}, {1, 4}, 23);
  expect("Attention (a, b, c, d)",
         {floats({1, 2, 1, 1}, {0, 0}), floats({1, 2, 2, 1}, {0, 0, 0, 0}),
          floats({1, 2, 2, 1}, {1, 2, 3, 4}), floats({1, 2, 1, 2}, {0, -1000, -1000, 0})},
         {1, 2, 1, 1}, {1, 4}, 23);
  const std::string multi = "com.microsoft.MultiHeadAttention <num_heads = 1> ";
  expect(multi + "(a, b, c, , d)",
         {floats({2, 1, 1}, {0, 0}), floats({2, 2, 1}, {0, 0, 0, 0}),
          floats({2, 2, 1}, {1, 5, 2, 6}), Numbers{ElementType::Int32, {2, 2}, {1, 0, 0, 1}}},
         {2, 1, 1}, {1, 6});
  expect(multi + "(a, b, c, d)",
         {floats({1, 1, 1}, {0}), floats({1, 2, 1}, {0, 0}), floats({1, 2, 1}, {1, 5}),
          floats({3}, {0, 0, 7})},
         {1, 1, 1}, {10});
  // A first prompt whose first row of the batch is padded on the right, without a window.
  const Numbers zeros = floats({2, 4, 1}, {0, 0, 0, 0, 0, 0, 0, 0});
  const std::string grouped =
      "com.microsoft.GroupQueryAttention <num_heads = 1, kv_num_heads = 1> ";
  auto wholes = [](llvm::ArrayRef<int64_t> extents, std::vector<double> elements) {
    return Numbers{ElementType::Int32, {extents.begin(), extents.end()}, std::move(elements)};
  };
  expect(grouped + "(a, b, c, , , d, e)",
         {zeros, zeros, floats({2, 4, 1}, {1, 2, 3, 4, 5, 6, 7, 8}), wholes({2}, {0, 3}),
          wholes({}, {4})},
         {2, 4, 1}, {1, 1.5, 2, 2.5, 5, 5.5, 6, 6.5});
  const Numbers query = floats({2, 1, 1}, {0, 0});
  expect(grouped + "(a, b, c, d, e, f, g)",
         {query, query, floats({2, 1, 1}, {3, 9}), none, floats({2, 1, 2, 1}, {1, 9, 1, 2}),
          wholes({2}, {1, 2}), wholes({}, {3})},
         {2, 1, 1}, {2, 4});
}

TEST_F(NodeNumbersTest, LongRowsAndManySmallOnes) {
  // More elements than a block, within one row and over many.
  std::vector<double> row(3000), pairs;
  std::iota(row.begin(), row.end(), 0);
  for (double x : row) {
    pairs.push_back(x);
    pairs.push_back(x + 1);
  }
  std::vector<double> doubled;
  for (double x : pairs)
    doubled.push_back(2 * x);
  expect("Add (a, b)", {floats({3000, 2}, pairs), floats({3000, 2}, pairs)}, {3000, 2}, doubled);
  double total = 0;
  for (double x : row)
    total += x;
  expect("ReduceSum <keepdims = 0> (a)", {floats({3000}, row)}, {}, {total});
  expect("ArgMax <axis = 0, keepdims = 0> (a)", {floats({3000}, row)}, {}, {2999});
  std::vector<double> exchanged;
  for (int part = 0; part < 2; ++part)
    for (double x : row)
      exchanged.push_back(x + part);
  expect("Transpose (a)", {floats({3000, 2}, pairs)}, {2, 3000}, exchanged);
}

TEST_F(NodeNumbersTest, ExtentsThatDependOnData) {
  expect("NonZero (a)", {floats({2, 2}, {0, 3, 4, 0})}, {2, 2}, {0, 1, 1, 0});
  expect("Compress <axis = 1> (a, b)",
         {counting({2, 3}), Numbers{ElementType::Bool, {3}, {1, 0, 1}}}, {2, 2}, {0, 2, 3, 5});
  expect("Range (a, b, c)", {integers({}, {5}), integers({}, {-2}), integers({}, {-3})}, {3},
         {5, 2, -1});
  expect("TopK (a, b)", {floats({4}, {1, 3, 3, 2}), integers({1}, {2})}, {2}, {3, 3});
  EXPECT_THAT(results[1].elements, ElementsAre(1, 2));
}

TEST_F(NodeNumbersTest, VersionsOfOneOperator) {
  const Numbers data = floats({2, 2}, {0, 1, 2, 3});
  // One softmax over all that follows the axis before version 13.
  ASSERT_FALSE(static_cast<bool>(compute("Softmax <axis = 0> (a)", {data}, 12)));
  EXPECT_NEAR(results[0].elements[0], 1 / (1 + std::exp(1.0) + std::exp(2.0) + std::exp(3.0)),
              1e-6);
  ASSERT_FALSE(static_cast<bool>(compute("Softmax <axis = 0> (a)", {data}, 13)));
  EXPECT_NEAR(results[0].elements[0], 1 / (1 + std::exp(2.0)), 1e-6);
}

TEST_F(NodeNumbersTest, WhatIsNotAllowedIsRefused) {
  EXPECT_THAT(errorOf("Add (a, b)", {counting({2}), counting({3})}),
              HasSubstr("does not broadcast: 2 and 3"));
  EXPECT_THAT(errorOf("MatMul (a, b)", {counting({2, 3}), counting({2, 3})}),
              HasSubstr("inner extents differ: 3 and 2"));
  EXPECT_THAT(errorOf("Transpose <perm = [0, 0]> (a)", {counting({2, 3})}),
              HasSubstr("perm is not an order of the axes"));
  EXPECT_THAT(errorOf("Reshape (a, b)", {counting({6}), integers({2}, {4, -1})}),
              HasSubstr("element counts differ: 4 and 6"));
  EXPECT_THAT(errorOf("Softmax <axis = 5> (a)", {counting({2, 3})}), HasSubstr("axis 5"));
  EXPECT_THAT(errorOf("Elu <beta = 2.0> (a)", {counting({2})}),
              HasSubstr("the attribute 'beta' is not defined"));
  EXPECT_THAT(errorOf("NegativeLogLikelihoodLoss (a, b)", {counting({1, 3}), integers({1}, {3})}),
              HasSubstr("a class is outside of axis 1"));
  EXPECT_EQ(errorOf("NegativeLogLikelihoodLoss <ignore_index = 3, reduction = \"sum\"> (a, b)",
                    {counting({1, 3}), integers({1}, {3})}),
            "");
  EXPECT_THAT(errorOf("Compress <axis = 0> (a, b)",
                      {counting({1}), Numbers{ElementType::Bool, {2}, {1, 1}}}),
              HasSubstr("an element beyond the axis is wanted"));
  EXPECT_THAT(
      errorOf("BitShift <direction = \"LEFT\"> (a, b)",
              {Numbers{ElementType::UInt8, {1}, {1}}, Numbers{ElementType::UInt8, {1}, {8}}}),
      HasSubstr("a shift by more bits"));
  EXPECT_THAT(errorOf("Pad <mode = \"mirror\"> (a, b)", {counting({2}), integers({2}, {1, 1})}),
              HasSubstr("the mode is not one of ONNX's"));
  EXPECT_THAT(errorOf("ScatterElements <reduction = \"mean\"> (a, b, c)",
                      {counting({2}), integers({1}, {0}), counting({1})}),
              HasSubstr("the reduction is not one of ONNX's"));
  EXPECT_THAT(errorOf("Range (a, b, c)", {integers({}, {0}), integers({}, {5}), integers({}, {0})}),
              HasSubstr("delta is 0"));
  EXPECT_THAT(
      errorOf("Range (a, b, c)", {floats({}, {0}), floats({}, {INFINITY}), floats({}, {1})}),
      HasSubstr("the range has no end"));
  EXPECT_THAT(errorOf("TopK (a, b)", {counting({2}), integers({1}, {3})}),
              HasSubstr("more elements are wanted than there are"));
}

} // namespace
} // namespace kvopt::meaning
