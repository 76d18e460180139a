// One row a model: what `inspect` prints for several models.
#pragma once

#include "cli/support/command.h"

namespace kvopt::cli {

/// The names of files in a table: without the folder that all share and without `/model.onnx`, so
/// that they do not depend on where the models lie.
std::vector<std::string> tableNames(llvm::ArrayRef<std::string> paths);

/// The head line. Columns have fixed widths: a row does not depend on the other rows.
SafeText tableHead();
/// Sites, how many matched, and the facts of the matched ones: values in the order of the sites,
/// each once.
SafeText tableRow(const std::string& name, const analysis::SiteList& sites);
/// The row of a file that could not be read.
SafeText tableErrorRow(const std::string& name);

} // namespace kvopt::cli
