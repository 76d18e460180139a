// The engine's version from its text, because older engines refuse newer versions of the interface.
#include "engines/onnxruntime/engine_api.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>

namespace kvopt::onnxruntime {

namespace {

std::mutex connecting;
std::atomic<uint32_t> connectedApi{0};
std::atomic<uint32_t> connectedEngine{0};

/// N of a version 1.N.M; 0 for other texts.
uint32_t minorVersion(const char* text) {
  if (std::strncmp(text, "1.", 2) != 0)
    return 0;
  const unsigned long minor = std::strtoul(text + 2, nullptr, 10);
  return static_cast<uint32_t>(std::min(minor, 9999ul));
}

} // namespace

bool connect(const OrtApiBase* base, uint32_t oldest) {
  const std::lock_guard lock(connecting);
  if (connectedApi == 0) {
    const uint32_t engine = minorVersion(base->GetVersionString());
    const uint32_t common = std::min<uint32_t>(engine, ORT_API_VERSION);
    const OrtApi* api = common < firstOperatorVersion ? nullptr : base->GetApi(common);
    if (!api)
      return false;
    Ort::InitApi(api);
    connectedEngine = engine;
    connectedApi = common;
  }
  return connectedApi >= oldest;
}

uint32_t apiVersion() { return connectedApi; }
uint32_t engineVersion() { return connectedEngine; }

OrtStatus* engineTooOld(const OrtApiBase* base, const char* what, uint32_t oldest) {
  const std::string message = std::string("kvopt: ") + what + " needs ONNX Runtime 1." +
                              std::to_string(oldest) + " or newer; this is " +
                              base->GetVersionString();
  return base->GetApi(1)->CreateStatus(ORT_NOT_IMPLEMENTED, message.c_str());
}

void logLine(const OrtLogger* logger, OrtLoggingLevel level, const std::string& line) noexcept {
  if (!logger)
    return;
  if (OrtStatus* status = Ort::GetApi().Logger_LogMessage(logger, level, line.c_str(),
                                                          ORT_TSTR("kvopt"), 0, "kvopt"))
    Ort::GetApi().ReleaseStatus(status);
}

} // namespace kvopt::onnxruntime
