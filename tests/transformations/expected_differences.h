// Tables of transformed models whose sites differ from those before, each with its reason.
#pragma once

#include "tests/transformations/subject.h"

#include <string>
#include <vector>

namespace kvopt {

class ExpectedDifferences {
public:
  /// Reads a file of this folder: lines `TRANSFORMATION | MODEL | WHY`, and comments after `#`.
  explicit ExpectedDifferences(const std::string& file);

  /// Whether the sites of the model may differ after the transformation.
  bool takes(const std::string& transformation, const std::string& model);
  /// Lines for the transformation that `takes` never needed, of models among the subjects.
  std::vector<std::string> unused(const std::string& transformation,
                                  const std::vector<Subject>& subjects) const;

private:
  struct Entry {
    std::string transformation;
    std::string model;
    std::string why;
    bool used = false;
  };
  std::vector<Entry> entries;
};

} // namespace kvopt
