// ai.kvopt's operators that write rows: AppendRows and QuantizeRows.
#pragma once

#include "engines/onnxruntime/kvopt_operator.h"

namespace kvopt::onnxruntime {

/// Computes what ir/ops/kvopt/append_rows.cc defines.
Offer appendRows(const NodeDescription& node);
std::vector<OperatorTypes> appendRowsTypes();

/// Computes what ir/ops/kvopt/quantize_rows.cc defines.
Offer quantizeRows(const NodeDescription& node);
std::vector<OperatorTypes> quantizeRowsTypes();

} // namespace kvopt::onnxruntime
