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

/// The forms that kvopt tries if the user chooses none, in order: ONNX Runtime runs them at least
/// as fast as the export.
llvm::ArrayRef<Form> defaultForms();

/// Numbers of attention layers of a recovered model, by the effect of a form on them.
struct FormFit {
  size_t taken = 0;
  size_t gaining = 0; ///< taken layers whose keys and values each step changes
  size_t left = 0;    ///< stay as exported, at no cost
  size_t refused = 0;

  bool takesAll() const { return gaining != 0 && refused == 0; }
};
FormFit fitOf(const Form& form, const ir::Model& recovered, const passes::PassContext& context,
              const Toolkit& toolkit);
/// The default forms that take all layers.
std::vector<Form> formsThatTakeAll(const ir::Model& recovered, const passes::PassContext& context,
                                   const Toolkit& toolkit);

/// Result of the first form that accepts a model, or the refusal of the last one.
struct FirstForm {
  Form form;
  RewriteResult result;
  /// Forms that were tried first, and the reasons that they refused the model.
  std::vector<std::pair<Form, std::string>> refused;
};

/// Rewrites the model at `source` in the first of `forms` that accepts it; `forms` is not empty.
/// The model is opened again for each form. A model in which no step changes keys and values is
/// refused by the first form, unless there is only one. `opened` is called with each opened model
/// and may fail to stop the rewrite; it may be null.
llvm::Expected<FirstForm>
rewriteInFirstForm(const ModelSource& source, RewriteRequest request, llvm::ArrayRef<Form> forms,
                   const Toolkit& toolkit,
                   llvm::function_ref<llvm::Error(const ir::Model& model)> opened = nullptr);

} // namespace kvopt::driver
