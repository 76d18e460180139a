// LatentCaches: rows of the first model's caches, as functions of the rows of a latent cache.
#pragma once

#include "check/alignment/classes.h"
#include "check/caches/feeding.h"
#include "check/evaluation/evaluation.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

#include <functional>

namespace kvopt::check {

/// Computes the rows of a cache that a latent cache of the second model replaces, by the first
/// model's own nodes. These compute new rows from values that the second model has, too, and moves
/// into its latent rows. In their place, they take columns of any latent rows. They may read
/// nothing else than constants and shapes, so that the result is a function of the latent rows.
class LatentCaches {
public:
  LatentCaches(Feeding& inputs, const RuleTable& table, Classes& ofBefore, Classes& ofAfter,
               Arithmetic& shared)
      : feeding(inputs), rules(table), before(ofBefore), after(ofAfter), math(shared) {}

  /// Contents of a constant of the first model; null for those in the model.
  using ConstantOf = std::function<Ref(const ir::Value& constant)>;
  /// Whether a value of the first model has a class.
  using IsOfBefore = std::function<bool(const ValueClass& value)>;
  /// The rows of pair.before for latent rows [B,1,T,W] of pair.after; null, with `failure`, if
  /// they are not such a function.
  Ref rowsOf(const CachePair& pair, const Ref& latent, const Step& step, const ConstantOf& constant,
             const IsOfBefore& isOfBefore);
  const std::string& failure() const { return reason; }

private:
  using Columns = std::vector<std::pair<ValueClass, Ref>>;
  bool fail(const std::string& why);
  bool collect(const ir::Value& rows, const IsOfBefore& isOfBefore,
               llvm::SmallVectorImpl<const ir::Value*>& sources);
  Ref shapeOf(const ir::Value& value, const Step& step);
  /// Values of the first model that depend on columns.
  const llvm::DenseSet<const ir::Value*>& dependents(const CachePair& pair, const Columns& columns);
  /// Columns of the latent rows, in the places that the values of classes have in them.
  std::optional<Columns> columnsOf(const ir::Value& rows, const Ref& latent, const Step& step,
                                   const IsOfBefore& isOfBefore);

  Feeding& feeding;
  const RuleTable& rules;
  Classes& before;
  Classes& after;
  Arithmetic& math;
  meaning::OperatorFacts operators;
  struct Dependents {
    std::vector<ValueClass> ofClasses;
    llvm::DenseSet<const ir::Value*> values;
  };
  llvm::DenseMap<const CachePair*, Dependents> known;
  std::string cache; ///< the latent cache in question
  std::string reason;
};

} // namespace kvopt::check
