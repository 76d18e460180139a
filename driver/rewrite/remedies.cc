// Trial rewrites.
#include "driver/rewrite/remedies.h"

#include "driver/forms/form_table.h"
#include "driver/recover.h"
#include "driver/rewrite/rewrite_passes.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace kvopt::driver {
using namespace ir;
using namespace passes;

namespace {

/// An option of `rewrite` that makes it take more models.
struct OptionTrial {
  const char* option;
  const char* condition;
  /// Adds the option; false if the request has it.
  bool (*add)(RewriteRequest& request);
};

constexpr OptionTrial optionTrials[] = {
    {"--padding none", "if no batch is padded",
     [](RewriteRequest& request) {
       const bool isNew = request.padding != PaddedRows::None;
       request.padding = PaddedRows::None;
       return isNew;
     }},
    {"--require any", "and leaves the others as they are",
     [](RewriteRequest& request) {
       const bool isNew = request.require != LayerRequirement::Any;
       request.require = LayerRequirement::Any;
       return isNew;
     }},
    {"--one-branch", "and takes the branch with a past for every step",
     [](RewriteRequest& request) {
       const bool isNew = !request.oneBranch;
       request.oneBranch = true;
       return isNew;
     }},
};

/// Number of layers that the passes of the request lower; 0 if they refuse the model.
size_t loweredLayers(const ModelSource& source, const RewriteRequest& request,
                     const Toolkit& toolkit) {
  auto target = targetFor(request.form, toolkit.targets);
  auto model = target ? openModel(source, toolkit) : target.takeError();
  if (!model) {
    llvm::consumeError(model.takeError());
    return 0;
  }
  PassContext context(toolkit.rules, toolkit.targets);
  context.matcher = request.matcher;
  PassManagerOptions settings;
  llvm::Error error = disable(request.disabled, toolkit, context, settings);
  PassManager manager(toolkit.passes, settings);
  if (!error) {
    addRewritePasses(manager, request, *target, std::nullopt, [](const Model&) {});
    error = manager.run(**model, context);
  }
  const bool isRefused = static_cast<bool>(error) || !context.manifest;
  llvm::consumeError(std::move(error));
  if (isRefused || (request.oneBranch && context.statistics["specialise-branch"]["branches"] == 0))
    return 0;
  return context.lowered.size();
}

} // namespace

std::string Remedy::text() const {
  return formatted("{} rewrites {} layer{}, {}", option, layers, layers == 1 ? "" : "s", condition);
}

std::vector<Remedy> remediesFor(const ModelSource& source, const RewriteRequest& refused,
                                llvm::ArrayRef<Form> forms, const Toolkit& toolkit) {
  std::vector<Remedy> remedies;
  if (refused.addCaches || refused.freeExtents)
    return remedies;
  for (const OptionTrial& trial : optionTrials) {
    RewriteRequest request = refused;
    request.printAfter.clear();
    if (!trial.add(request))
      continue;
    for (const Form& form : forms) {
      request.form = form;
      const size_t layers = loweredLayers(source, request, toolkit);
      if (layers == 0)
        continue;
      remedies.push_back({trial.option, trial.condition, layers});
      break;
    }
  }
  return remedies;
}

void keepRemedies(RefusedModel& refused) {
  const auto isHelp = [&](llvm::StringRef part) {
    return llvm::all_of(optionTrials, [&](const OptionTrial& trial) {
      return !part.contains(trial.option) ||
             llvm::any_of(refused.remedies,
                          [&](const Remedy& remedy) { return remedy.option == trial.option; });
    });
  };
  for (RefusedSite& site : refused.sites) {
    const std::string before = site.failure.str();
    llvm::SmallVector<llvm::StringRef, 4> parts;
    const std::string hint = site.failure.hint;
    llvm::StringRef(hint).split(parts, "; ", -1, /*KeepEmpty=*/false);
    llvm::erase_if(parts, [&](llvm::StringRef part) { return !isHelp(part); });
    site.failure.hint = llvm::join(parts, "; ");
    // The message ends with the first failure.
    if (const size_t at = refused.message.find(before); at != std::string::npos)
      refused.message.replace(at, before.size(), site.failure.str());
  }
}

} // namespace kvopt::driver
