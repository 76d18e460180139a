// Inspecting, rewriting and comparing models.
#include "api/error.h"
#include "api/memory_reserve.h"
#include "api/objects.h"
#include "api/progress.h"

#include "driver/check/check_json.h"
#include "driver/check/check_words.h"
#include "driver/check/counterexample.h"
#include "driver/diff/difference_json.h"
#include "driver/explain/explanation_json.h"
#include "driver/forms/form_table.h"
#include "driver/inspect/model_json.h"
#include "driver/rewrite/files.h"
#include "driver/rewrite/recommendation.h"
#include "driver/rewrite/rewrite_forms.h"
#include "driver/rewrite/rewrite_json.h"
#include "driver/rewrite/rewrite_words.h"
#include "driver/verify/data_sets.h"
#include "driver/verify/report.h"
#include "driver/verify/verify_request.h"
#include "ir/onnx/export.h"
#include "passes/pattern/reason_docs.h"
#include "support/file_access.h"
#include "support/json.h"

using namespace kvopt;
using namespace kvopt::api;
using namespace kvopt::driver;

/// A model that was rewritten, or that has the form already.
struct kvopt_result {
  std::shared_ptr<const Toolkit> toolkit;
  /// The folder that external data is in.
  ConfinedFolder folder;
  std::unique_ptr<ir::Model> model;
  std::unique_ptr<ir::Model> firstStep;
  ir::Manifest manifest;
  std::string manifestText;
  std::string report;
  bool isUnchanged = false;

  /// Fails for a model of several files.
  llvm::Expected<std::string> bytes() const;
};

llvm::Expected<std::string> kvopt_result::bytes() const {
  if (!manifest.variants.empty() || manifest.tiles || firstStep)
    return unsupported("the model consists of several files").hint("save it to a file");
  return ir::exportModelBytes(*model);
}

