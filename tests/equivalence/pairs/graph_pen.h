// Adds nodes to a random graph, and takes back those that shape inference does not accept.
#pragma once

#include "ir/model.h"
#include "ir/shapes/shape_inference.h"
#include "tests/generated/decoder_graph.h"

#include "llvm/ADT/STLExtras.h"

#include <initializer_list>
#include <utility>
#include <vector>

namespace kvopt::pairs {

using generated::Dice;

/// Attributes that are one integer or a list of them.
using Attributes = std::vector<driver::AttributeSpec>;

inline driver::AttributeSpec axisIs(int64_t axis) { return {"axis", axis}; }

/// Adds nodes before a node of a graph, or at its end.
class GraphPen {
public:
  explicit GraphPen(ir::Graph& written, ir::Node* place = nullptr)
      : graph(written), before(place) {}

  /// The result of a new node; null if the operands do not fit or if an extent of a result is
  /// unknown or large.
  ir::Value* op(const char* type, std::initializer_list<ir::Value*> operands,
                const Attributes& attributes = {}, unsigned results = 1) {
    if (llvm::is_contained(operands, nullptr))
      return nullptr;
    ir::Node& node = graph.createFresh(ir::OpName(type), operands, results, before);
    for (const auto& [name, value] : attributes)
      if (const auto* number = std::get_if<int64_t>(&value))
        node.setAttribute(name, ir::Attribute::ofInt(*number));
      else
        node.setAttribute(name, ir::Attribute::ofInts(std::get<std::vector<int64_t>>(value)));
    bool isValid = true;
    if (llvm::Error error = ir::inferNode(node)) {
      llvm::consumeError(std::move(error));
      isValid = false;
    }
    for (const ir::Value& result : node.results())
      isValid = isValid && isSmall(result.type());
    if (isValid)
      return &node.result(0);
    graph.erase(node);
    return nullptr;
  }

  ir::Value& integer(int64_t value) { return graph.addConstant("n", ir::int64Scalar(value)); }
  ir::Value& integers(llvm::ArrayRef<int64_t> values) {
    return graph.addConstant("list", ir::int64Tensor(values));
  }
  ir::Value& number(double value) {
    return graph.addConstant("c", ir::floatScalar(ir::ElementType::Float, value));
  }

  /// Number of elements in the largest step of a scope; nullopt if an extent is unknown.
  static std::optional<int64_t> elementsOf(const ir::TensorType& type) {
    if (!type.hasRank())
      return std::nullopt;
    int64_t count = 1;
    for (const ir::Dim& dim : type.shape()) {
      const auto extent = dim.evaluate(
          [](llvm::StringRef symbol) -> std::optional<int64_t> { return symbol == "B" ? 3 : 4; });
      if (dim.isUnknown() || !extent)
        return std::nullopt;
      count *= *extent;
    }
    return count;
  }

private:
  static bool isSmall(const ir::TensorType& type) {
    constexpr int64_t mostElements = 400;
    const auto count = elementsOf(type);
    return type.elementType() != ir::ElementType::Undefined && count && *count <= mostElements &&
           type.rank() <= 5;
  }

  ir::Graph& graph;
  ir::Node* before;
};

} // namespace kvopt::pairs
