// Transformations that recognition is not expected to see through, or whose result is recognized
// otherwise for a good reason: the table in expected_differences.txt.
#pragma once

#include "tests/transformations/subject.h"

#include <string>
#include <vector>

namespace kvopt {

class ExpectedDifferences {
public:
  ExpectedDifferences();

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
