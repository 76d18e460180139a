// What tests say of recorded cases.
#pragma once

#include "driver/verify/references.h"

#include <filesystem>

namespace kvopt {

/// The folder of the row's model, without the folders that it is in.
inline std::string folderOf(const driver::ReferenceRow& row) {
  return std::filesystem::path(row.model).parent_path().filename().string();
}

/// Every form that is different or does not run, a line each.
inline std::string failuresOf(const driver::ReferenceTable& table) {
  std::string text;
  for (const driver::ReferenceRow& row : table.rows)
    for (const driver::ReferenceResult& result : row.results)
      if (result.verdict == driver::ReferenceVerdict::Different ||
          result.verdict == driver::ReferenceVerdict::Failed)
        text += formatted("{} {} {}: {} {}\n", folderOf(row), row.name,
                          driver::formName(result.form).str(), result.maxAbs, result.reason);
  return text;
}

} // namespace kvopt
