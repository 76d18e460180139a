// The files that a program reads and those that it is about to write.
#pragma once

#include "ir/onnx/model_files.h"

#include "llvm/Support/Error.h"

#include <string>
#include <vector>

namespace kvopt::ir {

/// Ensures that no output replaces an input, or another output. A command fills the plan and checks
/// it before its work, so that a refusal costs nothing and leaves every file as it was.
class FilePlan {
public:
  /// Adds a file that is read. `role` says what it is: "the saved cache". An empty path is ignored.
  void reads(const std::string& path, std::string role);
  /// Adds every file that the model consists of.
  void reads(const Model& model);

  /// Adds a file that is written. `option` is its name on the command line: "--plot". An empty path
  /// is ignored.
  void writes(const std::string& path, std::string option);
  /// Adds a folder that receives files.
  void writesFolder(const std::string& path, std::string option);

  /// Whether anything is written.
  bool hasOutputs() const { return !outputs.empty(); }

  /// Fails when an output
  /// - is an input: the same file by device and inode, through symbolic and hard links;
  /// - is another output, whether or not it exists yet;
  /// - cannot be created: its folder is missing or not writable, its name is too long, or it exists
  ///   and is not a regular file.
  /// Writes nothing.
  llvm::Error check() const;

private:
  struct Output {
    std::string path;
    std::string option;
    bool isFolder = false;
  };

  std::vector<ModelFile> inputs;
  std::vector<Output> outputs;
};

} // namespace kvopt::ir
