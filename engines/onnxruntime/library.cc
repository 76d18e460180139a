// The functions that the library exports: execution providers, custom operators, its version.
#include "engines/onnxruntime/custom_operators.h"
#include "engines/onnxruntime/provider.h"

namespace kvopt::onnxruntime {

namespace {

/// Makes the provider of each session. One per registration.
class Factory : public OrtEpFactory {
public:
  Factory() : OrtEpFactory{} {
    ort_version_supported = apiVersion();
    GetName = [](const OrtEpFactory*) noexcept { return providerName; };
    GetVendor = [](const OrtEpFactory*) noexcept { return "kvopt"; };
    GetVendorId = [](const OrtEpFactory*) noexcept { return uint32_t{0}; };
    GetVersion = [](const OrtEpFactory*) noexcept { return libraryVersion; };
    GetSupportedDevices = [](OrtEpFactory* self, const OrtHardwareDevice* const* devices,
                             size_t count, OrtEpDevice** supported, size_t most,
                             size_t* found) noexcept {
      return guarded([&] {
        *found = 0;
        for (size_t i = 0; i < count && *found < most; ++i)
          if (Ort::GetApi().HardwareDevice_Type(devices[i]) == OrtHardwareDeviceType_CPU) {
            Ort::ThrowOnError(Ort::GetEpApi().CreateEpDevice(self, devices[i], nullptr, nullptr,
                                                             &supported[*found]));
            ++*found;
          }
      });
    };
    CreateEp = [](OrtEpFactory*, const OrtHardwareDevice* const*, const OrtKeyValuePairs* const*,
                  size_t, const OrtSessionOptions* options, const OrtLogger* logger,
                  OrtEp** provider) noexcept {
      return guarded([&] { *provider = createProvider(ProviderOptions::of(options), logger); });
    };
    ReleaseEp = [](OrtEpFactory*, OrtEp* provider) noexcept { destroyProvider(provider); };
    // Memory is the engine's own: the device is the CPU.
    CreateAllocator = [](OrtEpFactory*, const OrtMemoryInfo*, const OrtKeyValuePairs*,
                         OrtAllocator** allocator) noexcept {
      *allocator = nullptr;
      return static_cast<OrtStatus*>(nullptr);
    };
    ReleaseAllocator = [](OrtEpFactory*, OrtAllocator*) noexcept {};
    CreateDataTransfer = [](OrtEpFactory*, OrtDataTransferImpl** transfer) noexcept {
      *transfer = nullptr;
      return static_cast<OrtStatus*>(nullptr);
    };
    IsStreamAware = [](const OrtEpFactory*) noexcept { return false; };
  }
};

} // namespace
} // namespace kvopt::onnxruntime

using namespace kvopt::onnxruntime;

extern "C" {

__attribute__((visibility("default"))) const char* kvopt_onnxruntime_version() {
  return libraryVersion;
}

__attribute__((visibility("default"))) OrtStatus*
CreateEpFactories(const char*, const OrtApiBase* base, const OrtLogger*, OrtEpFactory** factories,
                  size_t most, size_t* count) {
  if (!connect(base, firstProviderVersion))
    return engineTooOld(base, "the execution provider", firstProviderVersion);
  return guarded([&] {
    if (most < 1)
      throw Ort::Exception("kvopt: no room for a factory", ORT_INVALID_ARGUMENT);
    factories[0] = new Factory;
    *count = 1;
  });
}

__attribute__((visibility("default"))) OrtStatus* ReleaseEpFactory(OrtEpFactory* factory) {
  delete static_cast<Factory*>(factory);
  return nullptr;
}

__attribute__((visibility("default"))) OrtStatus* RegisterCustomOps(OrtSessionOptions* options,
                                                                    const OrtApiBase* base) {
  if (!connect(base, firstOperatorVersion))
    return engineTooOld(base, "the library of custom operators", firstOperatorVersion);
  return guarded([&] { addCustomOperators(options); });
}

} // extern "C"
