// Output of `inspect` for several models, with one row per model.
#pragma once

#include "cli/support/command.h"

namespace kvopt::cli {

/// Names of files in a table, without their common folder and without `/model.onnx`, so that they
/// do not depend on the location of the models.
std::vector<std::string> tableNames(llvm::ArrayRef<std::string> paths);

/// The heading of the table. Columns have fixed widths, so that rows are independent of each other.
SafeText tableHead();
/// The row of a model: number of attention layers, number of matched ones, and the facts of the
/// matched ones, as distinct values in the order of the layers.
SafeText tableRow(const std::string& name, const analysis::SiteList& sites);
/// The row of a file that could not be read.
SafeText tableErrorRow(const std::string& name);

} // namespace kvopt::cli