namespace kvopt::api {
namespace {

llvm::Error refused(const std::string& message, const OrderedJson& report,
                    const std::string& reason = "") {
  return llvm::make_error<ReportedError>(unsupported("{}", message).take(), report.dump(), reason);
}

/// The error of a refused rewrite: its node and hint are those of the first layer.
llvm::Error refused(const RefusedModel& refusal, const std::string& target) {
  const OrderedJson report = refusedJson(target, refusal);
  if (refusal.sites.empty())
    return refused(refusal.message, report);
  const pattern::MatchFailure& first = refusal.sites.front().failure;
  return llvm::make_error<ReportedError>(
      unsupported("{}", refusal.message).node(first.node).hint(hintFor(first)).take(),
      report.dump(), reasonName(first.code).str());
}

/// Calls `body` with the read options.
template <class Body>
kvopt_error* withModel(const kvopt_model* model, const kvopt_option* options, size_t count,
                       const kvopt_progress* progress, const void* output, const Body& body) {
  return guarded([&]() -> llvm::Error {
    if (llvm::Error error = checkProgress(progress))
      return error;
    const MemoryReserve reserve;
    const ProgressScope scope(progress);
    if (llvm::Error error = checkArgument(model, "model"))
      return error;
    if (llvm::Error error = checkArgument(output, "output"))
      return error;
    auto texts = optionTexts(options, count);
    if (!texts)
      return texts.takeError();
    return body(*texts);
  });
}

void give(const OrderedJson& json, kvopt_bytes** output) { *output = new kvopt_bytes{json.dump()}; }

ConfinedFolder folderOf(const ModelSource& source) {
  return source.bytes ? source.folder.value_or(ConfinedFolder()) : ConfinedFolder::of(source.path);
}

/// Result of a rewrite to a form. Refused models are errors.
llvm::Expected<std::unique_ptr<kvopt_result>> resultOf(RewriteResult rewritten, const Form& form) {
  auto result = std::make_unique<kvopt_result>();
  const std::string target = targetText(form);
  if (auto* refusal = std::get_if<RefusedModel>(&rewritten))
    return refused(*refusal, target);
  if (auto* unchanged = std::get_if<UnchangedModel>(&rewritten)) {
    result->report = unchangedJson("", target, *unchanged, WeightFiles()).dump();
    result->model = std::move(unchanged->model);
    result->manifest = std::move(unchanged->manifest);
    result->isUnchanged = true;
  } else {
    auto& made = std::get<RewrittenModel>(rewritten);
    const OrderedJson report = rewriteJson("", target, made, WeightFiles());
    if (!made.notVerified.empty())
      return refused("not verified: " + made.notVerified, report);
    if (!made.mayBeWritten())
      return refused(made.isDifferent() || !made.contradiction().empty()
                         ? "the rewritten model computes something else"
                         : "the rewritten model could not be compared",
                     report);
    result->report = report.dump();
    result->model = std::move(made.model);
    result->firstStep = std::move(made.firstStep);
    result->manifest = std::move(made.manifest);
  }
  result->manifestText = result->manifest.json();
  return result;
}

/// Rewrites a model in the first of the command's forms that takes it.
llvm::Expected<std::unique_ptr<kvopt_result>> rewritten(const kvopt_model& model, Command command,
                                                        llvm::ArrayRef<OptionText> texts) {
  RewriteWords words;
  OptionReader reader(command, texts);
  addWritingOptions(reader, command, words);
  if (llvm::Error error = reader.finish())
    return error;
  setCommand(words, command);
  words.request.source = model.source;
  if (llvm::Error error = words.read())
    return error;
  auto forms = formsOf(words, command, /*genai=*/false);
  if (!forms)
    return forms.takeError();
  auto first = rewriteInFirstForm(model.source, words.request, *forms, *model.toolkit);
  if (!first)
    return first.takeError();
  auto result = resultOf(std::move(first->result), first->form);
  if (!result)
    return result.takeError();
  (*result)->toolkit = model.toolkit;
  (*result)->folder = folderOf(model.source);
  return result;
}

kvopt_error* rewriteInto(const kvopt_model* model, Command command, const kvopt_option* options,
                         size_t count, const kvopt_progress* progress, kvopt_result** result) {
  return withModel(model, options, count, progress, result,
                   [&](llvm::ArrayRef<OptionText> texts) -> llvm::Error {
                     auto made = rewritten(*model, command, texts);
                     if (!made)
                       return made.takeError();
                     *result = made->release();
                     return llvm::Error::success();
                   });
}

/// Compares a model with recorded data sets in ONNX's own format.
llvm::Error verifiedAgainstDataSets(const kvopt_model& model, const VerifyWords& words, int* equal,
                                    kvopt_bytes** json) {
  if (model.source.bytes)
    return unsupported("data sets are compared with the model of a file, not of bytes")
        .hint("kvopt_model_open");
  auto report = verifyDataSets(model.source.path, words.reference, {words.atol, words.rtol},
                               words.threads, *model.toolkit);
  if (!report)
    return report.takeError();
  give(dataSetJson(*report), json);
  *equal = report->equal() ? 1 : 0;
  return llvm::Error::success();
}

/// Compares a model with another one, or with the recording that the options name.
llvm::Error verified(const kvopt_model& first, const kvopt_model* second,
                     llvm::ArrayRef<OptionText> texts, int* equal, kvopt_bytes** json) {
  VerifyWords words;
  OptionReader reader(Command::Verify, texts);
  addVerifyOptions(reader, words);
  addVerifyFiles(reader, words);
  if (llvm::Error error = reader.finish())
    return error;
  if (llvm::Error error = words.checkModels(second ? 2 : 1))
    return error;
  if (!second && runtime::holdsDataSets(words.reference))
    return verifiedAgainstDataSets(first, words, equal, json);
  auto one = first.runnable();
  if (!one)
    return one.takeError();
  std::shared_ptr<const RunnableModel> other;
  if (second) {
    auto runnable = second->runnable();
    if (!runnable)
      return runnable.takeError();
    other = *runnable;
  }
  auto report = verify((*one)->prepared, other ? &other->prepared : nullptr, words, *first.toolkit);
  if (!report)
    return withFile(report.takeError(), first.source.path);
  give(verificationJson(*report), json);
  *equal = report->equal() ? 1 : 0;
  return llvm::Error::success();
}

/// Checks the models that the words name, and writes the step in which they differ.
llvm::Error checked(const CheckWords& words, const Toolkit& toolkit, int* equal,
                    kvopt_bytes** json) {
  FileAccess access;
  if (llvm::Error error = access.writesFolder(words.counterexample, "--counterexample"))
    return error;
  if (llvm::Error error = access.checkOutputs())
    return error;
  auto result = checkFiles(words.request, toolkit);
  if (!result)
    return result.takeError();
  auto example = writeCounterexample(*result, words.request, words.counterexample, toolkit, access);
  if (!example)
    return example.takeError();
  give(checkJson(*result, *example), json);
  *equal = result->areEqual(words.allowsTested) ? 1 : 0;
  return llvm::Error::success();
}

} // namespace
} // namespace kvopt::api

