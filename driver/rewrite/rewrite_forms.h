// Rewriting of a model in the first of several forms that accepts it.
#pragma once

#include "driver/forms/form.h"
#include "driver/rewrite/rewrite.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"

#include <string>
#include <utility>
#include <vector>

namespace kvopt::driver {

/// Result of the first form that accepts a model, or the refusal of the last one.
struct FirstForm {
  Form form;
  RewriteResult result;
  /// Forms that were tried first, and the reasons that they refused the model.
  std::vector<std::pair<Form, std::string>> refused;
};

/// Rewrites the model at `source` in the first of `forms` that accepts it; `forms` is not empty.
/// The model is opened again for each form. `opened` is called with each opened model and may fail
/// to stop the rewrite; it may be null.
llvm::Expected<FirstForm>
rewriteInFirstForm(const ModelSource& source, RewriteRequest request, llvm::ArrayRef<Form> forms,
                   const Toolkit& toolkit,
                   llvm::function_ref<llvm::Error(const ir::Model& model)> opened = nullptr);

} // namespace kvopt::driver
