// Stops: the values at which regions end.
#pragma once

#include "check/regions/leaves.h"

#include <set>
#include <unordered_set>

namespace kvopt::check {

/// Where the evaluation of a region stops: at values that both models have.
enum class Frontier {
  Tables,         ///< at all of them, tables and constants with many elements included
  Shared,         ///< at all of them, constants with many elements included
  Weights,        ///< at weights, and at those that depend on inputs
  Activations,    ///< at those that depend on inputs; constants are what they are, except large
                  ///< weights
  ComputedTables, ///< at those of Computed, and at tables
  Computed,       ///< the same without results that only arrange the elements of another value
  Compared,       ///< at those of Computed that were proved equal by evaluation
  Inputs,         ///< at graph inputs only
};

bool stopsAtTables(Frontier frontier);

/// The values that both models have. Classes of the second model are noted as they become known.
class Stops {
public:
  Stops(Classes& ofBefore, Classes& ofAfter, Shapes& hollow, Leaves& numbers)
      : before(ofBefore), after(ofAfter), shapes(hollow), leaves(numbers) {}

  /// Finds a value of the first model for each class, the classes of the second model, and the
  /// values that depend on inputs. Those that depend on constants only stay what they are when
  /// activations are cut.
  void index(const ir::Model& first, const ir::Model& second);
  /// Where the evaluation of a model stops; nullopt if the value must be computed.
  std::optional<Stop> at(bool isAfter, const ir::Value& value, Frontier frontier);
  /// Where an evaluation stopped whose Stop::value is known.
  Stop again(const ValueClass& value, Frontier frontier);

  /// Whether a value of the first model has the class.
  bool isOfBefore(const ValueClass& value) const { return representatives.count(value) != 0; }
  /// Notes that a value of the second model has a class.
  void noteAfter(const ValueClass& value) { classesAfter.insert(value); }
  /// Excludes classes until the next call of includeAll.
  void exclude(const std::set<ValueClass>& values) {
    excluded.insert(values.begin(), values.end());
  }
  void includeAll() { excluded.clear(); }

private:
  bool isShared(const ValueClass& own, Frontier frontier) const;
  bool arrangesOperand(const ir::Value& value);
  bool isArrangementOfStop(const ir::Value& value, Frontier frontier);
  void indexValues(const ir::Graph& graph, bool isAfter);
  void indexDependence(const ir::Graph& graph);

  Classes& before;
  Classes& after;
  Shapes& shapes;
  Leaves& leaves;
  std::unordered_map<ValueClass, const ir::Value*> representatives;
  std::unordered_set<ValueClass> classesAfter;
  meaning::OperatorFacts operators;
  llvm::DenseMap<const ir::Node*, bool> arranging;
  llvm::DenseSet<const ir::Value*> dependsOnInput;
  std::set<ValueClass> excluded;
};

} // namespace kvopt::check
