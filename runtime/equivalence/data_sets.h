// Data sets in the form of ONNX's own node tests: the inputs of one run of a model, and what it
// must compute.
#pragma once

#include "ir/model.h"
#include "runtime/equivalence/reference.h"
#include "runtime/exec/executor.h"

#include <optional>
#include <string>
#include <vector>

namespace kvopt::runtime {

/// One recorded tensor, with the name that it was stored under (often empty).
struct RecordedTensor {
  std::string name;
  ir::TensorRef data;
};

/// The contents of one folder `test_data_set_<k>`: entry i is input_<i>.pb or output_<i>.pb, or
/// nullopt where that file does not exist.
struct DataSet {
  std::string folder; ///< path
  std::string name;   ///< of the folder, without the path
  std::vector<std::optional<RecordedTensor>> inputs;
  std::vector<std::optional<RecordedTensor>> outputs;
};

/// Whether `folder` holds folders `test_data_set_<k>`, or is one data set itself.
bool holdsDataSets(const std::string& folder);

/// Reads the data sets of a folder in the order of k. Errors: the folder cannot be read, has no
/// data sets, or a file is not a tensor.
llvm::Expected<std::vector<DataSet>> readDataSets(const std::string& folder);

/// By how much elements may differ: the given numbers, else 1e-4 absolute and 1e-3 relative, or
/// 2e-2 (both) for 16-bit floats. Other types than floating-point ones must be equal.
struct DataSetTolerance {
  std::optional<double> absolute;
  std::optional<double> relative; ///< default with `absolute`: 0

  Tolerance of(ir::ElementType element) const;
};

/// Runs `model` once per data set and compares every declared output with the recorded one.
///
/// Recorded tensors belong to the inputs (or outputs) of their names if every one of them has the
/// name of a different one, else to those at their index; an index counts only inputs without
/// default contents, unless more are recorded. A step of the report is a data set, whose name is
/// its phase. A result of another element type or shape than the recorded tensor is a difference.
///
/// Errors: an input without default contents, or an output, that is not recorded; recorded tensors
/// that belong to none; inputs that are not tensors; and those of the executor.
llvm::Expected<ComparisonReport> replayDataSets(const ir::Model& model, Executor& executor,
                                                llvm::ArrayRef<DataSet> sets,
                                                const DataSetTolerance& tolerance);

} // namespace kvopt::runtime
