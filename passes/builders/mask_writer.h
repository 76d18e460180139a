// MaskWriter: writes the element function of a mask, which depends on the index, as tensor
// operators.
#pragma once

#include "passes/analysis/mask/mask_expression.h"
#include "passes/builders/attention_builder.h"

#include "llvm/ADT/STLFunctionalExtras.h"

namespace kvopt::builders {

/// Reason why an expression cannot be written; nullopt if it can. An expression may depend on the
/// positions of the row and the key, on the head, on constants, and on elements [b, i] and [b, j]
/// of tensors that `isAvailable` accepts. It must not depend on the number of rows or keys.
std::optional<std::string>
maskObstacle(analysis::ExprRef expression, const analysis::IndexSpace& space,
             llvm::function_ref<bool(const ir::Value&, analysis::IndexVariable)> isAvailable);

/// Writes expressions that have no obstacle. Results broadcast to [B, H, S, T].
class MaskWriter {
public:
  struct Places {
    ir::Value* rows = nullptr; ///< int64 [S]: the position of each row among the keys
    ir::Value* keys = nullptr; ///< int64 [T]: 0 … T-1
  };
  /// The elements of a tensor for the rows or for the keys, along the same axis.
  using Elements = llvm::function_ref<ir::Value&(const ir::Value&, analysis::IndexVariable)>;

  MaskWriter(AttentionBuilder& builder, const analysis::IndexSpace& indexSpace,
             const Places& whereTheyAre, Elements elementsOf)
      : build(builder), space(indexSpace), places(whereTheyAre), elements(elementsOf) {}

  ir::Value& write(analysis::ExprRef expression, ir::ElementType type);

private:
  ir::Value& compute(analysis::ExprRef expression, ir::ElementType type);
  ir::Value& logical(analysis::ExprRef expression);
  ir::Value& comparison(analysis::ExprRef expression);
  ir::Value& arithmetic(analysis::ExprRef expression, ir::ElementType type);
  ir::Value& applied(analysis::ExprRef expression, ir::ElementType type);
  ir::Value& joined(llvm::StringRef op, analysis::ExprList operands, ir::ElementType type);
  ir::Value& leaf(analysis::ExprRef expression);
  ir::Value& tableEntry(analysis::ExprRef expression);
  ir::Value& polynomial(const ir::Dim& dim);
  ir::Value& variable(analysis::IndexVariable index);
  ir::Value& number(double value, ir::ElementType type);

  AttentionBuilder& build;
  const analysis::IndexSpace& space;
  Places places;
  Elements elements;
  llvm::DenseMap<std::pair<analysis::ExprRef, unsigned>, ir::Value*> written;
};

} // namespace kvopt::builders
