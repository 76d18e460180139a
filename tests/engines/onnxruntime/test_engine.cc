// Loading the engine and registering the library.
#include "tests/engines/onnxruntime/test_engine.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <mutex>
#include <vector>

namespace kvopt {

namespace {

constexpr const char* registration = "kvopt";

[[noreturn]] void quit(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::exit(1);
}

const char* pathIn(const char* variable) {
  const char* path = std::getenv(variable);
  if (!path)
    quit(std::string(variable) + " is not set");
  return path;
}

std::mutex logging;
std::string logged;

void ORT_API_CALL keepLine(void*, OrtLoggingLevel, const char*, const char*, const char*,
                           const char* message) {
  if (std::strncmp(message, "kvopt:", 6) != 0)
    return;
  const std::lock_guard lock(logging);
  logged += std::string(message) + "\n";
}

const OrtApiBase* load(const char* path) {
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!handle)
    quit(dlerror());
  void* entry = dlsym(handle, "OrtGetApiBase");
  if (!entry)
    quit(std::string(path) + " is not ONNX Runtime");
  return reinterpret_cast<const OrtApiBase* (*)()>(entry)();
}

} // namespace

TestEngine::TestEngine() : library(pathIn("KVOPT_ONNXRUNTIME_LIBRARY")) {
  const OrtApiBase* base = load(pathIn("ONNXRUNTIME_LIBRARY"));
  minorVersion = std::atoi(base->GetVersionString() + 2);
  const OrtApi* api = base->GetApi(static_cast<uint32_t>(std::min(minorVersion, ORT_API_VERSION)));
  if (!api)
    quit("the engine is too old");
  Ort::InitApi(api);
  Ort::ThrowOnError(
      api->CreateEnvWithCustomLogger(keepLine, nullptr, ORT_LOGGING_LEVEL_INFO, "test", &env));
  Ort::ThrowOnError(api->RegisterExecutionProviderLibrary(env, registration, library.c_str()));
}

TestEngine::~TestEngine() {
  OrtStatus* status = Ort::GetApi().UnregisterExecutionProviderLibrary(env, registration);
  if (status)
    quit(Ort::GetApi().GetErrorMessage(status));
  Ort::GetApi().ReleaseEnv(env);
}

Ort::SessionOptions TestEngine::optionsOf(const SessionSettings& settings) {
  Ort::SessionOptions options;
  options.SetIntraOpNumThreads(settings.threads);
  options.SetInterOpNumThreads(1);
  options.SetGraphOptimizationLevel(settings.level);
  options.SetLogSeverityLevel(ORT_LOGGING_LEVEL_INFO);
  if (!settings.off.empty())
    options.AddConfigEntry("ep.kvopt.off", settings.off.c_str());
  if (settings.entry == LibraryEntry::customOperators)
    options.RegisterCustomOpsLibrary(library.c_str());
  if (settings.entry != LibraryEntry::provider)
    return options;
  const OrtEpDevice* const* devices = nullptr;
  size_t count = 0;
  Ort::ThrowOnError(Ort::GetApi().GetEpDevices(env, &devices, &count));
  for (size_t i = 0; i < count; ++i)
    if (std::strcmp(Ort::GetApi().EpDevice_EpName(devices[i]), "kvopt") == 0) {
      Ort::ThrowOnError(Ort::GetApi().SessionOptionsAppendExecutionProvider_V2(
          options, env, &devices[i], 1, nullptr, nullptr, 0));
      return options;
    }
  quit("the engine has no device with the provider");
}

Ort::Session TestEngine::open(std::span<const std::byte> model, const SessionSettings& settings) {
  const Ort::SessionOptions options = optionsOf(settings);
  OrtSession* session = nullptr;
  Ort::ThrowOnError(
      Ort::GetApi().CreateSessionFromArray(env, model.data(), model.size(), options, &session));
  return Ort::Session(session);
}

Ort::Session TestEngine::open(const std::string& path, const SessionSettings& settings) {
  const Ort::SessionOptions options = optionsOf(settings);
  OrtSession* session = nullptr;
  Ort::ThrowOnError(Ort::GetApi().CreateSession(env, path.c_str(), options, &session));
  return Ort::Session(session);
}

std::string TestEngine::takeLog() {
  const std::lock_guard lock(logging);
  return std::exchange(logged, "");
}

} // namespace kvopt
