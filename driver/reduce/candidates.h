// Candidates of a reduction: edited copies of the smallest model so far, and their test.
#pragma once

#include "driver/reduce/reduce.h"
#include "ir/model.h"
#include "support/working_folder.h"

#include "llvm/ADT/STLFunctionalExtras.h"

#include <memory>
#include <optional>
#include <string>

namespace kvopt {
class OutputFiles;
} // namespace kvopt

namespace kvopt::driver {

struct DataFile;

/// Edits a copy of the smallest model; false if the edit does not apply.
using CandidateEdit = llvm::function_ref<bool(ir::Model& model)>;

/// The smallest model so far, in a private folder, and the command that tests candidates.
class Candidates {
public:
  /// Runs the command on the whole model. Declares the output in `toolkit.files`. The toolkit must
  /// outlive the object.
  static llvm::Expected<Candidates> create(const ReduceRequest& request, const Toolkit& toolkit);
  Candidates(Candidates&&) noexcept = default;
  Candidates& operator=(Candidates&&) = delete;
  ~Candidates() = default;

  /// The smallest model so far, with inferred types. Do not edit it.
  ir::Model& best() const { return *model; }
  /// Size of that model.
  ReducedSize size() const;
  int exitCode() const { return expected; }
  /// Number of candidates for which the command ran.
  size_t count() const { return tested; }
  bool hasManifest() const { return !manifest.empty(); }

  /// Applies the edit to a copy and tests it; true if it is the smallest model now. Nodes and
  /// initializers that nothing reads are removed with each edit, except if the whole model requires
  /// them. Rejects models that cannot be read again, and edits that change nothing.
  llvm::Expected<bool> attempt(CandidateEdit edit);
  /// Tests the model without the manifest next to it.
  llvm::Expected<bool> attemptWithoutManifest();
  /// Tests whether unread nodes can be removed.
  llvm::Expected<bool> attemptWithoutDeadNodes();

  /// Whether the model refers to external data.
  bool hasData() const;
  /// Writes the smallest model so far to the output, with external data that it uses.
  llvm::Error writeOutput() const;

private:
  Candidates(const ReduceRequest& asked, const Toolkit& kit, WorkingFolder working)
      : request(asked), toolkit(kit), folder(std::move(working)) {}

  llvm::Error makeManifestOfEdited();
  /// Copies or links the files of the model to the folder, the model itself as `modelFile`.
  llvm::Error takeFiles(const std::string& modelFile);
  llvm::Error addTo(OutputFiles& copies, const DataFile& file);
  llvm::Expected<int> exitCodeOf(const std::string& file) const;
  /// Reads a candidate; null if it is not valid.
  llvm::Expected<std::unique_ptr<ir::Model>> read(const std::string& name) const;
  llvm::Error keep(const std::string& name, std::unique_ptr<ir::Model> candidate);

  const ReduceRequest& request;
  const Toolkit& toolkit;
  WorkingFolder folder;
  std::string bestName;             ///< file in the folder
  std::string manifest;             ///< path of the smallest model's manifest; empty without one
  std::string manifestOfEdited;     ///< path of the manifest without its claim about the model
  std::unique_ptr<ir::Model> model; ///< read from `bestName`
  int expected = 0;
  size_t tested = 0;
  size_t made = 0;
  bool infersTypes = false;
  bool keepsDeadNodes = true;
  bool isUnchanged = false; ///< whether the latest edit changed nothing
};

} // namespace kvopt::driver
