// OpDef: what an operator's operands, attributes, results and shapes are. The contract between
// passes, which create nodes, and kernels, which execute them.
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
  /// A variadic one stands for one operand at least.
  bool atLeastOne = false;
};

/// One formal attribute. With a default, an attribute that is not written has that value.
struct FormalAttribute {
  std::string name;
  AttributeKind kind = AttributeKind::Undefined;
  bool required = false;
  std::optional<Attribute> defaultValue;
};

/// Result `result` may share the storage of operand `operand`.
struct Alias {
  enum class Kind {
    /// The result is the operand's bytes under another shape; nothing is written.
    View,
    /// The operator overwrites the operand. Nothing may read the operand afterwards.
    InPlace,
    /// The operator may overwrite the operand where nobody reads it afterwards and the result is of
    /// the same extents; it can do without.
    Reuse,
  };
  unsigned result = 0;
  unsigned operand = 0;
  Kind kind = Kind::View;
};

/// Sets types (and known integers) of the node's results from those of its operands. An error
/// means that the operands contradict the operator's definition.
using ShapeRule = llvm::Error (*)(ShapeContext&);

/// Fails unless the function, which a model defines under the operator's name, computes what the
/// operator does at each of the calls. Types that are not known contradict nothing.
using BodyRule = llvm::Error (*)(const Function& function, llvm::ArrayRef<const Node*> calls);

/// The definition of one operator from opset version `since` on, up to the next definition of the
/// same name.
struct OpDef {
  OpName name;
  int64_t since = 1;
  std::vector<Formal> operands;
  std::vector<Formal> results;
  std::vector<FormalAttribute> attributes;
  ShapeRule inferShapes = nullptr;
  /// Set for an operator that only moves data.
  std::optional<OpMovement> movement;
  /// Set for an operator that computes each element from those at the same place.
  std::optional<ElementFunction> elementFunction;
  std::vector<Alias> aliases;
  /// Set for an operator that kvopt writes together with a function body, which engines run.
  BodyRule checkBody = nullptr;

  /// Fewest and most operands or results; nullopt when the last is variadic.
  unsigned minOperands() const;
  unsigned minResults() const;
  std::optional<unsigned> maxOperands() const;
  std::optional<unsigned> maxResults() const;
  const FormalAttribute* findAttribute(llvm::StringRef attribute) const;
};

/// Builds an OpDef in reading order:
///   define(registry, "Softmax", 13).in("input").out("output").attr("axis", int64_t{-1})
///       .shape(inferSoftmax);
/// A name that ends in '?' is optional, one that ends in '*' stands for any number of operands, and
/// one that ends in '+' for one at least.
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
  /// The operator only moves elements of operand `data`, as `rule` says in detail.
  OpDefBuilder& moves(MovementKind kind, MovementRule rule = nullptr, unsigned data = 0);
  /// The operator computes each element of its one result from those at the same place of its
  /// operands, which broadcast.
  OpDefBuilder& elementwise(ElementFunction function);
  OpDefBuilder& view(unsigned result = 0, unsigned operand = 0);
  OpDefBuilder& inPlace(unsigned result, unsigned operand);
  OpDefBuilder& reuse(unsigned result, unsigned operand);
  OpDefBuilder& body(BodyRule rule);

private:
  OpDef& definition;
};

/// All operator definitions. Filled once, by `registerAll` and by users with operators of their
/// own, then read only. Not thread-safe while it is filled.
class OpRegistry {
public:
  OpRegistry() = default;
  OpRegistry(const OpRegistry&) = delete;
  OpRegistry& operator=(const OpRegistry&) = delete;

  /// Adds an empty definition; name texts are copied. One definition per (name, since).
  OpDef& add(OpName name, int64_t since);
  /// The newest definition of `name` with since <= version; null if there is none.
  const OpDef* find(OpName name, int64_t version) const;
  /// Every definition, sorted by name and version.
  std::vector<const OpDef*> all() const;

private:
  std::deque<std::string> names;
  std::deque<OpDef> definitions;
  llvm::DenseMap<OpName, llvm::SmallVector<OpDef*, 2>> byName;
};

/// Whether the node has operands or results beyond those of its operator's definition. Operators in
/// ONNX Runtime's domain gain some without a new version, so such a node is valid, but what it
/// computes is not known.
bool hasUnknownOperands(const Node& node);

inline OpDefBuilder define(OpRegistry& registry, OpName name, int64_t since) {
  return OpDefBuilder(registry, name, since);
}

/// Every definition under ir/ops (generated).
void registerAll(OpRegistry& registry);

} // namespace kvopt::ir
