// The files of a rewritten model.
#include "driver/rewrite/files.h"

#include "driver/engines/operator_library.h"
#include "driver/rewrite/data_files.h"
#include "driver/rewrite/genai_config.h"
#include "driver/rewrite/genai_folder.h"
#include "driver/variants.h"
#include "ir/onnx/export.h"
#include "ir/onnx/model_files.h"
#include "support/diagnostic.h"
#include "support/file_access.h"
#include "support/format.h"
#include "support/output_file.h"
#include "support/progress.h"

#include <filesystem>

namespace kvopt::driver {
using namespace ir;

namespace {

/// A file that appears when `commit` is called.
llvm::Expected<OutputFile> preparedFile(const std::string& path, const std::string& text,
                                        FileAccess& access) {
  auto file = OutputFile::create(path, access);
  if (!file)
    return file.takeError();
  if (llvm::Error error = file->write(llvm::StringRef(text)))
    return error;
  return file;
}

/// `progress` may be null.
ExportOptions exportOptions(const RewrittenPaths& paths, Progress* progress = nullptr) {
  ExportOptions exported;
  if (progress)
    exported.onWritten = [progress](size_t bytes) {
      progress->advance(static_cast<double>(bytes));
    };
  exported.externalBytes = INT64_MAX; // new constants stay in the model's file
  exported.placement = driver::exported(paths.weights);
  if (paths.weights == WeightPlacement::Copy)
    exported.externalFile = std::filesystem::path(paths.model).filename().string() + ".data";
  return exported;
}

bool keepsFiles(const RewrittenPaths& paths) {
  return exported(paths.weights) == ExternalPlacement::Keep;
}

/// Number of bytes of weights that are written, at most: those in the model's external files.
double bytesToWrite(const Model& model, const Manifest& manifest, const RewrittenPaths& paths) {
  double bytes = 0;
  if (keepsFiles(paths) && manifest.variants.empty())
    return bytes;
  for (const std::string& file : externalFilesOf(model)) {
    std::error_code unknown;
    const uintmax_t size = std::filesystem::file_size(file, unknown);
    bytes += unknown ? 0 : static_cast<double>(size);
  }
  return bytes;
}

/// Whether GenAI's configuration is written to the folder from which the model was read.
bool staysInFolder(const RewrittenPaths& paths, const Model& model) {
  namespace fs = std::filesystem;
  const auto folderOf = [](const std::string& file) {
    const fs::path folder = fs::path(file).parent_path();
    return folder.empty() ? fs::path(".") : folder;
  };
  std::error_code unknown;
  return fs::equivalent(folderOf(paths.genaiConfig), folderOf(model.path), unknown);
}

/// Names and destinations of the tokenizer's files, which GenAI needs next to its configuration;
/// empty if they are already there.
std::vector<std::pair<std::string, std::string>> carriedFiles(const RewrittenPaths& paths,
                                                              const Model& model) {
  std::vector<std::pair<std::string, std::string>> carried;
  if (paths.genaiConfig.empty() || staysInFolder(paths, model))
    return carried;
  const std::filesystem::path folder = std::filesystem::path(paths.genaiConfig).parent_path();
  for (const std::string& name : tokenizerFiles(model.path))
    carried.emplace_back(name, (folder / name).string());
  return carried;
}

/// Prepares GenAI's configuration and the tokenizer's files, if they are requested.
llvm::Error prepareGenaiFolder(const Model& model, const Manifest& manifest,
                               const RewrittenPaths& paths, OutputFiles& files,
                               FileAccess& access) {
  if (paths.genaiConfig.empty())
    return llvm::Error::success();
  auto config = genaiConfig(model, manifest, std::filesystem::path(paths.model).filename().string(),
                            staysInFolder(paths, model), operatorLibrary());
  if (!config)
    return config.takeError();
  auto written = preparedFile(paths.genaiConfig, *config + "\n", access);
  if (!written)
    return written.takeError();
  files.add(std::move(*written));
  for (const auto& [name, path] : carriedFiles(paths, model)) {
    auto bytes = tokenizerFile(model.path, name);
    if (!bytes)
      return bytes.takeError();
    auto copy = preparedFile(path, *bytes, access);
    if (!copy)
      return copy.takeError();
    files.add(std::move(*copy));
  }
  return llvm::Error::success();
}

/// Prepares the model and the variants that are created from it.
llvm::Error prepareFamily(Model& model, const Manifest& manifest, const RewrittenPaths& paths,
                          ExportOptions exported, OutputFiles& files) {
  model.setMetadata(manifestKey, manifest.json());
  exported.externalBytes = ExportOptions().externalBytes;
  return prepareVariants(model, manifest, paths.model, std::move(exported), files);
}

/// Adds the file that holds the large constants of a model with variants, wherever they were
/// before.
void noteVariantData(const Manifest& manifest, const RewrittenPaths& paths, WeightFiles& weights) {
  const std::string data = paths.model + ".data";
  if (manifest.variants.empty() || !weights.files.empty() || !std::filesystem::exists(data))
    return;
  weights = {WeightPlacement::Copy, {data}};
}

} // namespace

std::string RewrittenPaths::manifestPath() const {
  return manifest.empty() ? manifestPathBeside(model) : manifest;
}

std::string firstStepPath(const std::string& output) {
  llvm::StringRef stem = output;
  stem.consume_back(".onnx");
  return (stem + ".first.onnx").str();
}

void nameFiles(Manifest& manifest, const RewrittenPaths& paths, bool hasFirstStep) {
  nameVariants(manifest, paths.model);
  if (hasFirstStep)
    manifest.firstStep = std::filesystem::path(firstStepPath(paths.model)).filename().string();
}

WeightFiles weightFilesFor(const Model& model, const RewrittenPaths& paths, bool dryRun) {
  WeightFiles weights{std::nullopt, externalFilesOf(model)};
  if (weights.files.empty())
    return weights;
  weights.placement = paths.weights;
  const std::vector<DataFile> moved = dataFilesFor(model, paths.model);
  if (keepsFiles(paths) && (moved.empty() || dryRun)) {
    weights.placement = WeightPlacement::Keep;
    return weights;
  }
  weights.files.clear();
  if (keepsFiles(paths)) {
    if (paths.weights == WeightPlacement::Keep)
      weights.placement = WeightPlacement::Copy;
    for (const DataFile& file : moved)
      weights.files.push_back(file.path);
  } else if (paths.weights == WeightPlacement::Copy && !dryRun) {
    weights.files = {paths.model + ".data"};
  }
  return weights;
}

llvm::Error checkOutputPaths(const RewrittenPaths& paths, const Model& model, FileAccess& access,
                             const Manifest* manifest) {
  ExportOptions exported = exportOptions(paths);
  if (llvm::Error error = registerFiles(model, access))
    return error;
  if (!paths.genaiConfig.empty())
    for (const std::string& path : genaiSources(model.path))
      if (llvm::Error error = access.reads(path, "a file of the exported model"))
        return error;
  std::vector<std::pair<std::string, const char*>> outputs = {
      {paths.model, "--output"},
      {paths.manifestPath(), paths.manifest.empty() ? "the manifest" : "--manifest"},
      {paths.genaiConfig, "--genai-config"}};
  for (const auto& [name, path] : carriedFiles(paths, model))
    outputs.emplace_back(path, "a file of the tokenizer");
  if (keepsFiles(paths))
    for (const DataFile& file : dataFilesFor(model, paths.model))
      if (!sameFile(file.source, file.path))
        outputs.emplace_back(file.path, "the external data of the output");
  const bool hasVariants = manifest && !manifest->variants.empty();
  if (hasVariants || !exported.externalFile.empty())
    outputs.emplace_back(paths.model + ".data", "the external data of the output");
  if (hasVariants)
    for (const std::string& path : variantPaths(*manifest, paths.model))
      outputs.emplace_back(path, "a variant of the output");
  if (hasVariants)
    for (const std::string& path : piecePaths(*manifest, paths.model))
      outputs.emplace_back(path, "a piece of the output");
  if (manifest && !manifest->firstStep.empty())
    outputs.emplace_back(firstStepPath(paths.model), "the first step of the output");
  if (manifest && !manifest->firstStep.empty() && !exported.externalFile.empty())
    outputs.emplace_back(firstStepPath(paths.model) + ".data",
                         "the external data of the first step");
  for (const auto& [path, option] : outputs)
    if (llvm::Error error = access.writes(path, option))
      return error;
  if (llvm::Error error = access.checkOutputs())
    return error;
  if (paths.weights == WeightPlacement::Copy)
    if (llvm::Error error = checkRoomForCopy(model, paths.model))
      return error;
  if (!keepsFiles(paths))
    return checkExport(model, paths.model, exported, access);
  // Links are made only to know whether they are possible.
  auto data = DataFiles::create(model, paths.model, paths.weights, /*isTrial=*/true);
  if (!data)
    return data.takeError();
  exported.goAlong = data->locations();
  return checkExport(model, paths.model, exported, access);
}

llvm::Error writeFiles(Model& model, const Manifest& manifest, const RewrittenPaths& paths,
                       WeightFiles& weights, FileAccess& access, const Model* firstStep,
                       ProgressListener* listener) {
  if (llvm::Error error = checkOutputPaths(paths, model, access, &manifest))
    return error;
  Progress progress(listener, "writing " + paths.model);
  progress.expect(bytesToWrite(model, manifest, paths));
  OutputFiles files(access);
  ExportOptions exported = exportOptions(paths, &progress);
  std::optional<DataFiles> data;
  if (keepsFiles(paths)) {
    auto made = DataFiles::create(model, paths.model, paths.weights);
    if (!made)
      return made.takeError();
    data.emplace(std::move(*made));
    progress.expect(static_cast<double>(data->bytesToCopy()));
    if (llvm::Error error = data->copy(files, exported.onWritten))
      return error;
    exported.goAlong = data->locations();
  }
  if (firstStep) {
    model.setMetadata(manifestKey, manifest.json());
    RewrittenPaths ofFirst = paths;
    ofFirst.model = firstStepPath(paths.model);
    ExportOptions exportedFirst = exportOptions(ofFirst, &progress);
    exportedFirst.goAlong = exported.goAlong;
    if (llvm::Error error = prepareExport(*firstStep, ofFirst.model, exportedFirst, files))
      return error;
  }
  if (!manifest.variants.empty()) {
    if (llvm::Error error = prepareFamily(model, manifest, paths, exported, files))
      return error;
  } else if (llvm::Error error = prepareExport(model, paths.model, exported, files)) {
    return error;
  }
  if (llvm::Error error = prepareGenaiFolder(model, manifest, paths, files, access))
    return error;
  auto file = preparedFile(paths.manifestPath(), manifest.json() + "\n", access);
  if (!file)
    return file.takeError();
  files.add(std::move(*file));
  progress.complete();
  if (llvm::Error error = files.commit())
    return error;
  if (data)
    data->keep();
  noteVariantData(manifest, paths, weights);
  return llvm::Error::success();
}

} // namespace kvopt::driver
