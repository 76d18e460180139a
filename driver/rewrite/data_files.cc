// Copies and links next to the output.
#include "driver/rewrite/data_files.h"

#include "ir/onnx/export.h"
#include "ir/onnx/model_files.h"
#include "support/diagnostic.h"
#include "support/file_access.h"
#include "support/file_copy.h"
#include "support/progress.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

namespace kvopt::driver {
using namespace ir;

namespace fs = std::filesystem;

namespace {

std::string outputFolder(const std::string& file) {
  const fs::path folder = fs::path(file).parent_path();
  return folder.empty() ? "." : folder.string();
}

bool isBeneath(const fs::path& file, const fs::path& folder) {
  const fs::path relative = file.lexically_relative(folder);
  return !relative.empty() && *relative.begin() != "..";
}

/// Fails if `bytes` do not fit into the folder of `output`.
llvm::Error checkRoomFor(int64_t bytes, const std::string& output) {
  const int64_t room = roomIn(outputFolder(output));
  if (bytes <= room)
    return llvm::Error::success();
  return ioError("the external data needs {} bytes, and the file system of the output has room for "
                 "{}; nothing was written",
                 bytes, room)
      .file(output)
      .hint("write the model into the folder of its external data, which then stays there");
}

llvm::Error otherFile(const DataFile& file) {
  return usageError("the model's external data '{}' is not beneath the folder of the output, and "
                    "another file has its name there",
                    file.source)
      .file(file.path)
      .hint("have it copied to a file of another name, or inlined (--external-data copy, inline), "
            "or write the model into its folder");
}

llvm::Error makeLink(const DataFile& file) {
  std::error_code error;
  fs::create_hard_link(file.source, file.path, error);
  if (!error)
    return llvm::Error::success();
  return usageError("the model's external data '{}' cannot have a hard link next to the output: {}",
                    file.source, error.message())
      .file(file.path)
      .hint("leave out --external-data link, so that it is copied");
}

} // namespace

std::vector<DataFile> dataFilesFor(const Model& model, const std::string& output) {
  std::vector<DataFile> files;
  std::error_code error;
  const fs::path to = fs::canonical(outputFolder(output), error);
  if (error)
    return files;
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
    files.push_back(
        {source.string(), location, (fs::path(output).parent_path() / location).string()});
  }
  return files;
}

llvm::Error checkRoom(llvm::ArrayRef<DataFile> files) {
  int64_t bytes = 0;
  for (const DataFile& file : files) {
    auto source = CopySource::open(file.source);
    if (!source)
      return source.takeError();
    if (!source->isShareableIn(outputFolder(file.path)))
      bytes += source->dataBytes();
  }
  return files.empty() ? llvm::Error::success() : checkRoomFor(bytes, files.front().path);
}

llvm::Error checkRoomForCopy(const Model& model, const std::string& output) {
  int64_t bytes = 0;
  for (const auto& [file, used] : externalBytesOf(model)) {
    auto source = CopySource::open(file);
    if (!source)
      return source.takeError();
    if (!source->isShareableIn(outputFolder(output)))
      bytes += std::min(used, source->dataBytes());
  }
  return checkRoomFor(bytes, output);
}

llvm::Expected<DataFiles> DataFiles::create(const Model& model, const std::string& output,
                                            WeightPlacement placement, bool isTrial) {
  DataFiles made;
  made.all = dataFilesFor(model, output);
  for (const DataFile& file : made.all) {
    if (sameFile(file.source, file.path))
      continue; // an earlier rewrite linked it
    std::error_code error;
    const fs::file_status status = fs::symlink_status(file.path, error);
    if (fs::exists(status)) {
      auto source = CopySource::open(file.source);
      if (!source)
        return source.takeError();
      const bool isCopy =
          placement == WeightPlacement::Keep && fs::is_regular_file(status) &&
          (isTrial ? fs::file_size(file.path, error) == static_cast<uintmax_t>(source->bytes())
                   : source->hasContentsOf(file.path));
      if (!isCopy)
        return otherFile(file);
      continue; // an earlier rewrite copied it
    }
    if (placement == WeightPlacement::Keep) {
      made.missing.push_back(file);
      continue;
    }
    if (llvm::Error failure = makeLink(file))
      return failure;
    made.links.push_back(file.path);
  }
  if (llvm::Error error = checkRoom(made.missing))
    return error;
  return made;
}

DataFiles::DataFiles(DataFiles&& other) noexcept
    : all(std::move(other.all)), missing(std::move(other.missing)), links(std::move(other.links)) {
  other.links.clear();
}

DataFiles::~DataFiles() {
  std::error_code ignored;
  for (const std::string& link : links)
    fs::remove(link, ignored);
}

int64_t DataFiles::bytesToCopy() const {
  int64_t bytes = 0;
  for (const DataFile& file : missing) {
    std::error_code unknown;
    const uintmax_t size = fs::file_size(file.source, unknown);
    bytes += unknown ? 0 : static_cast<int64_t>(size);
  }
  return bytes;
}

llvm::Error DataFiles::copy(OutputFiles& files, const std::function<void(size_t bytes)>& onCopied) {
  for (const DataFile& file : missing) {
    auto made = copyOf(file.source, file.path, files.access(), onCopied);
    if (!made)
      return made.takeError();
    files.add(std::move(*made));
  }
  return llvm::Error::success();
}

std::vector<std::string> DataFiles::locations() const {
  std::vector<std::string> found;
  for (const DataFile& file : all)
    found.push_back(file.location);
  return found;
}

llvm::Error exportWithData(const Model& model, const std::string& path, WeightPlacement placement,
                           FileAccess& access, ProgressListener* listener) {
  Progress progress(listener, "writing " + path);
  ExportOptions options;
  options.placement = exported(placement);
  options.externalBytes = INT64_MAX; // new constants stay in the model's file
  options.onWritten = [&](size_t bytes) { progress.advance(static_cast<double>(bytes)); };
  OutputFiles files(access);
  std::optional<DataFiles> data;
  if (placement == WeightPlacement::Copy) {
    options.externalFile = fs::path(path).filename().string() + ".data";
    for (const auto& [file, bytes] : externalBytesOf(model))
      progress.expect(static_cast<double>(bytes));
    if (llvm::Error error = checkRoomForCopy(model, path))
      return error;
  } else if (placement != WeightPlacement::Inline) {
    auto made = DataFiles::create(model, path, placement);
    if (!made)
      return made.takeError();
    data.emplace(std::move(*made));
    progress.expect(static_cast<double>(data->bytesToCopy()));
    if (llvm::Error error = data->copy(files, options.onWritten))
      return error;
    options.goAlong = data->locations();
  }
  if (llvm::Error error = prepareExport(model, path, options, files))
    return error;
  if (llvm::Error error = files.commit())
    return error;
  if (data)
    data->keep();
  return llvm::Error::success();
}

} // namespace kvopt::driver
