// Classes: values of a model that are equal by construction have the same class.
#pragma once

#include "check/alignment/constant_digests.h"
#include "check/alignment/element_types.h"
#include "check/arithmetic/key.h"

#include "llvm/ADT/DenseSet.h"

namespace kvopt::check {

/// Classes of one model's values. Names do not matter, except those of inputs. Operands of
/// commutative operators are in any order; Identity, Dropout, and a cast to the type that its
/// operand has have their operand's class.
class Classes {
public:
  /// `digests` must outlive the classes.
  Classes(const ir::Model& hashed, ConstantDigests& digests);

  /// Class of an input; by default, its name and type.
  void setInput(const ir::Value& input, ValueClass given) { classes[&input] = given; }
  /// Computes the classes of a node's results from those of its operands, unless they are known and
  /// no operand was set since.
  void hash(const ir::Node& node);
  /// Computes the classes of inputs that have none, and of all nodes.
  void hashAll();
  /// Whether an output of the main graph depends on the value, as far as nodes of the main graph
  /// show. Known after hashAll.
  bool isRead(const ir::Value& value) const { return read.count(&value) != 0; }
  ValueClass of(const ir::Value& value);
  void set(const ir::Value& value, ValueClass given);
  /// Attributes and operator of a node, without operands.
  ValueClass operatorOf(const ir::Node& node);
  /// Everything that an evaluation reads of a node, aside from its operands: operatorOf, which
  /// results it has, and which of them are read (isRead).
  Key identityOf(const ir::Node& node);

private:
  void hashGraph(const ir::Graph& graph);
  void hashSum(const ir::Node& node);
  ValueClass attributesOf(llvm::ArrayRef<ir::NamedAttribute> attributes);
  ValueClass bodyOf(const ir::Function& function);

  const ir::Model& model;
  ConstantDigests& constants;
  ElementTypes types;
  llvm::DenseMap<const ir::Value*, ValueClass> classes;
  llvm::DenseSet<const ir::Value*> changed; ///< values whose class was another one before
  llvm::DenseSet<const ir::Value*> read;
  llvm::DenseMap<const ir::Node*, ValueClass> operators;
  llvm::DenseMap<const ir::Function*, ValueClass> bodies;
};

/// Whether the order of a node's operands does not matter.
bool isCommutative(const ir::Node& node);

} // namespace kvopt::check
