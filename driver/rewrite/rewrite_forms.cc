// The loop over forms.
#include "driver/rewrite/rewrite_forms.h"

#include "driver/forms/form_table.h"
#include "driver/recover.h"
#include "driver/rewrite/remedies.h"
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

constexpr Form formsOfOnnxRuntime[] = {{Engine::Ort, CacheKind::Buffer},
                                       {Engine::Onnx, CacheKind::Buffer},
                                       {Engine::Onnx, CacheKind::Grow}};

} // namespace

llvm::ArrayRef<Form> defaultForms() { return formsOfOnnxRuntime; }

FormFit fitOf(const Form& form, const ir::Model& recovered, const passes::PassContext& context,
              const Toolkit& toolkit) {
  auto choice = targetFor(form, toolkit.targets);
  if (!choice) {
    llvm::consumeError(choice.takeError());
    return {};
  }
  const auto failures =
      targets::refusals(*choice->target, context.sites, recovered, context.reorder);
  FormFit fit;
  for (const analysis::AttentionSite& site : context.sites) {
    const bool isTaken = !failures[site.layer];
    ++(isTaken ? fit.taken : targets::mayStay(*choice->target, site) ? fit.left : fit.refused);
    if (isTaken && !site.hasUnchangedKeys)
      ++fit.gaining;
  }
  return fit;
}

std::vector<Form> formsThatTakeAll(const ir::Model& recovered, const passes::PassContext& context,
                                   const Toolkit& toolkit) {
  std::vector<Form> forms;
  for (const Form& form : defaultForms())
    if (fitOf(form, recovered, context, toolkit).takesAll())
      forms.push_back(form);
  return forms;
}

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
    auto* refusal = std::get_if<RefusedModel>(&*result);
    const bool isHopeless = refusal && refusal->withoutCaches && forms.size() > 1;
    if (isHopeless) {
      refusal->message = refusal->withoutCaches->sentence;
    } else if (refusal && !refusal->sites.empty() && form == forms.back()) {
      refusal->remedies = remediesFor(source, request, forms, toolkit);
      keepRemedies(*refusal);
    }
    if (!refusal || isHopeless || form == forms.back())
      return FirstForm{form, std::move(*result), std::move(refused)};
    refused.emplace_back(form, whyRefused(*refusal));
  }
  llvm_unreachable("the last form returns");
}

} // namespace kvopt::driver
