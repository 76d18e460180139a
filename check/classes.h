// Classes: values of a model that are equal by construction have the same class.
#pragma once

#include "check/key.h"
#include "ir/model.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

#include <array>
#include <map>
#include <optional>

namespace kvopt::check {

/// A digest of how a value is computed from inputs and constants.
struct ValueClass {
  std::array<uint64_t, 2> bits{};

  bool operator==(const ValueClass&) const = default;
  bool operator<(const ValueClass& other) const { return bits < other.bits; }
};

/// Digests of constants. Contents in a file are identified by file, offset and length. Only
/// readCopies reads those of many elements.
class ConstantDigests {
public:
  /// Identifies constants by their contents where the models name different places of files:
  /// constants of the second model whose places the first one does not name, and those of the
  /// first model with the same type and shape whose places the second one does not name.
  void readCopies(const ir::Model& before, const ir::Model& after);
  ValueClass of(const ir::Model& model, const ir::TensorData& data);
  /// Identifies a constant that is evaluated: by its contents, unless those are many and in a file.
  ValueClass contentsOf(const ir::Model& model, const ir::TensorData& data);
  /// Whether an element is infinite or not a number. Constants with very many elements, and those
  /// with many in a file, are not read: false.
  bool hasInfinite(const ir::TensorData& data);

private:
  llvm::DenseMap<const ir::TensorData*, ValueClass> known, contents;
  llvm::DenseMap<const ir::TensorData*, bool> infinite;
};

/// Classes of one model's values. Names do not matter, except those of inputs. Operands of
/// commutative operators are in any order; Identity and Dropout have their operand's class.
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
  ValueClass of(const ir::Value& value);
  void set(const ir::Value& value, ValueClass given);
  /// Attributes and operator of a node, without operands.
  ValueClass operatorOf(const ir::Node& node);
  /// Everything that a rule reads of a node, aside from its operands: operatorOf, and which results
  /// it has.
  Key identityOf(const ir::Node& node);

private:
  void hashGraph(const ir::Graph& graph);
  void hashSum(const ir::Node& node);
  ValueClass attributesOf(llvm::ArrayRef<ir::NamedAttribute> attributes);
  ValueClass bodyOf(const ir::Function& function);

  const ir::Model& model;
  ConstantDigests& constants;
  llvm::DenseMap<const ir::Value*, ValueClass> classes;
  llvm::DenseSet<const ir::Value*> changed; ///< values whose class was another one before
  llvm::DenseMap<const ir::Node*, ValueClass> operators;
  llvm::DenseMap<const ir::Function*, ValueClass> bodies;
};

/// Whether the order of a node's operands does not matter.
bool isCommutative(const ir::Node& node);

/// A class from texts and numbers.
ValueClass classOf(llvm::StringRef kind, llvm::ArrayRef<ValueClass> parts,
                   llvm::ArrayRef<uint64_t> numbers = {});

} // namespace kvopt::check

template <> struct std::hash<kvopt::check::ValueClass> {
  size_t operator()(const kvopt::check::ValueClass& value) const noexcept {
    return static_cast<size_t>(value.bits[0]);
  }
};
