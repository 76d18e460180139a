// Data sets in the format of ONNX's node tests: inputs of one run of a model, and expected outputs.
#pragma once

#include "ir/model.h"
#include "runtime/equivalence/reference.h"
#include "runtime/exec/executor.h"

#include <optional>
#include <string>
#include <vector>

namespace kvopt::runtime {

/// One recorded tensor and its stored name, which is often empty.
struct RecordedTensor {
  std::string name;
  ir::TensorRef data;
};

/// Contents of one folder `test_data_set_<k>`: entry i is input_<i>.pb or output_<i>.pb, or nullopt
/// if that file does not exist.
struct DataSet {
  std::string folder; ///< path
  std::string name;   ///< name of the folder without its path
  std::vector<std::optional<RecordedTensor>> inputs;
  std::vector<std::optional<RecordedTensor>> outputs;
};

/// Whether `folder` contains folders `test_data_set_<k>`, or is a data set itself.
bool holdsDataSets(const std::string& folder);

/// Reads the data sets of a folder in the order of k. Fails if the folder cannot be read, if it has
/// no data sets, or if a file is not a tensor.
llvm::Expected<std::vector<DataSet>> readDataSets(const std::string& folder);

/// Maximum difference of elements: the given numbers, otherwise 1e-4 absolute and 1e-3 relative, or
/// 2e-2 (both) for 16-bit floats. Types other than floating-point types must be equal.
struct DataSetTolerance {
  std::optional<double> absolute;
  std::optional<double> relative; ///< default with `absolute`: 0

  Tolerance of(ir::ElementType element) const;
};

/// Runs `model` once per data set and compares every declared output with the recorded one.
///
/// Recorded tensors belong to the inputs (or outputs) with their names if all of them have
/// different names of inputs (or outputs); otherwise to those with their index. An index counts
/// only inputs without default contents, unless more tensors are recorded. A step of the report is
/// a data set, whose name is its phase. A result whose element type or shape differs from the
/// recorded tensor is a difference.
///
/// Fails if an output, or an input without default contents, is not recorded, if a recorded tensor
/// belongs to none, if an input is not a tensor, or if the executor fails.
llvm::Expected<ComparisonReport> replayDataSets(const ir::Model& model, Executor& executor,
                                                llvm::ArrayRef<DataSet> sets,
                                                const DataSetTolerance& tolerance);

} // namespace kvopt::runtime
