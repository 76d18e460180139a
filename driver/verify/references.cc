// Running of recorded cases in several forms of a model.
#include "driver/verify/references.h"

#include "driver/forms/form_table.h"
#include "driver/recover.h"
#include "driver/variants.h"
#include "ir/onnx/export.h"
#include "ir/onnx/import.h"
#include "ir/shapes/shape_inference.h"
#include "passes/transforms/configured_passes.h"
#include "passes/unrounding/widened_model.h"
#include "runtime/equivalence/reference.h"
#include "support/diagnostic.h"
#include "support/format.h"
#include "support/progress.h"
#include "support/string_ends.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace kvopt::driver {
using namespace ir;
using namespace passes;
using namespace pattern;
using namespace runtime;
using namespace unrounding;
using namespace targets;

namespace {

namespace fs = std::filesystem;

struct FormWord {
  ModelForm form;
  const char* word;
};
constexpr FormWord formWords[] = {{ModelForm::Exported, "exported"},
                                  {ModelForm::Shared, "shared"},
                                  {ModelForm::Stateful, "stateful"}};

} // namespace

llvm::StringRef formName(ModelForm form) {
  return llvm::find_if(formWords, [&](const FormWord& entry) { return entry.form == form; })->word;
}

std::optional<ModelForm> formFromName(llvm::StringRef name) {
  for (const FormWord& entry : formWords)
    if (name == entry.word)
      return entry.form;
  return std::nullopt;
}

llvm::StringRef verdictName(ReferenceVerdict verdict) {
  switch (verdict) {
  case ReferenceVerdict::Equal:
    return "equal";
  case ReferenceVerdict::Different:
    return "different";
  case ReferenceVerdict::Failed:
    return "failed";
  case ReferenceVerdict::Refused:
    return "refused";
  case ReferenceVerdict::NotCompared:
    break;
  }
  return "not-compared";
}

size_t ReferenceTable::count(ReferenceVerdict verdict) const {
  size_t found = 0;
  for (const ReferenceRow& row : rows)
    found += static_cast<size_t>(llvm::count_if(
        row.results, [&](const ReferenceResult& result) { return result.verdict == verdict; }));
  return found;
}

bool ReferenceTable::equal() const {
  return count(ReferenceVerdict::Equal) != 0 && count(ReferenceVerdict::Different) == 0 &&
         count(ReferenceVerdict::Failed) == 0;
}

namespace {

/// The "status" in the model.json next to a model; empty if there is none.
std::string statusOf(const fs::path& folder) {
  std::ifstream file(folder / "model.json");
  if (!file)
    return "";
  auto facts = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!facts.is_object() || !facts.contains("status") || !facts["status"].is_string())
    return "";
  return facts["status"].get<std::string>();
}

/// The capacity for a target that requires one, with room for all cases that can be read; nullopt
/// for other targets.
std::optional<int64_t> capacityFor(const TargetChoice& target,
                                   llvm::ArrayRef<ReferenceCase> cases) {
  if (!target.target->needsCapacity())
    return std::nullopt;
  int64_t longest = 1;
  for (const ReferenceCase& recordedCase : cases) {
    if (auto steps = readReference(recordedCase.path))
      longest = std::max(longest, referenceLength(*steps));
    else
      llvm::consumeError(steps.takeError());
  }
  // Additional rows detect reads beyond the last token.
  return longest + 3;
}

/// The model after `rewrite --to target`, written and read again. A usage error counts as a
/// refusal.
llvm::Expected<PreparedModel> rewrittenModel(const std::string& path, const TargetChoice& target,
                                             std::optional<int64_t> capacity,
                                             const Toolkit& toolkit) {
  auto model = openModel(path, toolkit);
  if (!model)
    return model.takeError();
  PassContext context(toolkit.rules, toolkit.targets);
  NearMissList misses = listenToRaising(toolkit);
  context.nearMisses = &misses;
  PassManager manager(toolkit.passes, {});
  manager.addNamed(recoveryPasses);
  transforms::LowerRequest lower;
  lower.target = target.target;
  lower.options.capacity = capacity;
  lower.options.size = target.size;
  manager.add("lower", transforms::makeLower(std::move(lower)));
  manager.addNamed({"eliminate-dead-nodes"});
  if (llvm::Error error = manager.run(**model, context)) {
    Diagnostic diagnostic = takeDiagnostic(std::move(error));
    if (context.statistics["lower"]["refused"] != 0)
      return usageError("{}", diagnostic.message);
    return makeError(std::move(diagnostic));
  }
  if (!context.manifest)
    return usageError("nothing to rewrite");
  auto bytes = exportModelBytes(**model);
  if (!bytes)
    return bytes.takeError();
  auto read = importModelBytes(std::as_bytes(std::span<const char>(bytes->data(), bytes->size())),
                               (*model)->folder, toolkit.ops, ModelLimits::none());
  if (!read)
    return read.takeError();
  PreparedModel prepared;
  prepared.model = std::move(*read);
  prepared.manifest = *context.manifest;
  if (llvm::Error error = inferShapes(prepared.model->graph()))
    return error;
  return prepared;
}

