// Instance: one node with operands, which the tables of the product are asked about.
#pragma once

#include "ir/model.h"
#include "tests/differential/dice.h"

#include "llvm/ADT/STLFunctionalExtras.h"

#include <memory>
#include <string>
#include <vector>

namespace kvopt::differential {

/// A number of any element type: it holds every integer of 64 bits and every double.
using Number = long double;

/// A tensor.
struct Numbers {
  ir::ElementType type = ir::ElementType::Float;
  Extents extents;
  std::vector<Number> elements; ///< in row-major order; booleans as 0 and 1

  int64_t count() const { return static_cast<int64_t>(elements.size()); }
};

int64_t countOf(const Extents& extents);
/// The number as an element of the type stores it. Integers wrap.
Number stored(ir::ElementType type, Number number);
/// The tensor in memory, and back.
std::vector<std::byte> bytesOf(const Numbers& numbers);
Numbers numbersIn(ir::ElementType type, const Extents& extents, const std::byte* bytes);
/// A few numbers, for messages.
std::string textOf(const Numbers& numbers);

struct Operand {
  Numbers numbers;
  bool isPresent = true;
  /// Whether the operand says where elements come from or go, such as axes, indices, a shape or a
  /// condition. Only tables that know it can know the result.
  bool isSelector = false;
};

/// How exactly a result in floating-point numbers follows from the operands.
enum class Accuracy {
  Exact,   ///< every table gives the same number
  Rounded, ///< the number is rounded a few times, in any order
};

class Instance {
public:
  explicit Instance(std::string operatorName, int64_t version)
      : op(std::move(operatorName)), opset(version) {}

  Instance& in(Numbers numbers) {
    operands.push_back({std::move(numbers), true, false});
    return *this;
  }
  Instance& select(Numbers numbers) {
    operands.push_back({std::move(numbers), true, true});
    return *this;
  }
  /// A list of int64 that selects.
  Instance& select(std::vector<int64_t> list);
  Instance& absent() {
    operands.push_back({{}, false, false});
    return *this;
  }
  Instance& attr(const char* name, int64_t value) {
    return attr(name, ir::Attribute::ofInt(value));
  }
  Instance& attr(const char* name, std::vector<int64_t> values) {
    return attr(name, ir::Attribute::ofInts(std::move(values)));
  }
  Instance& attr(const char* name, const char* value) {
    return attr(name, ir::Attribute::ofString(value));
  }
  Instance& attr(const char* name, float value) {
    return attr(name, ir::Attribute::ofFloat(value));
  }
  Instance& attr(const char* name, ir::Attribute value) {
    attributes.emplace_back(name, std::make_shared<const ir::Attribute>(std::move(value)));
    return *this;
  }
  /// The result is rounded, and the numbers that it is made of are at most `magnitude`.
  Instance& rounded(Number largest = 1) {
    accuracy = Accuracy::Rounded;
    magnitude = largest;
    return *this;
  }
  /// The fields have no elements for the result's numbers, so that they are unknown functions.
  Instance& opaque() {
    isOpaque = true;
    return *this;
  }

  std::string op;
  int64_t opset;
  std::vector<std::pair<std::string, std::shared_ptr<const ir::Attribute>>> attributes;
  std::vector<Operand> operands;
  unsigned results = 1;
  Accuracy accuracy = Accuracy::Exact;
  Number magnitude = 1;
  bool isOpaque = false;
};

/// A model of one node. The values are those that the node reads; null for absent operands.
struct InstanceModel {
  std::unique_ptr<ir::Model> model;
  ir::Node* node = nullptr;
  std::vector<ir::Value*> values;
};

/// The model in which `valueOf` gives each operand that is present.
InstanceModel modelOf(const Instance& instance,
                      llvm::function_ref<ir::Value&(ir::Graph&, unsigned operand)> valueOf);
/// The model whose operands are inputs with fixed extents.
InstanceModel modelOf(const Instance& instance);

/// An input with the operand's extents, named after its index.
ir::Value& inputOf(ir::Graph& graph, const Instance& instance, unsigned operand);
/// A constant with the operand's contents.
ir::Value& constantOf(ir::Graph& graph, const Instance& instance, unsigned operand);

/// The instance as text: its model, and the contents of its operands.
std::string textOf(const Instance& instance);

/// Type and extents of a tensor that is made. In braces, choices are made in the order of the text.
struct Wanted {
  ir::ElementType type;
  Extents extents;
};

/// Different numbers in any order, or booleans.
Numbers distinct(Dice& dice, Wanted wanted);
/// Integers in [low, high] as elements of the type.
Numbers integers(Dice& dice, Wanted wanted, int64_t low, int64_t high);
/// Numbers of which some are at the ends of an integer type, or quarters of a floating-point type.
Numbers varied(Dice& dice, Wanted wanted);
/// The same with infinities and NaN among the numbers of a floating-point type.
Numbers special(Dice& dice, Wanted wanted);
/// Varied numbers, some of which are special in few instances.
Numbers any(Dice& dice, Wanted wanted);
/// A tensor of given numbers.
Numbers listOf(ir::ElementType type, const std::vector<int64_t>& list);
Numbers scalarOf(ir::ElementType type, Number value);

/// Element types that an operator accepts.
ir::ElementType anyType(Dice& dice);
ir::ElementType numericType(Dice& dice);
ir::ElementType integerType(Dice& dice);
ir::ElementType floatType(Dice& dice);

} // namespace kvopt::differential
