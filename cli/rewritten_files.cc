// The files of a rewritten model.
#include "cli/rewritten_files.h"

#include "cli/byte_text.h"
#include "cli/genai_config.h"
#include "cli/variant_files.h"
#include "ir/diagnostic.h"
#include "ir/file_plan.h"
#include "ir/format.h"
#include "ir/onnx_export.h"
#include "ir/output_file.h"

#include "llvm/Support/Path.h"

#include <filesystem>

namespace kvopt {
namespace {

/// A file that appears when `commit` is called.
llvm::Expected<OutputFile> preparedFile(const std::string& path, const std::string& text) {
  auto file = OutputFile::create(path);
  if (!file)
    return file.takeError();
  if (llvm::Error error = file->write(llvm::StringRef(text)))
    return error;
  return file;
}

ExportOptions exportOptions(const RewriteOptions& options) {
  ExportOptions exported;
  exported.externalBytes = INT64_MAX; // what passes make stays in the model's file
  exported.placement = options.externalData == "copy"     ? ExternalPlacement::Copy
                       : options.externalData == "inline" ? ExternalPlacement::Inline
                                                          : ExternalPlacement::Keep;
  if (exported.placement == ExternalPlacement::Copy)
    exported.externalFile = std::filesystem::path(options.output).filename().string() + ".data";
  return exported;
}

/// Writes the model with its variants, which are made of it.
llvm::Error prepareFamily(Model& model, const Manifest& manifest, const RewriteOptions& options,
                          OutputFiles& files) {
  model.setMetadata(manifestKey, manifest.json());
  ExportOptions exported = exportOptions(options);
  exported.externalBytes = ExportOptions().externalBytes;
  return prepareVariants(model, manifest, options.output, std::move(exported), files);
}

/// Large constants of a model with variants are in one file, wherever they were.
void noteVariantData(const Manifest& manifest, const RewriteOptions& options,
                     RewriteOutcome& outcome) {
  const std::string data = options.output + ".data";
  if (manifest.variants.empty() || !outcome.externalFiles.empty() || !std::filesystem::exists(data))
    return;
  outcome.externalPlacement = "copy";
  outcome.externalFiles = {data};
}

/// `, variants …` where there are any.
std::string variantsText(const Manifest& manifest, const RewriteOptions& options) {
  const std::vector<std::string> paths = variantPaths(manifest, options.output);
  if (paths.empty())
    return "";
  if (paths.size() == 1)
    return ", its variant " + paths.front();
  return fmt::format(", its variants {} to {}", paths.front(), paths.back());
}

/// ` (3.1 MiB, weights stay in decoder.onnx.data)`.
std::string sizeText(const RewriteOptions& options, const RewriteOutcome& outcome) {
  std::error_code unknown;
  const uintmax_t bytes = std::filesystem::file_size(options.output, unknown);
  std::string text = " (" + (unknown ? "" : byteText(static_cast<int64_t>(bytes)));
  const std::vector<std::string>& files = outcome.externalFiles;
  if (!files.empty())
    text += outcome.externalPlacement == "keep" ? ", weights stay in " : ", weights in ";
  if (files.size() > 1)
    text += fmt::format("{} files", files.size());
  else if (!files.empty())
    text += llvm::sys::path::filename(files[0]).str();
  return text + ")";
}

} // namespace

std::string manifestPathFor(const RewriteOptions& options) {
  if (!options.manifest.empty())
    return options.manifest;
  return manifestPathBeside(options.output);
}

llvm::Error checkOutputPaths(const RewriteOptions& options, const Model& model,
                             const Manifest* manifest) {
  const ExportOptions exported = exportOptions(options);
  FilePlan plan;
  plan.reads(options.model, fmt::format("the model '{}'", options.model));
  plan.reads(model);
  plan.writes(options.output, "--output");
  plan.writes(manifestPathFor(options), options.manifest.empty() ? "the manifest" : "--manifest");
  plan.writes(options.genaiConfig, "--genai-config");
  const bool hasVariants = manifest && !manifest->variants.empty();
  if (hasVariants || !exported.externalFile.empty())
    plan.writes(options.output + ".data", "the external data of the output");
  if (hasVariants)
    for (const std::string& path : variantPaths(*manifest, options.output))
      plan.writes(path, "a variant of the output");
  if (llvm::Error error = plan.check())
    return error;
  return checkExport(model, options.output, exported);
}

void noteExternalData(const Model& model, const RewriteOptions& options, RewriteOutcome& outcome) {
  const std::vector<std::string> files = externalFilesOf(model);
  if (files.empty())
    return;
  outcome.externalPlacement = options.externalData;
  if (options.externalData == "keep")
    outcome.externalFiles = files;
  else if (options.externalData == "copy" && !options.dryRun)
    outcome.externalFiles = {options.output + ".data"};
}

llvm::Error writeFiles(Model& model, const Manifest& manifest, const RewriteOptions& options,
                       RewriteOutcome& outcome) {
  if (llvm::Error error = checkOutputPaths(options, model, &manifest))
    return error;
  OutputFiles files;
  if (!manifest.variants.empty()) {
    if (llvm::Error error = prepareFamily(model, manifest, options, files))
      return error;
  } else if (llvm::Error error =
                 prepareExport(model, options.output, exportOptions(options), files)) {
    return error;
  }
  if (!options.genaiConfig.empty()) {
    auto config =
        genaiConfig(model, manifest, std::filesystem::path(options.output).filename().string());
    if (!config)
      return config.takeError();
    auto prepared = preparedFile(options.genaiConfig, *config + "\n");
    if (!prepared)
      return prepared.takeError();
    files.add(std::move(*prepared));
  }
  auto file = preparedFile(manifestPathFor(options), manifest.json() + "\n");
  if (!file)
    return file.takeError();
  files.add(std::move(*file));
  if (llvm::Error error = files.commit())
    return error;
  noteVariantData(manifest, options, outcome);
  return llvm::Error::success();
}

std::string writtenText(const Manifest& manifest, const RewriteOptions& options,
                        const RewriteOutcome& outcome) {
  return fmt::format("{}{}{} and {}", options.output, sizeText(options, outcome),
                     variantsText(manifest, options), manifestPathFor(options));
}

} // namespace kvopt