constexpr const char* recorded = "recorded";

/// Runs the cases of one model.
class ModelCases {
public:
  ModelCases(const std::string& modelPath, const TargetChoice& chosen, unsigned threadCount,
             const Toolkit& given)
      : path(modelPath), target(chosen), threads(threadCount), toolkit(given) {
    prototype.model = modelPath;
  }

  void run(llvm::ArrayRef<ModelForm> forms, ReferenceTable& table) {
    const fs::path folder = fs::path(path).parent_path();
    const std::vector<ReferenceCase> cases = referenceCases(folder.string());
    if (cases.empty()) {
      ReferenceRow row = prototype;
      for (ModelForm form : forms)
        row.results.push_back(
            {form, ReferenceVerdict::NotCompared, 0, "the model has no recorded outputs"});
      table.rows.push_back(std::move(row));
      return;
    }
    status = statusOf(folder);
    llvm::Expected<PreparedModel> exported = prepareModel(path, toolkit);
    llvm::Expected<PreparedModel> rewritten =
        forms == llvm::ArrayRef(ModelForm::Exported)
            ? llvm::Expected<PreparedModel>(usageError("no rewritten form was asked for"))
            : rewrittenModel(path, target, capacityFor(target, cases), toolkit);
    for (const ReferenceCase& recordedCase : cases) {
      ReferenceRow row = prototype;
      row.name = recordedCase.name;
      if (exported)
        runCase(recordedCase.path, forms, *exported, rewritten, row);
      else
        for (ModelForm form : forms)
          row.results.push_back({form, ReferenceVerdict::Failed, 0, message(exported)});
      table.rows.push_back(std::move(row));
    }
    if (!exported)
      llvm::consumeError(exported.takeError());
    if (!rewritten)
      llvm::consumeError(rewritten.takeError());
  }

private:
  /// The message of a failure, which remains unhandled.
  template <class T> static std::string message(llvm::Expected<T>& failed) {
    Diagnostic diagnostic = takeDiagnostic(failed.takeError());
    std::string text = diagnostic.str();
    failed = makeError(std::move(diagnostic));
    return text;
  }

  void runCase(const std::string& casePath, llvm::ArrayRef<ModelForm> forms,
               const PreparedModel& exported, llvm::Expected<PreparedModel>& rewritten,
               ReferenceRow& row) {
    row.tolerance = toleranceFor(exported.model->graph(), 1).absolute;
    auto steps = expectedSteps(casePath, exported, row);
    for (ModelForm form : forms) {
      ReferenceResult result;
      result.form = form;
      if (!steps) {
        result.verdict = ReferenceVerdict::Failed;
        result.reason = message(steps);
      } else if (form == ModelForm::Exported && row.comparedTo != recorded && isStructureOnly()) {
        result.reason = status;
      } else if (form != ModelForm::Exported && !rewritten) {
        Diagnostic diagnostic = takeDiagnostic(rewritten.takeError());
        result.verdict = diagnostic.kind == Diagnostic::Kind::Usage ? ReferenceVerdict::Refused
                                                                    : ReferenceVerdict::Failed;
        result.reason = diagnostic.str();
        rewritten = makeError(std::move(diagnostic));
      } else {
        replay(form == ModelForm::Exported ? exported : *rewritten, *steps, row.tolerance, result);
      }
      row.results.push_back(std::move(result));
    }
    if (!steps)
      llvm::consumeError(steps.takeError());
  }

  bool isStructureOnly() const { return startsWith(status, "structure only"); }

  /// The recorded steps, with the outputs with which the forms are compared.
  llvm::Expected<std::vector<ReferenceStep>>
  expectedSteps(const std::string& casePath, const PreparedModel& exported, ReferenceRow& row) {
    auto steps = readReference(casePath);
    if (!steps)
      return steps;
    row.steps = steps->size();
    row.comparedTo = recorded;
    const bool isQuantized = narrowNumbersOf(*exported.model).quantizedWeights;
    if (!isQuantized && !isStructureOnly())
      return steps;
    auto source = prepareModel(path, toolkit);
    if (!source)
      return source.takeError();
    if (isQuantized) {
      row.comparedTo = "its weights in f32";
      if (llvm::Error error = widenModel(*source->model, source->manifest))
        return error;
    } else {
      ReferenceResult own;
      replay(exported, *steps, row.tolerance, own);
      if (own.verdict == ReferenceVerdict::Equal)
        return steps;
      row.comparedTo = "exported model";
    }
    auto session = open(*source, *steps, ModelForm::Exported);
    if (!session)
      return session.takeError();
    std::string ended;
    auto own = recordOutputs(**session, *steps, ended);
    if (own && own->size() != steps->size())
      row.comparedTo += formatted(", {} of {} steps", own->size(), steps->size());
    return own;
  }

