// A definition is run on every node that a file may hold: whatever operands and attributes that
// has, it ends with results or with a reason.
#include "ir/graph.h"
#include "ir/node.h"
#include "meaning/definitions.h"
#include "meaning/extents/node_types.h"
#include "meaning/numbers/element_access.h"
#include "meaning/numbers/node_numbers.h"
#include "support/diagnostic.h"

#include <gtest/gtest.h>

#include <random>

namespace kvopt::meaning {
namespace {

using ir::ElementType;

class AnyOperands : public testing::Test {
protected:
  AnyOperands() { ir::registerAll(ops); }

  unsigned below(unsigned count) {
    return std::uniform_int_distribution<unsigned>(0, count - 1)(dice);
  }
  template <class Item> Item oneOf(std::initializer_list<Item> items) {
    return items.begin()[below(static_cast<unsigned>(items.size()))];
  }

  ir::TensorType type() {
    const ElementType element = oneOf({ElementType::Float, ElementType::Float, ElementType::Int64,
                                       ElementType::Int32, ElementType::Bool, ElementType::UInt8,
                                       ElementType::Float16, ElementType::Undefined});
    if (below(12) == 0)
      return ir::TensorType(element);
    ir::Shape shape;
    for (unsigned rank = below(6); rank > 0; --rank)
      shape.push_back(
          oneOf({ir::Dim::fixed(0), ir::Dim::fixed(1), ir::Dim::fixed(2), ir::Dim::fixed(3),
                 ir::Dim::symbol("S"), ir::Dim::symbol("P"), ir::Dim::unknown()}));
    return {element, std::move(shape)};
  }

  ir::Value* operand(ir::Graph& graph) {
    switch (below(10)) {
    case 0:
      return nullptr;
    case 1:
      return &graph.addConstant("k", ir::int64Scalar(oneOf<int64_t>({-1, 0, 1, 2, 7, INT64_MAX})));
    case 2:
    case 3: {
      llvm::SmallVector<int64_t, 4> values;
      for (unsigned count = below(5); count > 0; --count)
        values.push_back(oneOf<int64_t>({-2, -1, 0, 1, 2, 3, INT64_MIN, INT64_MAX}));
      return &graph.addConstant("list", ir::int64Tensor(values));
    }
    default:
      return &graph.addInput(graph.freshName("in"), type());
    }
  }

  /// An attribute that definitions read under some name, of any kind.
  void setAttributes(ir::Node& node) {
    static constexpr const char* names[] = {"axis",
                                            "axes",
                                            "keepdims",
                                            "perm",
                                            "to",
                                            "group",
                                            "pads",
                                            "strides",
                                            "dilations",
                                            "kernel_shape",
                                            "auto_pad",
                                            "num_heads",
                                            "kv_num_heads",
                                            "q_num_heads",
                                            "equation",
                                            "blocksize",
                                            "mode",
                                            "split",
                                            "num_outputs",
                                            "batch_dims",
                                            "starts",
                                            "ends",
                                            "shape",
                                            "output_shape",
                                            "size",
                                            "num_groups",
                                            "block_size",
                                            "N",
                                            "K",
                                            "bits",
                                            "hidden_size",
                                            "direction",
                                            "noop_with_empty_axes",
                                            "reduction",
                                            "interleaved",
                                            "rotary_embedding_dim",
                                            "do_rotary",
                                            "batch_axis",
                                            "time_axis",
                                            "is_causal",
                                            "onesided",
                                            "inverse",
                                            "spatial"};
    for (unsigned count = below(4); count > 0; --count) {
      const char* name = names[below(std::size(names))];
      switch (below(4)) {
      case 0:
      case 1:
        node.setAttribute(name, ir::Attribute::ofInt(
                                    oneOf<int64_t>({-9, -1, 0, 1, 2, 3, 4, 1 << 30, INT64_MAX})));
        break;
      case 2: {
        std::vector<int64_t> values;
        for (unsigned k = below(5); k > 0; --k)
          values.push_back(oneOf<int64_t>({-1, 0, 1, 2, 3, INT64_MIN, INT64_MAX}));
        node.setAttribute(name, ir::Attribute::ofInts(values));
        break;
      }
      default:
        node.setAttribute(name, ir::Attribute::ofString(
                                    oneOf({"", "ij,jk->ik", "i...->...i", "->", ",,", "SAME_UPPER",
                                           "max", "reflect", "bidirectional", "add", "CRD"})));
      }
    }
  }

  void infer(ir::Node& node) {
    ir::ShapeContext context(node);
    llvm::consumeError(inferTypes(context));
  }

  /// The same operands with some numbers of elements.
  void compute(Define define, const ir::Node& node) {
    std::deque<std::vector<std::byte>> memory;
    std::deque<Array> arrays;
    llvm::SmallVector<const Array*, 8> operands;
    for (unsigned k = 0; k < node.operands().size(); ++k) {
      operands.push_back(nullptr);
      const ir::Value* value = node.operand(k);
      if (!value || !value->type().hasRank() || widthInMemory(value->type().elementType()) == 0)
        continue;
      Array& array = arrays.emplace_back();
      array.type = value->type().elementType();
      size_t count = 1;
      for (const ir::Dim& dim : value->type().shape()) {
        array.extents.push_back(dim.value().value_or(below(3)));
        count *= static_cast<size_t>(array.extents.back());
      }
      auto& bytes = memory.emplace_back(count * widthInMemory(array.type) + 1);
      for (std::byte& byte : bytes)
        byte = static_cast<std::byte>(below(3) == 0 ? below(256) : 0);
      array.data = bytes.data();
      operands.back() = &array;
    }
    std::deque<std::vector<std::byte>> results;
    llvm::consumeError(computeNode(
        define, node, opset, operands,
        [&](unsigned, ElementType type,
            llvm::ArrayRef<int64_t> extents) -> llvm::Expected<std::byte*> {
          int64_t count = 1;
          for (int64_t extent : extents)
            count *= extent;
          if (count > 4096)
            return invalid("too many elements for a test");
          return results.emplace_back(static_cast<size_t>(count) * widthInMemory(type) + 1).data();
        }));
  }

  static constexpr int64_t opset = 23;
  std::mt19937 dice{1};
  ir::OpRegistry ops;
};

TEST_F(AnyOperands, EndWithResultsOrWithAReason) {
  const char* count = std::getenv("KVOPT_ANY_OPERANDS");
  const unsigned times = count ? static_cast<unsigned>(std::atoi(count)) : 40;
  unsigned nodes = 0;
  definitions().forEach([&](ir::OpName name, int64_t since, Define define) {
    for (unsigned time = 0; time < times; ++time) {
      ir::GraphContext context{ops};
      ir::OpsetImports opsets{{"", since > opset ? since : opset},
                              {"com.microsoft", 1},
                              {"ai.onnx.ml", 1},
                              {"ai.kvopt", 1}};
      ir::Graph graph{context, opsets};
      llvm::SmallVector<ir::Value*, 8> operands;
      for (unsigned k = below(8); k > 0; --k)
        operands.push_back(operand(graph));
      ir::Node& node = graph.createFresh(name, operands, 1 + below(4));
      setAttributes(node);
      infer(node);
      compute(define, node);
      ++nodes;
    }
  });
  EXPECT_GT(nodes, 150 * times);
}

} // namespace
} // namespace kvopt::meaning
