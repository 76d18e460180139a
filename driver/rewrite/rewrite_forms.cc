// The loop over forms.
#include "driver/rewrite/rewrite_forms.h"

#include "driver/forms/form_table.h"
#include "driver/recover.h"
#include "support/diagnostic.h"

namespace kvopt::driver {

namespace {

/// The reason that a form was refused, without the hint, because another form is tried.
std::string whyRefused(const RefusedModel& refused) {
  if (refused.sites.empty())
    return refused.message;
  pattern::MatchFailure failure = refused.sites.front().failure;
  failure.hint.clear();
  return failure.str();
}

} // namespace

llvm::Expected<FirstForm>
rewriteInFirstForm(const ModelSource& source, RewriteRequest request, llvm::ArrayRef<Form> forms,
                   const Toolkit& toolkit,
                   llvm::function_ref<llvm::Error(const ir::Model& model)> opened) {
  assert(!forms.empty());
  std::vector<std::pair<Form, std::string>> refused;
  for (const Form& form : forms) {
    request.form = form;
    if (auto target = targetFor(form, toolkit.targets); !target)
      return target.takeError();
    auto model = openModel(source, toolkit);
    if (!model)
      return model.takeError();
    if (opened)
      if (llvm::Error error = opened(**model))
        return error;
    auto result = rewrite(std::move(*model), request, toolkit);
    if (!result)
      return result.takeError();
    const auto* refusal = std::get_if<RefusedModel>(&*result);
    if (!refusal || form == forms.back())
      return FirstForm{form, std::move(*result), std::move(refused)};
    refused.emplace_back(form, whyRefused(*refusal));
  }
  llvm_unreachable("the last form returns");
}

} // namespace kvopt::driver
