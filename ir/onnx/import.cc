// Reading of models from files and bytes.
#include "ir/onnx/import.h"

#include "ir/onnx/message_parser.h"
#include "ir/onnx/reader.h"
#include "ir/onnx/sequences.h"
#include "support/diagnostic.h"

#include "llvm/ADT/StringSet.h"

namespace kvopt::ir {
namespace {

llvm::Error notAModel(llvm::StringRef why) { return invalid("not an ONNX model: {}", why); }

llvm::Error readOpsets(const google::protobuf::RepeatedPtrField<onnx::OperatorSetIdProto>& messages,
                       OpsetImports& opsets) {
  for (const onnx::OperatorSetIdProto& message : messages) {
    auto [entry, inserted] = opsets.try_emplace(message.domain(), message.version());
    if (!inserted && entry->second != message.version())
      return invalid("operator set '{}' is imported twice, as version {} and {}", message.domain(),
                     entry->second, message.version());
  }
  return llvm::Error::success();
}

llvm::Error readFunctions(Model& model, GraphReader& reader) {
  llvm::StringSet<> known;
  for (const onnx::FunctionProto& message : model.source()->message->functions()) {
    std::string key = message.domain() + '\0' + message.name() + '\0' + message.overload();
    if (!known.insert(key).second)
      return invalid("function '{}' of domain '{}' is defined twice", message.name(),
                     message.domain());
    auto function = std::make_unique<Function>(model.context(), message.domain(), message.name());
    function->overload = message.overload();
    if (llvm::Error error = readOpsets(message.opset_import(), function->opsets))
      return error;
    if (llvm::Error error = reader.read(message, *function)) {
      Diagnostic diagnostic = takeDiagnostic(std::move(error));
      diagnostic.notes.push_back(formatted("in function '{}'", message.name()));
      return makeError(std::move(diagnostic));
    }
    model.functions.push_back(std::move(function));
  }
  return llvm::Error::success();
}

llvm::Error readModel(Model& model, const ModelLimits& limits) {
  const std::shared_ptr<Model::Source>& source = model.source();
  if (source->bytes.empty())
    return notAModel("the file is empty");
  if (llvm::Error error = checkMessageSize(source->bytes.size()))
    return error;
  onnx::ModelProto& message = *source->message;
  if (llvm::Error error = parseModel(source->bytes, message))
    return error;
  if (!message.has_graph())
    return notAModel("it holds no graph");

  model.irVersion = message.ir_version();
  model.producerName = message.producer_name();
  model.producerVersion = message.producer_version();
  model.domain = message.domain();
  model.modelVersion = message.model_version();
  model.docString = message.doc_string();
  for (const onnx::StringStringEntryProto& entry : message.metadata_props())
    model.metadata.emplace_back(entry.key(), entry.value());
  if (llvm::Error error = readOpsets(message.opset_import(), model.opsets))
    return error;
  GraphReader reader(source);
  if (llvm::Error error = reader.read(message.graph(), model.graph()))
    return error;
  if (llvm::Error error = readFunctions(model, reader))
    return error;
  if (llvm::Error error = admit(model, limits))
    return error;
  joinSequences(model.graph());
  model.resetEdited();
  return llvm::Error::success();
}

} // namespace

llvm::Expected<std::unique_ptr<Model>>
importModel(const std::string& path, const OpRegistry& registry, const ModelLimits& limits) {
  MappedFile::Result file = MappedFile::open(path);
  if (!file)
    return withFile(file.takeError(), path);
  auto model = std::make_unique<Model>(registry);
  model->path = path;
  model->folder = ConfinedFolder::of(path);
  auto source = std::make_shared<Model::Source>();
  source->bytes = (*file)->bytes();
  source->file = std::move(*file);
  source->externalFiles = std::make_shared<ExternalFiles>(model->folder);
  model->setSource(std::move(source));
  if (llvm::Error error = readModel(*model, limits))
    return withFile(std::move(error), path);
  releaseSource(*model);
  return model;
}

llvm::Expected<std::unique_ptr<Model>> importModelBytes(std::span<const std::byte> bytes,
                                                        const ConfinedFolder& folder,
                                                        const OpRegistry& registry,
                                                        const ModelLimits& limits) {
  if (llvm::Error error = checkMessageSize(bytes.size()))
    return error;
  auto model = std::make_unique<Model>(registry);
  model->folder = folder;
  auto source = std::make_shared<Model::Source>();
  source->owned.assign(bytes.begin(), bytes.end());
  source->bytes = source->owned;
  source->externalFiles = std::make_shared<ExternalFiles>(folder);
  model->setSource(std::move(source));
  if (llvm::Error error = readModel(*model, limits))
    return error;
  return model;
}

std::span<const std::byte> sourceBytes(const Model& model) {
  return model.source() ? model.source()->bytes : std::span<const std::byte>();
}

void releaseSource(const Model& model) {
  if (model.source() && model.source()->file)
    model.source()->file->release();
}

void expectFewReads(const Model& model) {
  if (model.source())
    model.source()->externalFiles->expectFewReads();
}

llvm::Expected<std::pair<std::string, TensorRef>> importTensorFile(const std::string& path) {
  MappedFile::Result file = MappedFile::open(path);
  if (!file)
    return withFile(file.takeError(), path);
  std::span<const std::byte> bytes = (*file)->bytes();
  if (llvm::Error error = checkMessageSize(bytes.size()))
    return withFile(std::move(error), path);
  auto message = std::make_shared<onnx::TensorProto>();
  if (!parseMessage(bytes, *message) || !message->has_data_type())
    return invalid("not an ONNX tensor").file(path);
  llvm::Expected<TensorRef> tensor =
      tensorOf(*message, message, std::make_shared<ExternalFiles>(ConfinedFolder::of(path)));
  if (!tensor)
    return withFile(tensor.takeError(), path);
  return std::make_pair(message->name(), std::move(*tensor));
}

} // namespace kvopt::ir
