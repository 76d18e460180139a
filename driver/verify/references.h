// Models against what was recorded for them: one row a case, one column a form of the model.
#pragma once

#include "driver/forms/form.h"
#include "driver/verify/verification.h"

namespace kvopt::driver {

/// The forms in which a model is run.
enum class ModelForm {
  Exported, ///< the file as it is
  Shared,   ///< rewritten, each cache that the target keeps in one buffer of fixed capacity
  Stateful, ///< the same, the session's buffers growing from one row on
};
llvm::StringRef formName(ModelForm form);
std::optional<ModelForm> formFromName(llvm::StringRef name);

enum class ReferenceVerdict {
  Equal,
  Different,
  Failed,      ///< the model does not run: `reason` says why
  Refused,     ///< the rewrite refused the model: `reason` says why
  NotCompared, ///< nothing to compare this form with: `reason` says why
};
llvm::StringRef verdictName(ReferenceVerdict verdict);

/// One form in one case.
struct ReferenceResult {
  ModelForm form = ModelForm::Exported;
  ReferenceVerdict verdict = ReferenceVerdict::NotCompared;
  double maxAbs = 0;
  std::string reason;
};

struct ReferenceRow {
  std::string model;      ///< its path
  std::string name;       ///< of the case; empty: the model has none
  std::string comparedTo; ///< "recorded", or what took the place of the recorded outputs
  double tolerance = 0;   ///< absolute
  size_t steps = 0;
  std::vector<ReferenceResult> results;
};

struct ReferenceTable {
  std::vector<ReferenceRow> rows;

  size_t count(ReferenceVerdict verdict) const;
  /// Something was compared, and nothing is different or does not run.
  bool equal() const;
};

/// How a session for the recorded steps is opened: their batch, room for their tokens, rows that
/// nobody wrote poisoned.
llvm::Expected<runtime::SessionOptions>
referenceSession(const ir::Manifest& manifest, llvm::ArrayRef<runtime::ReferenceStep> steps,
                 unsigned threads);

/// Runs the steps with everything that was recorded for them (runtime/equivalence/reference.h).
llvm::Expected<runtime::ComparisonReport>
runAsRecorded(const PreparedModel& prepared, llvm::ArrayRef<runtime::ReferenceStep> steps,
              runtime::Tolerance tolerance, unsigned threads, const Toolkit& toolkit);

/// Runs every case of every model (referenceCases()) in each form; rewritten forms are those of
/// `form`.
///
/// What is compared to:
///  * the recorded outputs;
///  * where the model's weights are quantized in blocks (MatMulNBits), the same model with the
///    values that they stand for in f32 (`widen`): recordings were made before the rounding;
///  * where `model.json` beside the model has a "status" that begins with "structure only", and the
///    recordings are indeed another computation's, the rewritten forms are compared with the model
///    as exported, as far as that can follow the steps.
llvm::Expected<ReferenceTable> compareWithReferences(llvm::ArrayRef<std::string> models,
                                                     llvm::ArrayRef<ModelForm> forms,
                                                     unsigned threads, const Toolkit& toolkit,
                                                     const Form& form = {});

} // namespace kvopt::driver
