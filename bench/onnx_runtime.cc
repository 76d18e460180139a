// Calls of ONNX Runtime's C interface through its function table. The table only grows at its end,
// so that indices identify functions, and no header of that project is needed.
#include "bench/onnx_runtime.h"

#include "support/diagnostic.h"

#include <dlfcn.h>
#include <optional>

namespace kvopt {
using namespace ir;
using namespace runtime;

/// Indices in OrtApi, in the order of onnxruntime_c_api.h.
enum OnnxRuntime::Slot : unsigned {
  GetErrorMessage = 2,
  CreateEnv = 3,
  CreateSession = 7,
  Run = 9,
  CreateSessionOptions = 10,
  SetSessionLogSeverityLevel = 22,
  SetSessionGraphOptimizationLevel = 23,
  SetIntraOpNumThreads = 24,
  CreateTensorWithDataAsOrtValue = 49,
  CreateCpuMemoryInfo = 69,
  ReleaseEnv = 92,
  ReleaseStatus = 93,
  ReleaseMemoryInfo = 94,
  ReleaseSession = 95,
  ReleaseValue = 96,
  ReleaseSessionOptions = 100,
  AddSessionConfigEntry = 130,
};

namespace {

/// OrtApiBase.
struct ApiBase {
  void* const* (*getApi)(uint32_t version);
  const char* (*getVersionString)();
};

constexpr uint32_t apiVersion = 16; ///< any version with all functions above
constexpr int logErrors = 3;        ///< ORT_LOGGING_LEVEL_ERROR
constexpr int optimiseAll = 99;     ///< ORT_ENABLE_ALL
constexpr int deviceAllocator = 0;  ///< OrtDeviceAllocator
constexpr int defaultMemory = 0;    ///< OrtMemTypeDefault

} // namespace

template <class Function> Function* OnnxRuntime::function(Slot slot) const {
  return reinterpret_cast<Function*>(table[slot]);
}

template <class... Parameters, class... Arguments>
llvm::Error OnnxRuntime::call(Slot slot, Arguments... arguments) const {
  void* status = function<void*(Parameters...)>(slot)(arguments...);
  if (!status)
    return llvm::Error::success();
  std::string message = function<const char*(const void*)>(GetErrorMessage)(status);
  function<void(void*)>(ReleaseStatus)(status);
  return unsupported("ONNX Runtime: {}", message);
}

template <class... Parameters, class... Arguments>
llvm::Expected<OnnxRuntime::Handle> OnnxRuntime::make(Slot creator, Slot releaser,
                                                      Arguments... arguments) const {
  void* made = nullptr;
  if (llvm::Error error = call<Parameters..., void**>(creator, arguments..., &made))
    return error;
  return Handle(made, function<void(void*)>(releaser));
}

llvm::Expected<std::unique_ptr<OnnxRuntime>> OnnxRuntime::load(const std::string& library) {
  // Never unloaded: its threads may outlive the last session briefly.
  void* opened = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!opened)
    return unsupported("cannot load ONNX Runtime: {}", dlerror());
  auto* getBase = reinterpret_cast<const ApiBase* (*)()>(dlsym(opened, "OrtGetApiBase"));
  if (!getBase)
    return unsupported("'{}' is not ONNX Runtime", library);
  std::unique_ptr<OnnxRuntime> runtime(new OnnxRuntime);
  const ApiBase* base = getBase();
  runtime->versionText = base->getVersionString();
  runtime->table = base->getApi(apiVersion);
  if (!runtime->table)
    return unsupported("ONNX Runtime {} is older than 1.{}", runtime->versionText, apiVersion);
  auto environment = runtime->make<int, const char*>(CreateEnv, ReleaseEnv, logErrors, "bench");
  if (!environment)
    return environment.takeError();
  runtime->environment = std::move(*environment);
  auto memory = runtime->make<int, int>(CreateCpuMemoryInfo, ReleaseMemoryInfo, deviceAllocator,
                                        defaultMemory);
  if (!memory)
    return memory.takeError();
  runtime->memoryInfo = std::move(*memory);
  return runtime;
}

llvm::Expected<OnnxRuntimeSession> OnnxRuntime::open(const std::string& model, unsigned threads,
                                                     bool spins) const {
  auto options = make<>(CreateSessionOptions, ReleaseSessionOptions);
  if (!options)
    return options.takeError();
  void* settings = options->get();
  if (llvm::Error error = call<void*, int>(SetSessionLogSeverityLevel, settings, logErrors))
    return error;
  if (llvm::Error error = call<void*, int>(SetSessionGraphOptimizationLevel, settings, optimiseAll))
    return error;
  if (llvm::Error error =
          call<void*, int>(SetIntraOpNumThreads, settings, static_cast<int>(threads)))
    return error;
  if (llvm::Error error = call<void*, const char*, const char*>(
          AddSessionConfigEntry, settings, "session.intra_op.allow_spinning", spins ? "1" : "0"))
    return error;
  auto session = make<const void*, const char*, const void*>(
      CreateSession, ReleaseSession, environment.get(), model.c_str(), settings);
  if (!session)
    return session.takeError();
  return OnnxRuntimeSession(*this, std::move(*session));
}

llvm::Error OnnxRuntimeSession::bind(Values& values, const std::string& name,
                                     const TensorView& tensor) {
  assert(tensor.isContiguous());
  std::vector<int64_t> shape(tensor.shape.begin(), tensor.shape.end());
  auto value = runtime->make<const void*, void*, size_t, const int64_t*, size_t, int>(
      OnnxRuntime::CreateTensorWithDataAsOrtValue, OnnxRuntime::ReleaseValue,
      runtime->memoryInfo.get(), tensor.data, static_cast<size_t>(tensor.byteSize()), shape.data(),
      shape.size(), static_cast<int>(tensor.element));
  if (!value)
    return value.takeError();
  values.names.push_back(name);
  values.values.push_back(std::move(*value));
  return llvm::Error::success();
}

llvm::Error OnnxRuntimeSession::bindInput(const std::string& name, const TensorView& tensor) {
  return bind(inputs, name, tensor);
}

llvm::Error OnnxRuntimeSession::bindOutput(const std::string& name, const TensorView& tensor) {
  return bind(outputs, name, tensor);
}

llvm::Error OnnxRuntimeSession::run() {
  const auto namesOf = [](const Values& values) {
    std::vector<const char*> names;
    for (const std::string& name : values.names)
      names.push_back(name.c_str());
    return names;
  };
  const auto valuesOf = [](const Values& values) {
    std::vector<void*> handles;
    for (const Handle& value : values.values)
      handles.push_back(value.get());
    return handles;
  };
  const std::vector<const char*> inputNames = namesOf(inputs), outputNames = namesOf(outputs);
  const std::vector<void*> inputValues = valuesOf(inputs);
  std::vector<void*> outputValues = valuesOf(outputs);
  return runtime->call<void*, const void*, const char* const*, void* const*, size_t,
                       const char* const*, size_t, void**>(
      OnnxRuntime::Run, session.get(), nullptr, inputNames.data(), inputValues.data(),
      inputNames.size(), outputNames.data(), outputNames.size(), outputValues.data());
}

} // namespace kvopt
