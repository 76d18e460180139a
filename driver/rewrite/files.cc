// The files of a rewritten model.
#include "driver/rewrite/files.h"

#include "driver/rewrite/genai_config.h"
#include "driver/rewrite/genai_folder.h"
#include "driver/variants.h"
#include "ir/onnx/export.h"
#include "ir/onnx/model_files.h"
#include "support/diagnostic.h"
#include "support/file_access.h"
#include "support/format.h"
#include "support/output_file.h"

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

ExportOptions exportOptions(const RewrittenPaths& paths) {
  ExportOptions exported;
  exported.externalBytes = INT64_MAX; // new constants stay in the model's file
  exported.placement = paths.weights;
  if (exported.placement == ExternalPlacement::Copy)
    exported.externalFile = std::filesystem::path(paths.model).filename().string() + ".data";
  return exported;
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
                            staysInFolder(paths, model));
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
                          OutputFiles& files) {
  model.setMetadata(manifestKey, manifest.json());
  ExportOptions exported = exportOptions(paths);
  exported.externalBytes = ExportOptions().externalBytes;
  return prepareVariants(model, manifest, paths.model, std::move(exported), files);
}

/// Adds the file that holds the large constants of a model with variants, wherever they were
/// before.
void noteVariantData(const Manifest& manifest, const RewrittenPaths& paths, WeightFiles& weights) {
  const std::string data = paths.model + ".data";
  if (manifest.variants.empty() || !weights.files.empty() || !std::filesystem::exists(data))
    return;
  weights = {ExternalPlacement::Copy, {data}};
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
  if (paths.weights != ExternalPlacement::Keep)
    weights.files.clear();
  if (paths.weights == ExternalPlacement::Copy && !dryRun)
    weights.files = {paths.model + ".data"};
  return weights;
}

llvm::Error checkOutputPaths(const RewrittenPaths& paths, const Model& model, FileAccess& access,
                             const Manifest* manifest) {
  const ExportOptions exported = exportOptions(paths);
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
  return checkExport(model, paths.model, exported, access);
}

llvm::Error writeFiles(Model& model, const Manifest& manifest, const RewrittenPaths& paths,
                       WeightFiles& weights, FileAccess& access, const Model* firstStep) {
  if (llvm::Error error = checkOutputPaths(paths, model, access, &manifest))
    return error;
  OutputFiles files(access);
  if (firstStep) {
    model.setMetadata(manifestKey, manifest.json());
    RewrittenPaths ofFirst = paths;
    ofFirst.model = firstStepPath(paths.model);
    if (llvm::Error error = prepareExport(*firstStep, ofFirst.model, exportOptions(ofFirst), files))
      return error;
  }
  if (!manifest.variants.empty()) {
    if (llvm::Error error = prepareFamily(model, manifest, paths, files))
      return error;
  } else if (llvm::Error error = prepareExport(model, paths.model, exportOptions(paths), files)) {
    return error;
  }
  if (llvm::Error error = prepareGenaiFolder(model, manifest, paths, files, access))
    return error;
  auto file = preparedFile(paths.manifestPath(), manifest.json() + "\n", access);
  if (!file)
    return file.takeError();
  files.add(std::move(*file));
  if (llvm::Error error = files.commit())
    return error;
  noteVariantData(manifest, paths, weights);
  return llvm::Error::success();
}

} // namespace kvopt::driver
