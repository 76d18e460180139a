// OpDef: definition of an operator's operands, attributes, results and shapes, shared by passes,
// which create nodes, and kernels, which execute them.
#pragma once

#include "ir/attribute.h"
#include "ir/elementwise.h"
#include "ir/movement.h"
#include "ir/op_name.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/Error.h"

#include <deque>
#include <string>
#include <vector>

namespace kvopt::ir {

class Function;
class Node;
class ShapeContext;

/// One formal operand or result.
struct Formal {
  enum class Arity { Required, Optional, Variadic };
  std::string name;
  Arity arity = Arity::Required;
  /// A variadic formal requires at least one operand.
  bool atLeastOne = false;
};

/// One formal attribute, perhaps with a default for nodes that do not have it.
struct FormalAttribute {
  std::string name;
  AttributeKind kind = AttributeKind::Undefined;
  bool required = false;
  std::optional<Attribute> defaultValue;
};

/// Declares that result `result` may share the storage of operand `operand`.
struct Alias {
  enum class Kind {
    /// The result is the operand's bytes with another shape; nothing is written.
    View,
    /// The operator overwrites the operand, which must not be read afterwards.
    InPlace,
    /// The operator may overwrite the operand if it is not read afterwards and the result has the
    /// same extents. It works without.
    Reuse,
  };
  unsigned result = 0;
  unsigned operand = 0;
  Kind kind = Kind::View;
};

/// Infers types (and known integers) of the node's results from those of its operands. Fails if the
/// operands contradict the operator's definition.
using ShapeRule = llvm::Error (*)(ShapeContext&);

/// Fails unless a function that a model defines under the operator's name computes the operator at
/// each of the calls. Unknown types do not fail.
using BodyRule = llvm::Error (*)(const Function& function, llvm::ArrayRef<const Node*> calls);

/// Definition of an operator from opset version `since` until the next definition of the same name.
struct OpDef {
  OpName name;
  int64_t since = 1;
  std::vector<Formal> operands;
  std::vector<Formal> results;
  std::vector<FormalAttribute> attributes;
  ShapeRule inferShapes = nullptr;
  /// Set for an operator that only moves data.
  std::optional<OpMovement> movement;
  /// Set for an elementwise operator.
  std::optional<ElementFunction> elementFunction;
  std::vector<Alias> aliases;
  /// Set for an operator that kvopt writes together with a function body, which engines run.
  BodyRule checkBody = nullptr;

  /// Minimum and maximum number of operands or results; nullopt if the last is variadic.
  unsigned minOperands() const;
  unsigned minResults() const;
  std::optional<unsigned> maxOperands() const;
  std::optional<unsigned> maxResults() const;
  const FormalAttribute* findAttribute(llvm::StringRef attribute) const;
};

/// Builds an OpDef in reading order:
///   define(registry, "Softmax", 13).in("input").out("output").attr("axis", int64_t{-1})
///       .shape(inferSoftmax);
/// A name that ends in '?' is optional. One that ends in '*' takes any number of operands, and one
/// that ends in '+' at least one.
class OpDefBuilder {
public:
  OpDefBuilder(class OpRegistry& registry, OpName name, int64_t since);
  OpDefBuilder& in(llvm::StringRef formal);
  OpDefBuilder& out(llvm::StringRef formal);
  OpDefBuilder& attr(llvm::StringRef name, int64_t defaultValue);
  OpDefBuilder& attr(llvm::StringRef name, float defaultValue);
  OpDefBuilder& attr(llvm::StringRef name, const char* defaultValue);
  /// An optional attribute without a default.
  OpDefBuilder& attr(llvm::StringRef name, AttributeKind kind);
  OpDefBuilder& requiredAttr(llvm::StringRef name, AttributeKind kind);
  OpDefBuilder& shape(ShapeRule rule);
  /// Declares that the operator only moves elements of operand `data`; `rule` gives the details.
  OpDefBuilder& moves(MovementKind kind, MovementRule rule = nullptr, unsigned data = 0);
  /// Declares that the operator is elementwise: each element of its single result depends on the
  /// operands' elements at the same position, after broadcasting.
  OpDefBuilder& elementwise(ElementFunction function);
  OpDefBuilder& view(unsigned result = 0, unsigned operand = 0);
  OpDefBuilder& inPlace(unsigned result, unsigned operand);
  OpDefBuilder& reuse(unsigned result, unsigned operand);
  OpDefBuilder& body(BodyRule rule);

private:
  OpDef& definition;
};

/// All operator definitions. Filled once, by `registerAll` and by users with their own operators,
/// then only read. Filling it is not thread-safe.
class OpRegistry {
public:
  OpRegistry() = default;
  OpRegistry(const OpRegistry&) = delete;
  OpRegistry& operator=(const OpRegistry&) = delete;

  /// Adds an empty definition and copies its name. Each pair (name, since) is defined once.
  OpDef& add(OpName name, int64_t since);
  /// The newest definition of `name` with since <= version; null if there is none.
  const OpDef* find(OpName name, int64_t version) const;
  /// All definitions, sorted by name and version.
  std::vector<const OpDef*> all() const;

  /// The rule for all operators without one of their own, defined in the registry or not.
  void setShapes(ShapeRule rule) { shapes_ = rule; }
  ShapeRule shapes() const { return shapes_; }

private:
  std::deque<std::string> names;
  std::deque<OpDef> definitions;
  llvm::DenseMap<OpName, llvm::SmallVector<OpDef*, 2>> byName;
  ShapeRule shapes_ = nullptr;
};

/// Whether the node has more operands or results than its operator's definition. Operators of ONNX
/// Runtime's domain gain operands without a new version, so such a node is valid, but its
/// computation is unknown.
bool hasUnknownOperands(const Node& node);

inline OpDefBuilder define(OpRegistry& registry, OpName name, int64_t since) {
  return OpDefBuilder(registry, name, since);
}

/// Registers every definition in ir/ops (generated).
void registerOperators(OpRegistry& registry);

/// The same, with shapes that follow from what operators compute. It is defined in `meaning`, which
/// knows that.
void registerAll(OpRegistry& registry);

} // namespace kvopt::ir
