// ElementTypes: the types that values have whatever the model declares.
#pragma once

#include "ir/model.h"
#include "meaning/facts/operator_facts.h"

#include "llvm/ADT/DenseMap.h"

namespace kvopt::check {

/// Element types of values, derived from the types of graph inputs and constants by what operators
/// do to them. Types that a model declares for other values may be wrong and are not read.
class ElementTypes {
public:
  /// The type; Undefined if it is not known.
  ir::ElementType of(const ir::Value& value);
  /// Whether the node casts its first operand to the type that it has.
  bool isCastToSameType(const ir::Node& node);

private:
  meaning::OperatorFacts operators;
  llvm::DenseMap<const ir::Value*, ir::ElementType> known;
};

} // namespace kvopt::check
