// Files that one run of a program reads and writes, compared with each other.
#pragma once

#include "support/diagnostic.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace kvopt {

/// A file that is read.
struct InputFile {
  std::string path;
  /// Description of the file in messages: "the model 'm.onnx'".
  std::string role;
};

/// Function that lists files that are read.
using InputList = std::function<std::vector<InputFile>()>;

/// Ensures that no output of a run replaces one of its inputs or another output. The program
/// registers every file that it reads and declares every file that it writes, in any order; each
/// new entry is compared with all entries of the other kind at once. Files are compared by device
/// and inode, after following symbolic and hard links; names that do not exist yet are compared by
/// their folder. An OutputFile is created for a declared output only.
///
///  After a refusal, no output is created. Thread-safe.
class FileAccess {
public:
  FileAccess() = default;
  FileAccess(const FileAccess&) = delete;
  FileAccess& operator=(const FileAccess&) = delete;

  /// Registers a file that is read. For a folder, registers all files beneath it. The path need not
  /// exist; an empty path is ignored. Fails for a declared output.
  llvm::Error reads(const std::string& path, const std::string& role);
  llvm::Error reads(llvm::ArrayRef<InputFile> files);
  /// Registers the files that `list` returns: at once if there are outputs, otherwise when the
  /// first output is declared. For lists that are slow to make.
  llvm::Error readsLater(InputList list);

  /// Declares a file that is written. `option` is its name on the command line: "--plot". Fails if
  /// the file is an input or another output. An empty path is ignored. Declaring the same path for
  /// the same option again has no effect.
  llvm::Error writes(const std::string& path, const std::string& option);
  /// Declares a folder that receives files.
  llvm::Error writesFolder(const std::string& path, const std::string& option);
  /// Declares the file as `option` unless it is already declared for any option.
  llvm::Error ensureWrites(const std::string& path, const std::string& option);

  /// Whether an output is declared.
  bool hasOutputs() const;
  /// Fails if an output was refused or cannot be created: its folder is missing or not writable,
  /// its name is too long, or it exists and is not a regular file. A folder can be an output if it
  /// can be created or is empty. Writes nothing; call it before the work begins.
  llvm::Error checkOutputs() const;

private:
  struct Output {
    std::string path;
    std::string option;
    bool isFolder = false;
  };
  /// Identity of a path: device and inode of an existing file, or device and inode of the folder
  /// and the name.
  using PlaceKey = std::tuple<uint64_t, uint64_t, std::string>;

  // All of these require the lock.
  llvm::Error addInput(const InputFile& file);
  llvm::Error addOutput(const Output& output);
  llvm::Error readDeferred();
  llvm::Error refuse(Diagnostic diagnostic);
  llvm::Error refuseOverwriting(const Output& output, const std::string& role);
  static std::vector<PlaceKey> keysOf(const std::string& path);

  mutable std::mutex guard;
  std::map<PlaceKey, std::string> inputs; ///< roles of existing files
  std::vector<InputList> deferred;
  std::vector<Output> outputs;
  std::map<PlaceKey, size_t> places; ///< indices of outputs
  std::optional<Diagnostic> refusal;
};

} // namespace kvopt
