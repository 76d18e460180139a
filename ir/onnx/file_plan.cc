// Comparing the files that are read with those that are written.
#include "ir/onnx/file_plan.h"

#include "support/diagnostic.h"
#include "support/mapped_file.h"
#include "support/output_file.h"

#include <map>
#include <optional>
#include <sys/stat.h>
#include <tuple>

namespace kvopt::ir {
namespace {

std::optional<FileIdentity> identityOf(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0)
    return std::nullopt;
  return FileIdentity{static_cast<uint64_t>(status.st_dev), static_cast<uint64_t>(status.st_ino)};
}

/// An existing file: device and inode. A name in an existing folder: the folder's device and inode,
/// and the name.
using PlaceKey = std::tuple<uint64_t, uint64_t, std::string>;

/// The keys of one output: outputs that share a key are one file.
std::vector<PlaceKey> keysOf(std::string path) {
  while (path.size() > 1 && path.back() == '/')
    path.pop_back();
  std::vector<PlaceKey> keys;
  if (const std::optional<FileIdentity> file = identityOf(path))
    keys.emplace_back(file->device, file->inode, "");
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "."
                             : slash == 0               ? "/"
                                                        : path.substr(0, slash);
  if (const std::optional<FileIdentity> place = identityOf(folder))
    keys.emplace_back(place->device, place->inode,
                      slash == std::string::npos ? path : path.substr(slash + 1));
  return keys;
}

} // namespace

void FilePlan::reads(const std::string& path, std::string role) {
  if (!path.empty())
    inputs.push_back({path, std::move(role)});
}

void FilePlan::reads(const Model& model) {
  for (ModelFile& file : filesOf(model))
    inputs.push_back(std::move(file));
}

void FilePlan::writes(const std::string& path, std::string option) {
  if (!path.empty())
    outputs.push_back({path, std::move(option), /*isFolder=*/false});
}

void FilePlan::writesFolder(const std::string& path, std::string option) {
  if (!path.empty())
    outputs.push_back({path, std::move(option), /*isFolder=*/true});
}

llvm::Error FilePlan::check() const {
  std::map<PlaceKey, const ModelFile*> read;
  std::map<PlaceKey, const Output*> written;
  for (const ModelFile& input : inputs)
    if (const std::optional<FileIdentity> file = identityOf(input.path))
      read.try_emplace({file->device, file->inode, ""}, &input);
  for (const Output& output : outputs)
    for (PlaceKey& key : keysOf(output.path)) {
      if (const auto found = read.find(key); found != read.end())
        return usageError("{} would overwrite {}", output.option, found->second->role)
            .file(output.path)
            .hint("write to another file");
      const auto [entry, isNew] = written.try_emplace(std::move(key), &output);
      if (!isNew && entry->second != &output)
        return usageError("{} and {} would write to the same file", entry->second->option,
                          output.option)
            .file(output.path)
            .hint("give one of them another name");
    }
  for (const Output& output : outputs)
    if (!output.isFolder)
      if (llvm::Error error = OutputFile::check(output.path))
        return error;
  return llvm::Error::success();
}

} // namespace kvopt::ir
