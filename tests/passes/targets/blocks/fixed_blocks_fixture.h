// A shipped model with caches in blocks of fixed extents, next to the exported one.
#pragma once

#include "driver/forms/form_table.h"
#include "driver/variants.h"
#include "driver/verify/references.h"
#include "runtime/equivalence/comparison.h"
#include "tests/equivalence/corpus/corpus.h"
#include "tests/equivalence/rewritten_model.h"

namespace kvopt {

class FixedBlocksTest : public ShippedModelTest {
protected:
  /// Variants and pieces of what was lowered last are those of the sessions that are opened.
  DrivenModel lowered(const std::string& target, int64_t capacity) {
    DrivenModel driven = rewritten(path(), toolkit, "capacity=" + std::to_string(capacity), target);
    variants = driver::variantsInMemory(*driven.model, driven.manifest);
    return driven;
  }
  /// Rows that nobody wrote are large numbers.
  std::unique_ptr<runtime::Session> open(const DrivenModel& driven,
                                         runtime::SessionOptions options = {}) {
    options.variants = variants;
    return openSession(driven, toolkit.runner->kernels(), options);
  }

  static void expectClose(const runtime::TensorView& expected, const runtime::TensorView& found) {
    ASSERT_EQ(expected.shape, found.shape);
    runtime::Comparison comparison = valueOrThrow(runtime::compareTensors(expected, found));
    EXPECT_LE(comparison.maxAbs, 1e-4);
  }
  static void expectSame(const runtime::StepResult& expected, const runtime::StepResult& found) {
    ASSERT_EQ(expected.outputs.size(), found.outputs.size());
    for (size_t i = 0; i < expected.outputs.size(); ++i)
      expectClose(expected.outputs[i].tensor.view, found.outputs[i].tensor.view);
  }
  static void expectSameCaches(const runtime::Session& expected, const runtime::Session& found) {
    EXPECT_EQ(expected.length(), found.length());
    ASSERT_EQ(expected.cacheCount(), found.cacheCount());
    for (size_t i = 0; i < expected.cacheCount(); ++i)
      expectClose(valueOrThrow(expected.exportedCacheRows(i)).view,
                  valueOrThrow(found.exportedCacheRows(i)).view);
  }

  /// Cuts, forks and rearranges a session of each model alike; they stay the same.
  void expectSameOperations(runtime::Session& expected, runtime::Session& found) {
    // Whole blocks are adopted, and then cropped into.
    for (runtime::Session* session : {&expected, &found}) {
      stepAlike(*session, 24);
      successOrThrow(session->crop(13));
    }
    expectSame(stepAlike(expected, 1, 4), stepAlike(found, 1, 4));
    auto expectedFork = valueOrThrow(expected.fork());
    auto foundFork = valueOrThrow(found.fork());
    expectSame(stepAlike(expected, 17, 2), stepAlike(found, 17, 2));
    expectSame(stepAlike(*expectedFork, 2, 3), stepAlike(*foundFork, 2, 3));
    for (runtime::Session* session : {expectedFork.get(), foundFork.get()})
      successOrThrow(session->reorder({2, 0, 2}));
    expectSame(stepAlike(*expectedFork, 1, 5), stepAlike(*foundFork, 1, 5));
    for (runtime::Session* session : {expectedFork.get(), foundFork.get()})
      successOrThrow(session->reorder({1, 0, 1, 0}));
    expectSame(stepAlike(*expectedFork, 9, 6), stepAlike(*foundFork, 9, 6));
    expectSameCaches(expected, found);
    expectSameCaches(*expectedFork, *foundFork);
    for (runtime::Session* session : {&expected, &found}) {
      successOrThrow(session->crop(5));
      stepAlike(*session, 3, 8);
      successOrThrow(session->reset());
    }
    expectSame(stepAlike(expected, 5, 9), stepAlike(found, 5, 9));
  }

