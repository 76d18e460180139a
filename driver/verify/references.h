// Comparison of models with recorded outputs: a table with one row per case and one column per form
// of the model.
#pragma once

#include "driver/forms/form.h"
#include "driver/verify/verification.h"

namespace kvopt::driver {

/// The forms in which a model is run.
enum class ModelForm {
  Exported, ///< the file as it is
  Shared,   ///< rewritten; caches that the target keeps in one buffer have a fixed capacity
  Stateful, ///< rewritten; the session's buffers grow from one row on
};
llvm::StringRef formName(ModelForm form);
std::optional<ModelForm> formFromName(llvm::StringRef name);

enum class ReferenceVerdict {
  Equal,
  Different,
  Failed,      ///< the model does not run; see `reason`
  Refused,     ///< the rewrite refused the model; see `reason`
  NotCompared, ///< there is nothing to compare this form with; see `reason`
};
llvm::StringRef verdictName(ReferenceVerdict verdict);

/// Result of one form in one case.
struct ReferenceResult {
  ModelForm form = ModelForm::Exported;
  ReferenceVerdict verdict = ReferenceVerdict::NotCompared;
  double maxAbs = 0;
  std::string reason;
};

struct ReferenceRow {
  std::string model;      ///< path of the model
  std::string name;       ///< name of the case; empty: the model has none
  std::string comparedTo; ///< "recorded", or the replacement of the recorded outputs
  double tolerance = 0;   ///< absolute
  size_t steps = 0;
  std::vector<ReferenceResult> results;
};

struct ReferenceTable {
  std::vector<ReferenceRow> rows;

  size_t count(ReferenceVerdict verdict) const;
  /// Whether at least one form was compared, every form runs, and none is different.
  bool equal() const;
};

/// Options of a session for the recorded steps: their batch size, room for their tokens, and
/// poisoned contents for rows that no step wrote.
llvm::Expected<runtime::SessionOptions>
referenceSession(const ir::Manifest& manifest, llvm::ArrayRef<runtime::ReferenceStep> steps,
                 unsigned threads);

/// Runs the steps with the recorded inputs and compares outputs (runtime/equivalence/reference.h).
llvm::Expected<runtime::ComparisonReport>
runAsRecorded(const PreparedModel& prepared, llvm::ArrayRef<runtime::ReferenceStep> steps,
              runtime::Tolerance tolerance, unsigned threads, const Toolkit& toolkit);

/// Runs every case of every model (referenceCases()) in each form; the rewritten forms use `form`.
///
/// The forms are compared with:
///  * the recorded outputs;
///  * for a model whose weights are quantized in blocks (MatMulNBits), the same model with the
///    values of the weights in f32 (`widen`), because outputs were recorded before the weights were
///    rounded;
///  * for a model whose `model.json` has a "status" that begins with "structure only", and whose
///    recordings are indeed those of another computation, the exported model, as far as it accepts
///    the steps. This concerns only the rewritten forms.
llvm::Expected<ReferenceTable> compareWithReferences(llvm::ArrayRef<std::string> models,
                                                     llvm::ArrayRef<ModelForm> forms,
                                                     unsigned threads, const Toolkit& toolkit,
                                                     const Form& form = {});

} // namespace kvopt::driver
