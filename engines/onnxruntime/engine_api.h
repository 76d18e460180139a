// Connection to the ONNX Runtime that loads this library, whichever version it has.
#pragma once

#ifndef ORT_API_MANUAL_INIT
#define ORT_API_MANUAL_INIT
#endif
#include <onnxruntime_cxx_api.h>

#include <exception>
#include <string>

namespace kvopt::onnxruntime {

/// Version of this library, for example "0.1.0".
inline constexpr const char* libraryVersion = KVOPT_VERSION;

/// Minor versions of ONNX Runtime 1.x that have what the two entries need.
inline constexpr uint32_t firstProviderVersion = 23;
inline constexpr uint32_t firstOperatorVersion = 16;

/// Initializes the C++ interface with the engine's functions. False if the engine is older than
/// `oldest`.
bool connect(const OrtApiBase* base, uint32_t oldest);

/// Version of the interface in use: the smaller one of the engine's and the headers' versions.
uint32_t apiVersion();
/// Version of the engine: N for 1.N.
uint32_t engineVersion();

/// An error for an engine that `connect` does not accept.
OrtStatus* engineTooOld(const OrtApiBase* base, const char* what, uint32_t oldest);

/// Calls body() and turns exceptions into the engine's errors.
template <class Body> OrtStatus* guarded(const Body& body) noexcept {
  try {
    body();
    return nullptr;
  } catch (const Ort::Exception& error) {
    return Ort::GetApi().CreateStatus(error.GetOrtErrorCode(), error.what());
  } catch (const std::exception& error) {
    return Ort::GetApi().CreateStatus(ORT_FAIL, error.what());
  } catch (...) {
    return Ort::GetApi().CreateStatus(ORT_FAIL, "kvopt: unknown exception");
  }
}

/// Logs a line with the session's logger; does nothing without one.
void logLine(const OrtLogger* logger, OrtLoggingLevel level, const std::string& line) noexcept;

} // namespace kvopt::onnxruntime
