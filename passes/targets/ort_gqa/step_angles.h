// Cosines and sines of a step as tables for ONNX Runtime's operators.
#pragma once

#include "passes/analysis/rotation/paired_rotation.h"
#include "passes/builders/attention_builder.h"

namespace kvopt::targets {

/// Batch rows that a table has the tokens of.
enum class TableRows { AllBatchRows, FirstBatchRow };

/// The cosines or sines of a rotation of `pairs` pairs, [tokens,pairs]: one row for each token, of
/// all batch rows one after the other (only one if they share the columns) or of the first one.
ir::Value& angleTable(const analysis::ColumnRange& columns, int64_t pairs, TableRows rows,
                      builders::AttentionBuilder& build);

} // namespace kvopt::targets