kvopt_error* kvopt_inspect(const kvopt_model* model, const kvopt_option* options,
                           size_t option_count, const kvopt_progress* progress,
                           kvopt_bytes** json) {
  return withModel(model, options, option_count, progress, json,
                   [&](llvm::ArrayRef<OptionText> texts) -> llvm::Error {
                     OptionReader reader(Command::Inspect, texts);
                     if (llvm::Error error = reader.finish())
                       return error;
                     auto recovered = recoverForInspection(model->source, *model->toolkit);
                     if (!recovered)
                       return recovered.takeError();
                     give(inspectionJson(model->source.path, *recovered,
                                         recommend(model->source, *recovered, *model->toolkit),
                                         *model->toolkit),
                          json);
                     return llvm::Error::success();
                   });
}

kvopt_error* kvopt_explain(const kvopt_model* model, const kvopt_option* options,
                           size_t option_count, const kvopt_progress* progress,
                           kvopt_bytes** json) {
  return withModel(model, options, option_count, progress, json,
                   [&](llvm::ArrayRef<OptionText> texts) -> llvm::Error {
                     ExplainRequest request;
                     FormWords words;
                     OptionReader reader(Command::Explain, texts);
                     addExplainOptions(reader, request, words);
                     if (llvm::Error error = reader.finish())
                       return error;
                     if (llvm::Error error = readForm(words, request))
                       return error;
                     auto explained = explain(model->source, request, *model->toolkit);
                     if (!explained)
                       return explained.takeError();
                     give(explanationJson(model->source.path, *explained), json);
                     return llvm::Error::success();
                   });
}

kvopt_error* kvopt_rewrite(const kvopt_model* model, const kvopt_option* options,
                           size_t option_count, const kvopt_progress* progress,
                           kvopt_result** result) {
  return rewriteInto(model, Command::Rewrite, options, option_count, progress, result);
}

kvopt_error* kvopt_add_cache(const kvopt_model* model, const kvopt_option* options,
                             size_t option_count, const kvopt_progress* progress,
                             kvopt_result** result) {
  return rewriteInto(model, Command::AddCache, options, option_count, progress, result);
}

kvopt_error* kvopt_make_dynamic(const kvopt_model* model, const kvopt_option* options,
                                size_t option_count, const kvopt_progress* progress,
                                kvopt_result** result) {
  return rewriteInto(model, Command::MakeDynamic, options, option_count, progress, result);
}

int kvopt_result_is_unchanged(const kvopt_result* result) {
  return result && result->isUnchanged ? 1 : 0;
}
const char* kvopt_result_report(const kvopt_result* result) {
  return result ? result->report.c_str() : "";
}
const char* kvopt_result_manifest(const kvopt_result* result) {
  return result ? result->manifestText.c_str() : "";
}

kvopt_error* kvopt_result_serialize(const kvopt_result* result, kvopt_bytes** model) {
  return guarded([&]() -> llvm::Error {
    const MemoryReserve reserve;
    if (llvm::Error error = checkArgument(result, "result"))
      return error;
    if (llvm::Error error = checkArgument(model, "model"))
      return error;
    auto bytes = result->bytes();
    if (!bytes)
      return bytes.takeError();
    *model = new kvopt_bytes{std::move(*bytes)};
    return llvm::Error::success();
  });
}

