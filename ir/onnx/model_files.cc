// External data, variants, manifests and configurations that belong to a model.
#include "ir/onnx/model_files.h"

#include "ir/manifest/manifest.h"
#include "ir/onnx/source.h"
#include "ir/onnx/tensor_messages.h"
#include "support/diagnostic.h"
#include "support/mapped_file.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/Path.h"

#include <google/protobuf/io/coded_stream.h>
#include <nlohmann/json.hpp>

#include <limits>
#include <set>
#include <tuple>

namespace kvopt::ir {
namespace {

constexpr const char* genaiConfigName = "genai_config.json";

void addLocation(const onnx::TensorProto& tensor, std::set<std::string>& found) {
  for (const onnx::StringStringEntryProto& entry : tensor.external_data())
    if (entry.key() == "location")
      found.insert(entry.value());
}

/// The file's bytes; null if there is no such file in the folder.
std::shared_ptr<const MappedFile> openIfThere(const ConfinedFolder& folder,
                                              const std::string& name) {
  auto file = MappedFile::openBeneath(folder, name);
  if (file)
    return *file;
  llvm::consumeError(file.takeError());
  return nullptr;
}

llvm::StringRef textOf(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

/// Message of a model file, as far as it can be read; null if it is too large.
std::unique_ptr<onnx::ModelProto> messageIn(const MappedFile& file) {
  if (file.bytes().size() > static_cast<size_t>(std::numeric_limits<int>::max()))
    return nullptr;
  auto message = std::make_unique<onnx::ModelProto>();
  google::protobuf::io::CodedInputStream input(
      reinterpret_cast<const uint8_t*>(file.bytes().data()), static_cast<int>(file.bytes().size()));
  input.SetTotalBytesLimit(std::numeric_limits<int>::max());
  // Everything before a malformed part is kept.
  static_cast<void>(message->MergePartialFromCodedStream(&input));
  return message;
}

std::vector<std::string> locationsIn(const onnx::ModelProto& message) {
  std::set<std::string> found;
  forEachTensor(message, [&](const onnx::TensorProto& tensor) {
    if (isExternal(tensor))
      addLocation(tensor, found);
  });
  return {found.begin(), found.end()};
}

/// Manifest in the metadata of the file. Passes may have set another one in the model since.
std::optional<Manifest> embeddedManifest(const onnx::ModelProto& message) {
  for (const onnx::StringStringEntryProto& entry : message.metadata_props())
    if (entry.key() == manifestKey) {
      llvm::Expected<Manifest> manifest = parseManifest(entry.value());
      if (manifest)
        return std::move(*manifest);
      llvm::consumeError(manifest.takeError());
    }
  return std::nullopt;
}

/// Whether an ONNX Runtime GenAI configuration refers to the file `name`.
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

/// Name in roles of the model at `path`.
std::string modelRole(const std::string& path) { return formatted("the model '{}'", path); }

/// Collects the files of the model at a path, and of the models that manifests name.
class FileCollector {
public:
  FileCollector(std::string modelPath, ConfinedFolder modelFolder)
      : root(modelRole(modelPath)), folder(std::move(modelFolder)) {
    add(modelPath, root);
    seen.insert(std::move(modelPath));
  }

  /// Adds the files of the model with that message and external data.
  void addFilesOf(const std::string& path, const onnx::ModelProto& message,
                  llvm::ArrayRef<std::string> locations) {
    addFilesOf(path, message, locations, root);
  }

  /// All files, including those of models that manifests name.
  std::vector<InputFile> take() {
    while (!named.empty()) {
      const InputFile model = std::move(named.back());
      named.pop_back();
      // A first step may be a link that leads out of the folder.
      auto file = MappedFile::open(model.path);
      if (!file)
        llvm::consumeError(file.takeError());
      else if (const auto message = messageIn(**file))
        addFilesOf(model.path, *message, locationsIn(*message), model.role);
    }
    return std::move(files);
  }

private:
  void add(const std::string& path, std::string role) {
    if (isUsablePath(path))
      files.push_back({path, std::move(role)});
  }

  /// `whose` is the name of the model in roles.
  void addFilesOf(const std::string& path, const onnx::ModelProto& message,
                  llvm::ArrayRef<std::string> locations, const std::string& whose) {
    for (const std::string& location : locations)
      add(located(location), formatted("external data of {}", whose));
    const std::string manifestName = llvm::sys::path::filename(manifestPathBeside(path)).str();
    if (const std::optional<Manifest> manifest = manifestFor(path, message, manifestName)) {
      add(located(manifestName), formatted("the manifest of {}", whose));
      addNamed(*manifest, whose);
    }
    const auto config = openIfThere(folder, genaiConfigName);
    if (config && configures(*config, llvm::sys::path::filename(path)))
      add(located(genaiConfigName), formatted("the configuration of {}", whose));
  }

  /// Manifest that drives the model, wherever it is; nullopt if none is readable.
  std::optional<Manifest> manifestFor(const std::string& path, const onnx::ModelProto& message,
                                      const std::string& manifestName) {
    if (std::optional<Manifest> manifest = embeddedManifest(message))
      return manifest;
    const auto file = openIfThere(folder, manifestName);
    if (!file)
      return std::nullopt;
    llvm::Expected<Manifest> beside = parseManifest(textOf(*file));
    if (!beside) {
      llvm::consumeError(beside.takeError());
      return std::nullopt;
    }
    const llvm::StringRef name = llvm::sys::path::filename(path);
    if (llvm::none_of(beside->variants,
                      [&](const ManifestVariant& variant) { return variant.file == name; }))
      return std::nullopt;
    return std::move(*beside);
  }

  /// Adds the models that a manifest names; all are in the same folder.
  void addNamed(const Manifest& manifest, const std::string& whose) {
    for (const ManifestVariant& variant : manifest.variants)
      addModel(variant.file, "a variant", whose);
    if (manifest.tiles)
      for (const auto* pieces : {&manifest.tiles->parts, &manifest.tiles->tiles})
        for (const std::string& file : *pieces)
          addModel(file, "a piece", whose);
    addModel(manifest.firstStep, "the first step", whose);
  }

  /// Adds the file of a model, and schedules its other files.
  void addModel(const std::string& name, const char* what, const std::string& whose) {
    const std::string file = located(name);
    if (!isUsablePath(name) || !seen.insert(file).second)
      return;
    add(file, formatted("{} of {}", what, whose));
    named.push_back({file, formatted("'{}', {} of {}", file, what, root)});
  }

  std::string located(const std::string& name) const {
    return isUsablePath(name) ? folder.locate(name) : name;
  }

  std::string root;
  ConfinedFolder folder;
  std::vector<InputFile> files;
  std::vector<InputFile> named; ///< models and their names in roles
  std::set<std::string> seen;   ///< paths of models
};

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
    paths.push_back(model.folder.locate(location));
  return paths;
}

std::map<std::string, int64_t> externalBytesOf(const Model& model) {
  std::map<std::string, int64_t> bytes;
  std::set<std::tuple<std::string, uint64_t, int64_t>> counted;
  if (!model.source())
    return bytes;
  for (const onnx::TensorProto* tensor : model.source()->externalTensors()) {
    auto range = externalRangeOf(*tensor);
    const llvm::SmallVector<int64_t, 4> extents(tensor->dims().begin(), tensor->dims().end());
    auto count = checkedElementCount(extents);
    auto size = count ? checkedByteSize(static_cast<ElementType>(tensor->data_type()), *count)
                      : count.takeError();
    if (range && size && counted.emplace(range->location, range->offset, *size).second)
      bytes[model.folder.locate(range->location)] += *size;
    if (!range)
      llvm::consumeError(range.takeError()); // reported when the model is read
    if (!size)
      llvm::consumeError(size.takeError());
  }
  return bytes;
}

std::vector<InputFile> filesOf(const Model& model) {
  FileCollector collector(model.path, model.folder);
  const onnx::ModelProto none;
  if (!model.path.empty()) {
    collector.addFilesOf(model.path, model.source() ? *model.source()->message : none,
                         externalLocationsOf(model));
    return collector.take();
  }
  std::vector<InputFile> files;
  for (std::string& path : externalFilesOf(model))
    files.push_back({std::move(path), "external data of a model in memory"});
  return files;
}

std::vector<InputFile> filesOfModelAt(const std::string& path) {
  FileCollector collector(path, ConfinedFolder::of(path));
  auto file = MappedFile::open(path);
  if (!file)
    llvm::consumeError(file.takeError());
  else if (const auto message = messageIn(**file))
    collector.addFilesOf(path, *message, locationsIn(*message));
  return collector.take();
}

llvm::Error registerFiles(const Model& model, FileAccess& access) {
  // Without outputs there is nothing to compare, so files that the manifest names are not read.
  if (access.hasOutputs() || model.path.empty())
    return access.reads(filesOf(model));
  if (llvm::Error error = access.reads(model.path, modelRole(model.path)))
    return error;
  return access.readsLater([path = model.path] { return filesOfModelAt(path); });
}

} // namespace kvopt::ir
