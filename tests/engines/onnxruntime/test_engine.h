// ONNX Runtime, loaded from a file, with the library under test registered.
#pragma once

#ifndef ORT_API_MANUAL_INIT
#define ORT_API_MANUAL_INIT
#endif
#include <onnxruntime_cxx_api.h>

#include <cstddef>
#include <span>
#include <string>

namespace kvopt {

/// Entry of the library that a session uses.
enum class LibraryEntry { none, provider, customOperators };

struct SessionSettings {
  LibraryEntry entry = LibraryEntry::provider;
  int threads = 1;
  GraphOptimizationLevel level = ORT_DISABLE_ALL;
  /// Value of the option ep.kvopt.off; empty for none.
  std::string off;
};

class TestEngine {
public:
  /// Loads the engine from the path in ONNXRUNTIME_LIBRARY and registers the library whose path is
  /// in KVOPT_ONNXRUNTIME_LIBRARY. Exits with an explanation where that fails.
  TestEngine();
  ~TestEngine();
  TestEngine(const TestEngine&) = delete;
  TestEngine& operator=(const TestEngine&) = delete;

  Ort::Session open(std::span<const std::byte> model, const SessionSettings& settings);
  Ort::Session open(const std::string& path, const SessionSettings& settings);

  /// Lines of the log that begin with "kvopt:" since the last call.
  std::string takeLog();

  /// N of the engine's version 1.N.
  int version() const { return minorVersion; }

private:
  Ort::SessionOptions optionsOf(const SessionSettings& settings);

  std::string library;
  int minorVersion = 0;
  OrtEnv* env = nullptr;
};

} // namespace kvopt
