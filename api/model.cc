// Opening models.
#include "api/error.h"
#include "api/memory_reserve.h"
#include "api/objects.h"
#include "api/progress.h"

#include "ir/onnx/inline_data.h"
#include "ir/onnx/model_files.h"

using namespace kvopt;
using namespace kvopt::api;
using namespace kvopt::driver;

namespace kvopt::api {

llvm::Expected<std::vector<OptionText>> optionTexts(const kvopt_option* options, size_t count) {
  if (count != 0)
    if (llvm::Error error = checkArgument(options, "options"))
      return error;
  std::vector<OptionText> texts;
  for (size_t i = 0; i < count; ++i) {
    if (!options[i].name || !options[i].text)
      return usageError("option {} has no {}", i, options[i].name ? "text" : "name");
    texts.push_back({options[i].name, options[i].text});
  }
  return texts;
}

namespace {

/// A serialized model with the external data that `read` gives.
llvm::Expected<std::string> readThrough(std::span<const std::byte> bytes, kvopt_read read,
                                        void* user) {
  const MemoryReserve reserve;
  return ir::withDataInline(bytes,
                            [&](const std::string& location, uint64_t offset,
                                std::span<std::byte> contents) -> llvm::Expected<uint64_t> {
                              const int64_t given = read(user, location.c_str(), offset,
                                                         contents.data(), contents.size());
                              if (given < 0)
                                return ioError("external data cannot be read: the callback "
                                               "returned {}",
                                               given)
                                    .file(location);
                              return static_cast<uint64_t>(given);
                            });
}

/// A model that was opened once, so that errors are known now.
llvm::Error openSource(ModelSource source, const kvopt_option* options, size_t count,
                       kvopt_model** model) {
  const MemoryReserve reserve;
  if (llvm::Error error = checkArgument(model, "model"))
    return error;
  auto texts = optionTexts(options, count);
  if (!texts)
    return texts.takeError();
  auto toolkit = std::make_shared<Toolkit>();
  toolkit->progress = &progressListener();
  OptionReader reader(Command::Inspect, *texts);
  reader.add("--max-nodes", toolkit->limits.maxNodes);
  if (llvm::Error error = reader.finish())
    return error;
  auto opened = openModel(source, *toolkit);
  if (!opened)
    return opened.takeError();
  auto made = std::make_unique<kvopt_model>();
  made->toolkit = std::move(toolkit);
  made->source = std::move(source);
  *model = made.release();
  return llvm::Error::success();
}

} // namespace
} // namespace kvopt::api

llvm::Expected<std::shared_ptr<const RunnableModel>> kvopt_model::runnable() const {
  const std::lock_guard<std::mutex> lock(mutex);
  if (made)
    return made;
  auto prepared = prepareTested(source, *toolkit, {});
  if (!prepared)
    return prepared.takeError();
  made = std::make_shared<RunnableModel>(RunnableModel{toolkit, std::move(*prepared)});
  return made;
}

const char* kvopt_version(void) { return KVOPT_VERSION; }
uint32_t kvopt_abi_version(void) { return KVOPT_ABI_VERSION; }

const char* kvopt_bytes_data(const kvopt_bytes* bytes) { return bytes ? bytes->text.data() : ""; }
size_t kvopt_bytes_size(const kvopt_bytes* bytes) { return bytes ? bytes->text.size() : 0; }
void kvopt_bytes_free(kvopt_bytes* bytes) { delete bytes; }

kvopt_error* kvopt_model_open(const char* path, const kvopt_option* options, size_t option_count,
                              kvopt_model** model) {
  return guarded([&]() -> llvm::Error {
    if (llvm::Error error = checkArgument(path, "path"))
      return error;
    return openSource(ModelSource(path), options, option_count, model);
  });
}

kvopt_error* kvopt_model_from_bytes(const void* data, size_t size, const char* folder,
                                    const kvopt_option* options, size_t option_count,
                                    kvopt_model** model) {
  return guarded([&]() -> llvm::Error {
    if (llvm::Error error = checkArgument(data, "data"))
      return error;
    ModelSource source;
    source.bytes = std::make_shared<const std::string>(static_cast<const char*>(data), size);
    if (folder)
      source.folder = ConfinedFolder(folder);
    return openSource(std::move(source), options, option_count, model);
  });
}

kvopt_error* kvopt_model_from_reader(const void* data, size_t size, kvopt_read read, void* user,
                                     const kvopt_option* options, size_t option_count,
                                     kvopt_model** model) {
  return guarded([&]() -> llvm::Error {
    if (llvm::Error error = checkArgument(data, "data"))
      return error;
    if (!read)
      return usageError("read is null");
    auto bytes = readThrough(std::span(static_cast<const std::byte*>(data), size), read, user);
    if (!bytes)
      return bytes.takeError();
    ModelSource source;
    source.bytes = std::make_shared<const std::string>(std::move(*bytes));
    return openSource(std::move(source), options, option_count, model);
  });
}

void kvopt_model_free(kvopt_model* model) { delete model; }