  llvm::Expected<std::unique_ptr<Session>>
  open(const PreparedModel& prepared, llvm::ArrayRef<ReferenceStep> steps, ModelForm form) const {
    auto settings = referenceSession(prepared.manifest, steps, threads);
    if (!settings)
      return settings.takeError();
    // Additional rows in a buffer of fixed capacity detect reads beyond the last token. A growing
    // buffer starts without any.
    if (form == ModelForm::Shared && sharesBuffers(prepared.manifest))
      settings->capacity += 3;
    if (form == ModelForm::Stateful) {
      settings->mode = SessionOptions::Mode::Stateful;
      if (sharesBuffers(prepared.manifest))
        settings->capacity = 1;
    }
    settings->variants = variantsInMemory(*prepared.model, prepared.manifest);
    return Session::create(*prepared.model, toolkit.runner->kernels(), prepared.manifest,
                           *settings);
  }

  /// Whether all caches are in buffers whose capacity the session chooses.
  static bool sharesBuffers(const Manifest& manifest) {
    return !manifest.capacityValue && llvm::all_of(manifest.caches, [](const ManifestCache& cache) {
      return (cache.isOneBuffer() && cache.update() == CacheUpdate::Grows) ||
             cache.update() == CacheUpdate::ReadOnly;
    });
  }

  void replay(const PreparedModel& prepared, llvm::ArrayRef<ReferenceStep> steps, double tolerance,
              ReferenceResult& result) const {
    auto attempt = [&]() -> llvm::Error {
      auto report = comparison(prepared, steps, tolerance, result.form);
      if (!report)
        return report.takeError();
      const TensorComparison* worst = report->worst();
      result.verdict = report->equal() ? ReferenceVerdict::Equal : ReferenceVerdict::Different;
      result.maxAbs = worst ? worst->comparison.maxAbs : 0.0;
      if (!report->equal())
        result.reason = worst ? "worst is '" + worst->name + "'" : "nothing was compared";
      return llvm::Error::success();
    };
    if (llvm::Error error = attempt()) {
      result.verdict = ReferenceVerdict::Failed;
      result.reason = takeDiagnostic(std::move(error)).str();
    }
  }

  llvm::Expected<ComparisonReport> comparison(const PreparedModel& prepared,
                                              llvm::ArrayRef<ReferenceStep> steps, double tolerance,
                                              ModelForm form) const {
    if (form == ModelForm::Exported &&
        isDrivenOtherwise(prepared.model->graph(), prepared.manifest, steps))
      return runAsRecorded(prepared, steps, {tolerance, 0}, threads, toolkit);
    auto session = open(prepared, steps, form);
    if (!session)
      return session.takeError();
    return replayReference(**session, steps, {tolerance, 0});
  }

  std::string path;
  TargetChoice target;
  unsigned threads;
  const Toolkit& toolkit;
  ReferenceRow prototype;
  std::string status;
};

} // namespace

llvm::Expected<SessionOptions>
referenceSession(const Manifest& manifest, llvm::ArrayRef<ReferenceStep> steps, unsigned threads) {
  const std::optional<int64_t> batch = recordedBatch(manifest, steps);
  if (!batch)
    return invalid(
        "the reference records neither caches nor token ids, so its batch size is unknown");
  SessionOptions settings;
  settings.batch = *batch;
  settings.threads = threads;
  settings.poison = true;
  if (!manifest.capacityValue)
    settings.capacity = recordedPast(manifest, steps) + referenceLength(steps);
  // Static caches were recorded with their whole extent.
  for (const ManifestCache& cache : manifest.caches)
    if (cache.update() == CacheUpdate::Static)
      if (auto extent = referenceExtent(steps, cache.past, cache.sequenceAxis))
        settings.capacity = *extent;
  return settings;
}

llvm::Expected<ComparisonReport> runAsRecorded(const PreparedModel& prepared,
                                               llvm::ArrayRef<ReferenceStep> steps,
                                               Tolerance tolerance, unsigned threads,
                                               const Toolkit& toolkit) {
  ExecutorOptions options;
  options.threads = threads;
  auto executor = Executor::create(*prepared.model, toolkit.runner->kernels(), options);
  if (!executor)
    return executor.takeError();
  return replayAsRecorded(prepared.model->graph(), **executor, steps, tolerance);
}

llvm::Expected<ReferenceTable> compareWithReferences(llvm::ArrayRef<std::string> models,
                                                     llvm::ArrayRef<ModelForm> forms,
                                                     unsigned threads, const Toolkit& toolkit,
                                                     const Form& form) {
  auto target = targetFor(form, toolkit.targets);
  if (!target)
    return target.takeError();
  ReferenceTable table;
  Progress progress(toolkit.progress, "comparing with recorded steps");
  progress.expect(static_cast<double>(models.size()));
  for (const std::string& model : models) {
    if (std::error_code code; !fs::exists(model, code))
      return ioError("there is no such file").file(model);
    ModelCases(model, *target, threads, toolkit).run(forms, table);
    progress.advance(1);
  }
  return table;
}

} // namespace kvopt::driver