kvopt_error* kvopt_result_model(const kvopt_result* result, kvopt_model** model) {
  return guarded([&]() -> llvm::Error {
    const MemoryReserve reserve;
    if (llvm::Error error = checkArgument(result, "result"))
      return error;
    if (llvm::Error error = checkArgument(model, "model"))
      return error;
    auto bytes = result->bytes();
    if (!bytes)
      return bytes.takeError();
    auto made = std::make_unique<kvopt_model>();
    made->toolkit = result->toolkit;
    made->source.bytes = std::make_shared<const std::string>(std::move(*bytes));
    made->source.folder = result->folder;
    *model = made.release();
    return llvm::Error::success();
  });
}

kvopt_error* kvopt_result_save(kvopt_result* result, const char* path, const kvopt_option* options,
                               size_t option_count, const kvopt_progress* progress) {
  return guarded([&]() -> llvm::Error {
    if (llvm::Error error = checkProgress(progress))
      return error;
    const MemoryReserve reserve;
    const ProgressScope scope(progress);
    if (llvm::Error error = checkArgument(result, "result"))
      return error;
    if (llvm::Error error = checkArgument(path, "path"))
      return error;
    auto texts = optionTexts(options, option_count);
    if (!texts)
      return texts.takeError();
    RewrittenPaths paths;
    OptionReader reader(Command::Rewrite, *texts);
    addFileOptions(reader, paths);
    if (llvm::Error error = reader.finish())
      return error;
    paths.model = path;
    FileAccess access;
    ir::Manifest named = result->manifest;
    nameFiles(named, paths, result->firstStep != nullptr);
    if (!named.variants.empty() && paths.weights == WeightPlacement::Inline)
      return usageError("the weights of a model in variants are written once, not in each of them")
          .hint("--external-data keep or copy");
    WeightFiles weights = weightFilesFor(*result->model, paths, /*dryRun=*/false);
    return writeFiles(*result->model, named, paths, weights, access, result->firstStep.get(),
                      &progressListener());
  });
}

void kvopt_result_free(kvopt_result* result) { delete result; }

kvopt_error* kvopt_verify(const kvopt_model* first, const kvopt_model* second,
                          const kvopt_option* options, size_t option_count,
                          const kvopt_progress* progress, int* equal, kvopt_bytes** json) {
  return withModel(first, options, option_count, progress, json,
                   [&](llvm::ArrayRef<OptionText> texts) -> llvm::Error {
                     if (llvm::Error error = checkArgument(equal, "equal"))
                       return error;
                     return verified(*first, second, texts, equal, json);
                   });
}

kvopt_error* kvopt_check(const kvopt_model* before, const kvopt_model* after,
                         const kvopt_option* options, size_t option_count,
                         const kvopt_progress* progress, int* equal, kvopt_bytes** json) {
  return withModel(before, options, option_count, progress, json,
                   [&](llvm::ArrayRef<OptionText> texts) -> llvm::Error {
                     if (llvm::Error error = checkArgument(after, "after"))
                       return error;
                     if (llvm::Error error = checkArgument(equal, "equal"))
                       return error;
                     CheckWords words;
                     OptionReader reader(Command::Check, texts);
                     addCheckOptions(reader, words);
                     addCounterexampleOption(reader, words);
                     if (llvm::Error error = reader.finish())
                       return error;
                     words.request.before = before->source;
                     words.request.after = after->source;
                     return checked(words, *before->toolkit, equal, json);
                   });
}

kvopt_error* kvopt_diff(const kvopt_model* first, const kvopt_model* second,
                        const kvopt_option* options, size_t option_count,
                        const kvopt_progress* progress, kvopt_bytes** json) {
  return withModel(
      first, options, option_count, progress, json,
      [&](llvm::ArrayRef<OptionText> texts) -> llvm::Error {
        if (llvm::Error error = checkArgument(second, "second"))
          return error;
        OptionReader reader(Command::Diff, texts);
        if (llvm::Error error = reader.finish())
          return error;
        auto before = readBlocks(first->source, *first->toolkit);
        if (!before)
          return before.takeError();
        auto after = readBlocks(second->source, *second->toolkit);
        if (!after)
          return after.takeError();
        give(differenceJson(first->source.path, second->source.path, differenceOf(*before, *after)),
             json);
        return llvm::Error::success();
      });
}
