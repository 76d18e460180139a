// External data, variants, manifests and configurations of a model.
#include "ir/onnx/model_files.h"

#include "ir/manifest/manifest.h"
#include "ir/onnx/source.h"
#include "ir/onnx/tensor_messages.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/Path.h"

#include <google/protobuf/io/coded_stream.h>
#include <nlohmann/json.hpp>

#include <limits>
#include <set>

namespace kvopt::ir {
namespace {

constexpr const char* genaiConfigName = "genai_config.json";

void addLocation(const onnx::TensorProto& tensor, std::set<std::string>& found) {
  for (const onnx::StringStringEntryProto& entry : tensor.external_data())
    if (entry.key() == "location")
      found.insert(entry.value());
}

std::string folderOf(const Model& model) { return model.folder.empty() ? "." : model.folder; }

/// The file's bytes as text; nullopt where there is no such file in the folder.
std::shared_ptr<const MappedFile> openIfThere(const std::string& folder, const std::string& name) {
  auto file = MappedFile::openBeneath(folder, name);
  if (file)
    return *file;
  llvm::consumeError(file.takeError());
  return nullptr;
}

llvm::StringRef textOf(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

/// The external data that the model file `name` refers to; nothing where it cannot be read.
std::set<std::string> locationsIn(const std::string& folder, const std::string& name) {
  std::set<std::string> found;
  const std::shared_ptr<const MappedFile> file = openIfThere(folder, name);
  if (!file || file->bytes().size() > static_cast<size_t>(std::numeric_limits<int>::max()))
    return found;
  onnx::ModelProto message;
  google::protobuf::io::CodedInputStream input(
      reinterpret_cast<const uint8_t*>(file->bytes().data()),
      static_cast<int>(file->bytes().size()));
  input.SetTotalBytesLimit(std::numeric_limits<int>::max());
  // What precedes a malformed part counts.
  static_cast<void>(message.MergePartialFromCodedStream(&input));
  forEachTensor(message, [&](const onnx::TensorProto& tensor) {
    if (isExternal(tensor))
      addLocation(tensor, found);
  });
  return found;
}

/// The manifest in the metadata of the file that the model was read from: passes may have set
/// another one since.
std::optional<Manifest> embeddedManifest(const Model& model) {
  if (!model.source())
    return std::nullopt;
  for (const onnx::StringStringEntryProto& entry : model.source()->message->metadata_props())
    if (entry.key() == manifestKey) {
      llvm::Expected<Manifest> manifest = parseManifest(entry.value());
      if (manifest)
        return std::move(*manifest);
      llvm::consumeError(manifest.takeError());
    }
  return std::nullopt;
}

/// The manifest that drives the model, wherever it is; nullopt where none is readable.
std::optional<Manifest> itsManifest(const Model& model, const std::string& manifestPath) {
  if (std::optional<Manifest> manifest = embeddedManifest(model))
    return manifest;
  const auto file = openIfThere(folderOf(model), llvm::sys::path::filename(manifestPath).str());
  if (!file)
    return std::nullopt;
  llvm::Expected<Manifest> beside = parseManifest(textOf(*file));
  if (!beside) {
    llvm::consumeError(beside.takeError());
    return std::nullopt;
  }
  const llvm::StringRef name = llvm::sys::path::filename(model.path);
  if (llvm::none_of(beside->variants,
                    [&](const ManifestVariant& variant) { return variant.file == name; }))
    return std::nullopt;
  return std::move(*beside);
}

/// Whether a configuration of ONNX Runtime GenAI is that of the file `name`.
bool configures(const MappedFile& config, llvm::StringRef name) {
  const llvm::StringRef text = textOf(config);
  const auto json = nlohmann::json::parse(text.begin(), text.end(), nullptr, false);
  const nlohmann::json::json_pointer at("/model/decoder/filename");
  if (json.is_discarded() || !json.is_object() || !json.contains(at) || !json[at].is_string())
    return false;
  return name == json[at].get_ref<const std::string&>();
}

bool isUsablePath(const std::string& name) {
  return !name.empty() && name.find('\0') == std::string::npos;
}

} // namespace

std::string pathBeside(llvm::StringRef path, llvm::StringRef name) {
  llvm::SmallString<256> file(llvm::sys::path::parent_path(path));
  llvm::sys::path::append(file, name);
  return file.str().str();
}

std::string manifestPathBeside(llvm::StringRef modelPath) {
  modelPath.consume_back(".onnx");
  return modelPath.str() + ".kv.json";
}

std::vector<std::string> externalLocationsOf(const Model& model) {
  std::set<std::string> found;
  if (model.source())
    for (const onnx::TensorProto* tensor : model.source()->externalTensors())
      addLocation(*tensor, found);
  return {found.begin(), found.end()};
}

std::vector<std::string> externalFilesOf(const Model& model) {
  std::vector<std::string> paths;
  for (const std::string& location : externalLocationsOf(model))
    paths.push_back(folderOf(model) + "/" + location);
  return paths;
}

std::vector<ModelFile> filesOf(const Model& model) {
  std::vector<ModelFile> files;
  auto add = [&](const std::string& path, std::string role) {
    if (isUsablePath(path))
      files.push_back({path, std::move(role)});
  };
  add(model.path, fmt::format("the model '{}'", model.path));
  for (const std::string& path : externalFilesOf(model))
    add(path, fmt::format("external data of the model '{}'", model.path));
  if (model.path.empty())
    return files;

  const std::string manifestPath = manifestPathBeside(model.path);
  if (const std::optional<Manifest> manifest = itsManifest(model, manifestPath)) {
    add(manifestPath, fmt::format("the manifest of the model '{}'", model.path));
    const auto addWithData = [&](const std::string& file, const char* what) {
      if (!isUsablePath(file))
        return;
      const std::string path = pathBeside(model.path, file);
      add(path, fmt::format("{} of the model '{}'", what, model.path));
      for (const std::string& location : locationsIn(folderOf(model), file))
        add(pathBeside(model.path, location),
            fmt::format("external data of '{}', {} of the model '{}'", path, what, model.path));
    };
    for (const ManifestVariant& variant : manifest->variants)
      addWithData(variant.file, "a variant");
    if (manifest->tiles)
      for (const auto* pieces : {&manifest->tiles->parts, &manifest->tiles->tiles})
        for (const std::string& file : *pieces)
          addWithData(file, "a piece");
  }
  const auto config = openIfThere(folderOf(model), genaiConfigName);
  if (config && configures(*config, llvm::sys::path::filename(model.path)))
    add(pathBeside(model.path, genaiConfigName),
        fmt::format("the configuration of the model '{}'", model.path));
  return files;
}

} // namespace kvopt::ir
