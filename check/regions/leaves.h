// Leaves: arbitrary numbers for the values at which regions stop.
#pragma once

#include "check/regions/shapes.h"

namespace kvopt::check {

/// Whether a value is a constant that counts as a weight (isWeightData).
bool isWeight(const ir::Value& value);

/// Where an evaluation stops: at a value that both models have.
struct Stop {
  ValueClass value;
  const ir::Value* representative = nullptr; ///< a value of the first model of that class
  bool isTable = false;                      ///< whether it is one of Leaves::isTable
};

/// Gives values of the first model arbitrary numbers, different ones for each class and step. An
/// element that may be other than a number, or that is zero, is what it is. Weights, and other
/// floating-point constants with as many elements as a gain or bias has, become arbitrary numbers
/// as a whole: what holds for all numbers holds for theirs.
class Leaves {
public:
  Leaves(Feeding& inputs, const RuleTable& table, Classes& ofBefore, ConstantDigests& ofConstants,
         Shapes& hollow, const std::vector<Step>& scope, Arithmetic& shared, Forms& kept)
      : feeding(inputs), rules(table), classes(ofBefore), digests(ofConstants), shapes(hollow),
        steps(scope), math(shared), forms(kept), numbers(scope.size()), tableNumbers(scope.size()) {
  }

  /// What the numbers of a class do not determine: its shape, and elements that are not arbitrary
  /// numbers. An entry is null in a step in which the value must be computed; null if it must be
  /// in all. `representative` is a value of the first model that has the class.
  const Form* formOf(const ValueClass& value, const ir::Value& representative);
  /// The same for a stop, which may be a table.
  const Form* formOf(const Stop& stop) {
    return stop.isTable ? shapesOfTable(*stop.representative)
                        : formOf(stop.value, *stop.representative);
  }
  /// Whether a value of the first model is a table: numbers that only sizes and positions
  /// determine, and that no operator can make infinite or hidden.
  bool isTable(const ir::Value& value);
  /// The contents of a stop in a step; null where its form has none.
  Ref contents(size_t step, const Stop& stop);
  /// Why the form of a stop may change beyond the scope; empty if it may not.
  std::string gapOf(const Stop& stop);
  /// Why a region that stops at a value of the first model is not proved; empty if nothing is
  /// assumed about the value.
  std::string doubtOf(const ir::Value& representative) const {
    return doubts.lookup(&representative);
  }
  void setDoubt(const ir::Value& value, const std::string& why) { doubts[&value] = why; }
  /// Declares the patterns of a class that was proved equal by evaluation (Shapes::setCompared).
  void setCompared(const ValueClass& value, const Form* form);
  /// Frees arbitrary numbers if there are many. They are made again where they are needed.
  void release();

private:
  Ref ofConstant(const ir::TensorData& data);
  const Form* shapesOfTable(const ir::Value& value);
  const Form& patternsOf(const ir::Value& representative, llvm::ArrayRef<size_t> special);
  const ir::Value* matrixOf(const ir::Value& product);
  Ref patternIn(size_t step, const ir::Value& representative);
  Ref exact(size_t step, const ir::Value& representative);
  Ref fresh(size_t step, const ValueClass& value, const Ref& pattern);

  Feeding& feeding;
  const RuleTable& rules;
  Classes& classes;
  ConstantDigests& digests;
  Shapes& shapes;
  const std::vector<Step>& steps;
  Arithmetic& math;
  Forms& forms;
  std::unordered_map<ValueClass, const Form*> known;
  std::unordered_map<Key, const Form*, KeyHash> patterns;
  /// Of each step: of values, and of tables where a region stops at them.
  std::vector<std::unordered_map<ValueClass, Ref>> numbers, tableNumbers;
  uint64_t numberCount = 0;
  llvm::DenseMap<const ir::Value*, const Form*> tables; ///< their shapes; null for other values
  llvm::DenseMap<const ir::Value*, std::string> doubts;
  unsigned depth = 0;
};

} // namespace kvopt::check