  /// Saves, loads, freezes and thaws; `driven` has a capacity of 21 tokens at least.
  void expectSavedSessionsGoOn(const DrivenModel& driven, const std::string& file) {
    DrivenModel exported = asExported(path(), toolkit);
    runtime::SessionOptions options;
    options.batch = 2;
    auto expected = openSession(exported, toolkit.runner->kernels(), options);
    auto session = open(driven, options);
    stepAlike(*expected, 19);
    stepAlike(*session, 19);
    successOrThrow(session->save(file));
    auto loaded = open(driven, options);
    stepAlike(*loaded, 4, 9);
    successOrThrow(loaded->load(file));
    expectSameCaches(*session, *loaded);
    successOrThrow(loaded->freeze());
    auto fork = valueOrThrow(loaded->fork());
    successOrThrow(loaded->thaw());
    successOrThrow(fork->thaw());
    runtime::StepResult wanted = stepAlike(*expected, 2, 3);
    for (runtime::Session* each : {session.get(), loaded.get(), fork.get()})
      expectSame(wanted, stepAlike(*each, 2, 3));
    expectSameCaches(*session, *fork);
  }

  std::string problemOfStep(runtime::Session& session, int64_t tokens = 1) {
    runtime::DecoderStep step;
    step.pastLength = session.length();
    step.tokens = {std::vector<int64_t>(static_cast<size_t>(tokens), 1)};
    auto result = runtime::stepDecoder(session, step);
    return result ? "" : takeDiagnostic(result.takeError()).str();
  }

  /// Writes the model and what belongs to it beside m.onnx in the folder.
  void write(DrivenModel driven, const TemporaryFolder& folder) {
    driver::nameVariants(driven.manifest, folder.path("m.onnx"));
    driven.model->setMetadata(ir::manifestKey, driven.manifest.json());
    OutputFiles files;
    successOrThrow(driver::prepareVariants(*driven.model, driven.manifest, folder.path("m.onnx"),
                                           ir::ExportOptions(), files));
    successOrThrow(files.commit());
  }
  driver::PreparedModel read(const TemporaryFolder& folder) {
    return valueOrThrow(driver::prepareModel(folder.path("m.onnx"), toolkit));
  }
  std::unique_ptr<runtime::Session> openFiles(const driver::PreparedModel& read) {
    runtime::SessionOptions options;
    options.poison = true;
    return valueOrThrow(
        runtime::Session::create(*read.model, toolkit.runner->kernels(), read.manifest, options));
  }

  std::shared_ptr<ir::VariantSource> variants;
};

/// The models of the corpus that have references, in a form with fixed blocks.
class FixedBlocksCorpusTest : public CorpusTest {
protected:
  driver::ReferenceTable compared(const char* target) {
    std::vector<std::string> models;
    for (const std::string& name : sampleOf(foldersWith(corpusFolder(), "ref")))
      models.push_back((corpusFolder() / name / "model.onnx").string());
    EXPECT_FALSE(models.empty());
    return valueOrThrow(driver::compareWithReferences(
        models, {driver::ModelForm::Shared}, 1, toolkit, valueOrThrow(driver::presetForm(target))));
  }

  /// Whatever equals its reference in one table does in the other, and nothing else.
  static void expectSameVerdicts(const driver::ReferenceTable& expected,
                                 const driver::ReferenceTable& found) {
    ASSERT_EQ(found.rows.size(), expected.rows.size());
    for (size_t i = 0; i < found.rows.size(); ++i) {
      const driver::ReferenceRow& row = found.rows[i];
      ASSERT_EQ(row.results.size(), expected.rows[i].results.size());
      for (size_t j = 0; j < row.results.size(); ++j)
        EXPECT_EQ(row.results[j].verdict, expected.rows[i].results[j].verdict)
            << row.model << " " << row.name << ": " << row.results[j].reason;
    }
  }

  driver::Toolkit toolkit;
};

} // namespace kvopt
