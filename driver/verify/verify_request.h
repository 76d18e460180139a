// Comparison of a model with another model, or with recorded steps, as options describe it.
#pragma once

#include "driver/verify/verify_words.h"
#include "runtime/equivalence/reference_steps.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"

namespace kvopt::driver {

/// Receives a sentence about the comparison that the report does not have.
using VerifyRemark = llvm::function_ref<void(llvm::StringRef sentence)>;

/// Compares two models, and their likelihoods of the text that the options name; or, if `second` is
/// null, one model with the recording of `words.reference`. Call words.checkModels before.
/// `remark` may be null.
llvm::Expected<VerificationReport> verify(const PreparedModel& first, const PreparedModel* second,
                                          const VerifyWords& words, const Toolkit& toolkit,
                                          VerifyRemark remark = nullptr);

/// Compares one model with steps that were recorded or computed.
llvm::Expected<VerificationReport> verifyRecorded(const PreparedModel& prepared,
                                                  llvm::ArrayRef<runtime::ReferenceStep> steps,
                                                  const VerifyWords& words, const Toolkit& toolkit,
                                                  VerifyRemark remark = nullptr);

} // namespace kvopt::driver
