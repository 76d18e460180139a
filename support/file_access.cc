// Comparison of the files that are read with those that are written.
#include "support/file_access.h"

#include "support/output_file.h"
#include "support/output_folder.h"

#include <filesystem>
#include <sys/stat.h>

namespace kvopt {
namespace {

namespace fs = std::filesystem;

/// Device and inode of an existing file, after following links.
std::optional<std::pair<uint64_t, uint64_t>> identityOf(const std::string& path) {
  struct stat status {};
  if (path.find('\0') != std::string::npos || ::stat(path.c_str(), &status) != 0)
    return std::nullopt;
  return std::pair<uint64_t, uint64_t>(status.st_dev, status.st_ino);
}

/// All files beneath a folder, except in subfolders that cannot be read.
std::vector<InputFile> filesBeneath(const InputFile& folder) {
  std::vector<InputFile> files;
  std::error_code code;
  for (fs::recursive_directory_iterator
           entry(folder.path, fs::directory_options::skip_permission_denied, code),
       end;
       !code && entry != end; entry.increment(code)) {
    std::error_code ignored;
    if (!entry->is_directory(ignored))
      files.push_back({entry->path().string(), "a file of " + folder.role});
  }
  return files;
}

} // namespace

std::vector<FileAccess::PlaceKey> FileAccess::keysOf(const std::string& path) {
  std::string trimmed = path;
  while (trimmed.size() > 1 && trimmed.back() == '/')
    trimmed.pop_back();
  std::vector<PlaceKey> keys;
  if (const auto file = identityOf(trimmed))
    keys.emplace_back(file->first, file->second, "");
  const size_t slash = trimmed.rfind('/');
  const std::string folder = slash == std::string::npos ? "."
                             : slash == 0               ? "/"
                                                        : trimmed.substr(0, slash);
  if (const auto place = identityOf(folder))
    keys.emplace_back(place->first, place->second,
                      slash == std::string::npos ? trimmed : trimmed.substr(slash + 1));
  return keys;
}

llvm::Error FileAccess::refuse(Diagnostic diagnostic) {
  if (!refusal)
    refusal = diagnostic;
  return makeError(std::move(diagnostic));
}

llvm::Error FileAccess::refuseOverwriting(const Output& output, const std::string& role) {
  return refuse(usageError("{} would overwrite {}", output.option, role)
                    .file(output.path)
                    .hint("write to another file")
                    .take());
}

llvm::Error FileAccess::addInput(const InputFile& file) {
  // A file that does not exist cannot be overwritten.
  if (file.path.empty() || !identityOf(file.path))
    return llvm::Error::success();
  std::error_code ignored;
  if (fs::is_directory(file.path, ignored))
    deferred.push_back([file] { return filesBeneath(file); });
  const std::vector<PlaceKey> keys = keysOf(file.path);
  for (const PlaceKey& key : keys)
    inputs.try_emplace(key, file.role);
  for (const PlaceKey& key : keys)
    if (const auto found = places.find(key); found != places.end())
      return refuseOverwriting(outputs[found->second], file.role);
  return llvm::Error::success();
}

llvm::Error FileAccess::reads(const std::string& path, const std::string& role) {
  return reads(InputFile{path, role});
}

llvm::Error FileAccess::reads(llvm::ArrayRef<InputFile> files) {
  const std::lock_guard lock(guard);
  for (const InputFile& file : files)
    if (llvm::Error error = addInput(file))
      return error;
  return outputs.empty() ? llvm::Error::success() : readDeferred();
}

llvm::Error FileAccess::readsLater(InputList list) {
  const std::lock_guard lock(guard);
  deferred.push_back(std::move(list));
  return outputs.empty() ? llvm::Error::success() : readDeferred();
}

llvm::Error FileAccess::readDeferred() {
  while (!deferred.empty()) {
    const InputList list = std::move(deferred.back());
    deferred.pop_back();
    for (const InputFile& file : list())
      if (llvm::Error error = addInput(file))
        return error;
  }
  return llvm::Error::success();
}

llvm::Error FileAccess::addOutput(const Output& output) {
  if (refusal)
    return makeError(*refusal);
  if (output.path.empty())
    return llvm::Error::success();
  const std::vector<PlaceKey> keys = keysOf(output.path);
  for (const PlaceKey& key : keys)
    if (const auto found = inputs.find(key); found != inputs.end())
      return refuseOverwriting(output, found->second);
  for (const PlaceKey& key : keys)
    if (const auto found = places.find(key); found != places.end()) {
      const Output& other = outputs[found->second];
      if (other.path == output.path && other.option == output.option)
        return llvm::Error::success();
      return refuse(
          usageError("{} and {} would write to the same file", other.option, output.option)
              .file(output.path)
              .hint("give one of them another name")
              .take());
    }
  for (const PlaceKey& key : keys)
    places.emplace(key, outputs.size());
  outputs.push_back(output);
  return readDeferred();
}

llvm::Error FileAccess::writes(const std::string& path, const std::string& option) {
  const std::lock_guard lock(guard);
  return addOutput({path, option, /*isFolder=*/false});
}

llvm::Error FileAccess::writesFolder(const std::string& path, const std::string& option) {
  const std::lock_guard lock(guard);
  return addOutput({path, option, /*isFolder=*/true});
}

llvm::Error FileAccess::ensureWrites(const std::string& path, const std::string& option) {
  const std::lock_guard lock(guard);
  if (refusal)
    return makeError(*refusal);
  for (const PlaceKey& key : keysOf(path))
    if (places.count(key) != 0)
      return llvm::Error::success();
  return addOutput({path, option, /*isFolder=*/false});
}

bool FileAccess::hasOutputs() const {
  const std::lock_guard lock(guard);
  return !outputs.empty();
}

llvm::Error FileAccess::checkOutputs() const {
  const std::lock_guard lock(guard);
  if (refusal)
    return makeError(*refusal);
  for (const Output& output : outputs)
    if (llvm::Error error =
            output.isFolder ? OutputFolder::check(output.path) : OutputFile::check(output.path))
      return error;
  return llvm::Error::success();
}

} // namespace kvopt
