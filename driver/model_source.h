// ModelSource: a file or bytes that a model is read from.
#pragma once

#include "support/confined_folder.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace kvopt::driver {

/// The source of a model: the file at `path`, or `bytes`.
struct ModelSource {
  std::string path;
  /// A serialized ModelProto; null for a file.
  std::shared_ptr<const std::string> bytes;
  /// Folder of the external data that `bytes` name; nullopt: `bytes` must not name any.
  std::optional<ConfinedFolder> folder;

  ModelSource() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): a file is its path
  ModelSource(std::string filePath) : path(std::move(filePath)) {}
  // NOLINTNEXTLINE(google-explicit-constructor): a file is its path
  ModelSource(const char* filePath) : path(filePath) {}
};

} // namespace kvopt::driver
