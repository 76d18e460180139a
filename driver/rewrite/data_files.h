// DataFiles: external data of a model that goes along to an output in another folder.
#pragma once

#include "driver/rewrite/weight_placement.h"
#include "ir/model.h"
#include "support/output_file.h"

#include "llvm/Support/Error.h"

#include <functional>
#include <string>
#include <vector>

namespace kvopt {
class ProgressListener;
} // namespace kvopt

namespace kvopt::driver {

/// A file of external data that must also be next to the output.
struct DataFile {
  std::string source;   ///< real path
  std::string location; ///< name in the model, and next to the output
  std::string path;     ///< path next to the output
};

/// Files of external data that are not beneath the folder of `output`. A model cannot refer to such
/// data, because a location is a path beneath the model's folder. Empty if all of it can stay where
/// it is. Data in a subfolder of the model's folder does not go along.
std::vector<DataFile> dataFilesFor(const ir::Model& model, const std::string& output);

/// Fails if a copy of `files` needs more room than their folder has. Files that can share blocks
/// there need none.
llvm::Error checkRoom(llvm::ArrayRef<DataFile> files);
/// The same for the parts of the model's external data that are copied to one file in the folder of
/// `output`.
llvm::Error checkRoomForCopy(const ir::Model& model, const std::string& output);

/// The files of `dataFilesFor` next to an output: copies, which appear with the other files of a
/// run, or hard links, which are removed with this object unless `keep` was called. A copy shares
/// the blocks of its source if the file system can, and holes stay holes. A file that already has
/// the name is used if its contents are the same.
class DataFiles {
public:
  /// Makes the links, or checks that copies are possible. `placement` is Keep or Link. Fails if
  /// another file has the name, or if there is not enough room. Nothing is left then. A trial
  /// compares only the size of a file that has the name.
  static llvm::Expected<DataFiles> create(const ir::Model& model, const std::string& output,
                                          WeightPlacement placement, bool isTrial = false);

  DataFiles(DataFiles&& other) noexcept;
  DataFiles& operator=(DataFiles&&) = delete;
  ~DataFiles();

  /// Number of bytes that `copy` writes or shares.
  int64_t bytesToCopy() const;
  /// Writes the copies and adds them to `files`. `onCopied` receives numbers of bytes.
  llvm::Error copy(OutputFiles& files, const std::function<void(size_t bytes)>& onCopied);
  /// Locations that a model in the output's folder finds there after the run.
  std::vector<std::string> locations() const;
  void keep() { links.clear(); }

private:
  DataFiles() = default;

  std::vector<DataFile> all;
  std::vector<DataFile> missing; ///< those that are copied
  std::vector<std::string> links;
};

/// Writes a model with its external data as `placement` says; a model without edits is written byte
/// for byte. All files appear together or not at all. `progress` may be null.
llvm::Error exportWithData(const ir::Model& model, const std::string& path,
                           WeightPlacement placement, FileAccess& access,
                           ProgressListener* progress);

} // namespace kvopt::driver
