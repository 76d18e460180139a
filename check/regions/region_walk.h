// RegionWalk: a region as numbers that do not depend on names.
#pragma once

#include "check/regions/leaves.h"

#include "llvm/ADT/STLFunctionalExtras.h"

#include <array>

namespace kvopt::check {

/// A pair of values with all that is evaluated to compare them. Two regions of equal keys differ in
/// names only: one becomes the other if values that both models have, and caches, are renamed, each
/// to one and no two to the same.
struct Region {
  Key key;
  /// The values at which it stops, in the order in which the walk meets them first.
  std::vector<ValueClass> stops;
  /// Nodes of both models in the order of their evaluation.
  std::array<std::vector<const ir::Node*>, 2> nodes;
};

/// Walks through a region as Evaluation does, without evaluating it, and writes down what it meets:
/// operators with their attributes, which results they have, and the numbers of their operands;
/// constants by contents; where the region stops, with the forms of the values there; how caches
/// hold their rows; and other inputs by their class.
class RegionWalk {
public:
  struct Sources {
    Feeding& feeding;
    Shapes& shapes;
    Leaves& leaves;
    Classes& before;
    Classes& after;
    ConstantDigests& digests;
  };
  /// Where the evaluation of a model stops; nullopt if the value must be computed.
  using StopOf = llvm::function_ref<std::optional<Stop>(bool isAfter, const ir::Value& value)>;

  /// `stops` must outlive the walk.
  RegionWalk(Sources from, StopOf stops) : sources(from), stopOf(stops) {}

  /// The region of two values; `question` is what else the answer depends on. nullopt if the region
  /// has an operator with subgraphs, a value without a meaning, or a cache that a latent one
  /// replaces.
  std::optional<Region> walk(const ir::Value& before, const ir::Value& after, const Key& question);
  /// The same for one value of the first model.
  std::optional<Region> walk(const ir::Value& value, const Key& question);

private:
  bool demand(const ir::Value& root);
  bool isLeaf(const ir::Value& value);
  bool stopsAt(const ir::Value& value);
  void addInput(const ir::Value& input);
  void addNode(const ir::Node& node);
  const ir::Model& model() const {
    return (isAfter ? sources.feeding.after() : sources.feeding.before()).model;
  }
  Classes& classes() { return isAfter ? sources.after : sources.before; }
  void add(uint64_t number) { region.key.push_back(number); }
  void add(const ValueClass& value) {
    add(value.bits[0]);
    add(value.bits[1]);
  }
  /// The place of a name among all names that it was called with.
  static uint64_t placeOf(const std::string& name, llvm::StringMap<uint64_t>& places) {
    return places.try_emplace(name, places.size()).first->second;
  }

  Sources sources;
  StopOf stopOf;
  Region region;
  bool isAfter = false;
  /// Whether equal keys are equal regions. Rows that are computed from latent ones are not in keys.
  bool isShared = true;
  /// Numbers of the values of the model that is walked through.
  llvm::DenseMap<const ir::Value*, uint64_t> numbers;
  uint64_t nextNumber = 0;
  std::unordered_map<ValueClass, uint64_t> stops;
  llvm::StringMap<uint64_t> histories, inputs;
};

} // namespace kvopt::check
