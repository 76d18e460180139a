// Running pipelines.
#include "passes/pass_manager.h"

#include "ir/text/printer.h"
#include "ir/verify/verifier.h"
#include "passes/known_names.h"
#include "support/diagnostic.h"
#include "support/file_access.h"
#include "support/nearest_word.h"
#include "support/output_file.h"
#include "support/progress.h"

#include "llvm/ADT/STLExtras.h"

#include <chrono>

namespace kvopt::passes {
using namespace ir;

namespace {
llvm::Error noSuchPass(const std::string& name, const std::vector<std::string>& known) {
  return usageError("there is no pass '{}'{}", name, didYouMean(name, known))
      .hint("kvopt list passes");
}
} // namespace

llvm::Error PassManager::addPipeline(llvm::StringRef text) {
  auto steps = parsePipeline(text);
  if (!steps)
    return steps.takeError();
  if (llvm::Error error = checkPrinted())
    return error;
  for (const PipelineStep& step : *steps)
    if (llvm::Error error = add(step))
      return error;
  return llvm::Error::success();
}

llvm::Error PassManager::checkPrinted() const {
  std::vector<std::string> printable = passNames(passes);
  printable.emplace_back("all");
  for (const std::vector<std::string>* printed : {&settings.printBefore, &settings.printAfter})
    for (const std::string& name : *printed)
      if (!llvm::is_contained(printable, name))
        return noSuchPass(name, printable);
  return llvm::Error::success();
}

llvm::Error PassManager::add(const PipelineStep& step) {
  const PassInfo* info = passes.find(step.pass);
  if (!info)
    return noSuchPass(step.pass, passNames(passes));
  for (const auto& option : step.options)
    if (!llvm::is_contained(info->optionNames, option.first))
      return usageError("pass '{}' has no option '{}'{}", step.pass, option.first,
                        didYouMean(option.first, info->optionNames));
  auto pass = info->make(step.options);
  if (!pass)
    return pass.takeError();
  if (!llvm::is_contained(settings.disabledPasses, step.pass))
    stages.push_back({step, std::move(*pass)});
  return llvm::Error::success();
}

void PassManager::add(llvm::StringRef name, std::unique_ptr<Pass> pass) {
  if (!llvm::is_contained(settings.disabledPasses, name))
    stages.push_back({{name.str(), {}}, std::move(pass)});
}

void PassManager::addNamed(llvm::ArrayRef<const char*> names) {
  for (const char* name : names) {
    const PassInfo* info = passes.find(name);
    assert(info && "the pass is registered");
    add(name, llvm::cantFail(info->make({})));
  }
}

namespace {
bool selects(llvm::ArrayRef<std::string> names, llvm::StringRef pass) {
  return llvm::is_contained(names, "all") || llvm::is_contained(names, pass);
}
} // namespace

llvm::Error PassManager::run(Model& model, PassContext& context) {
  measured.clear();
  Progress progress(settings.progress, "rewriting");
  progress.expect(static_cast<double>(stages.size()));
  if (settings.verifyEach)
    if (llvm::Error error = verify(model))
      return error;
  for (size_t i = 0; i < stages.size(); ++i) {
    const std::string& name = stages[i].step.pass;
    if (settings.print && selects(settings.printBefore, name))
      settings.print("before " + name, printText(model));
    std::string before = settings.reproducerPath.empty() ? std::string() : printText(model);

    uint64_t edits = model.context().edits();
    auto start = std::chrono::steady_clock::now();
    llvm::Error error = stages[i].pass->run(model, context);
    std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
    measured.push_back({name, elapsed.count(), model.context().edits() != edits});

    if (!error && settings.verifyEach && measured.back().changed)
      error = verify(model);
    if (error)
      return fail(std::move(error), i, before);
    if (settings.print && selects(settings.printAfter, name))
      settings.print("after " + name, printText(model));
    progress.advance(1);
  }
  return llvm::Error::success();
}

llvm::Error PassManager::fail(llvm::Error error, size_t stage, const std::string& before) const {
  error = llvm::handleErrors(std::move(error), [&](std::unique_ptr<DiagnosticError> each) {
    // The user, who gave a wrong option, knows nothing of passes.
    if (each->diagnostic().kind != Diagnostic::Kind::Usage)
      each->diagnostic().notes.push_back(
          "in pass '" + stages[stage].step.pass + "'" +
          (stage == 0 ? "" : " after " + stages[stage - 1].step.pass));
    return llvm::Error(std::move(each));
  });
  if (settings.reproducerPath.empty())
    return error;

  std::vector<PipelineStep> rest;
  for (size_t i = stage; i < stages.size(); ++i)
    rest.push_back(stages[i].step);
  auto write = [&]() -> llvm::Error {
    FileAccess own;
    auto file = OutputFile::create(settings.reproducerPath, settings.files ? *settings.files : own);
    if (!file)
      return file.takeError();
    std::string text = "// RUN: kvopt opt %s --pipeline '" + printPipeline(rest) + "'\n" + before;
    if (llvm::Error failure = file->write(llvm::StringRef(text)))
      return failure;
    return file->commit();
  };
  if (llvm::Error failure = write())
    return withNote(std::move(error), "no reproducer: " + takeDiagnostic(std::move(failure)).str());
  return withNote(std::move(error), "reproducer: " + settings.reproducerPath);
}

} // namespace kvopt::passes
