// Links next to the output.
#include "driver/rewrite/linked_data.h"

#include "ir/onnx/model_files.h"
#include "support/diagnostic.h"

#include <filesystem>
#include <utility>

namespace kvopt::driver {
using namespace ir;

namespace fs = std::filesystem;

namespace {

fs::path folderOf(const std::string& file) {
  const fs::path folder = fs::path(file).parent_path();
  return folder.empty() ? fs::path(".") : folder;
}

bool isBeneath(const fs::path& file, const fs::path& folder) {
  const fs::path relative = file.lexically_relative(folder);
  return !relative.empty() && *relative.begin() != "..";
}

/// Files of the model, and the paths of their links.
std::vector<std::pair<std::string, std::string>> linksFor(const Model& model,
                                                          const std::string& output) {
  std::vector<std::pair<std::string, std::string>> links;
  std::error_code error;
  const fs::path to = fs::canonical(folderOf(output), error);
  if (error)
    return links;
  for (const std::string& location : externalLocationsOf(model)) {
    const fs::path source = fs::canonical(model.folder.locate(location), error);
    if (error || isBeneath(source, to) || location.find('/') != std::string::npos)
      continue;
    // The path of the file that a program sees may be beneath the folder, though it leads out of
    // it.
    const fs::path named =
        fs::canonical(model.folder.path.empty() ? "." : model.folder.path, error);
    if (!error && isBeneath(named / location, to))
      continue;
    links.emplace_back(source.string(), (folderOf(output) / location).string());
  }
  return links;
}

} // namespace

std::vector<std::string> linkedFiles(const Model& model, const std::string& output) {
  std::vector<std::string> files;
  for (auto& [source, link] : linksFor(model, output))
    files.push_back(std::move(link));
  return files;
}

llvm::Expected<LinkedData> LinkedData::create(const Model& model, const std::string& output) {
  LinkedData links;
  for (const auto& [source, link] : linksFor(model, output)) {
    std::error_code error;
    if (fs::equivalent(source, link, error))
      continue; // an earlier rewrite made it
    fs::create_hard_link(source, link, error);
    if (error)
      return usageError("the model's external data '{}' is not beneath the folder of the output, "
                        "and cannot have a hard link there: {}",
                        source, error.message())
          .file(link)
          .hint("have it copied or inlined (--external-data copy, inline), or write the model "
                "into its folder");
    links.made.push_back(link);
  }
  return links;
}

LinkedData::~LinkedData() {
  std::error_code ignored;
  for (const std::string& link : made)
    fs::remove(link, ignored);
}

} // namespace kvopt::driver
