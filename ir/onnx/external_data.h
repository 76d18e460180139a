// ExternalData: the tensors of a model that are written to a file beside it.
#pragma once

#include "ir/tensor.h"
#include "support/output_file.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"

#include <string>
#include <vector>

namespace kvopt::ir {

/// What becomes, in a model that is written, of contents that its source has in other files.
enum class ExternalPlacement {
  Keep,   ///< They stay where they are.
  Copy,   ///< Those that the model uses go to one file beside it.
  Inline, ///< They become part of the model's file.
};

/// Gives tensors their places in one file, one after the other, and writes them.
class ExternalData {
public:
  /// Offsets are multiples of this, so that a file that is mapped has aligned tensors.
  static constexpr int64_t alignment = 4096;

  /// Tensors of at least `leastBytes` go to the file; none do without a name.
  ExternalData(std::string fileName, int64_t leastBytes)
      : name(std::move(fileName)), least(leastBytes) {}

  ExternalPlacement placement = ExternalPlacement::Keep;
  /// With Keep: the locations that are written in place of those of the source.
  llvm::StringMap<std::string> movedLocations;
  /// Initializers that the source has inline go to the file as new ones do.
  bool takesInline = false;
  /// The contents of new tensors are not written: they are zeros, in a file that is one hole.
  bool isHole = false;

  /// Whether tensors of the source that have external data cannot be written as they are.
  bool movesSource() const {
    return placement != ExternalPlacement::Keep || !movedLocations.empty();
  }

  /// Whether an initializer that the source has inline goes to the file.
  bool movesInline(const TensorData& tensor) const {
    return takesInline && !name.empty() && tensor.byteSize().value_or(-1) >= least;
  }

  /// Where the tensor's bytes will start; nullopt if they do not belong into the file. One tensor
  /// has one place. It must live until `write`. Fails when the file's size overflows.
  llvm::Expected<std::optional<int64_t>> place(const TensorData& tensor);
  /// The same of a tensor whose contents lie in a file of the source, whatever their size. Tensors
  /// that are one there stay one.
  llvm::Expected<int64_t> placeCopy(const TensorData& tensor);

  const std::string& fileName() const { return name; }
  int64_t fileBytes() const { return size; }

  /// Writes all tensors to an empty file.
  llvm::Error write(OutputFile& file) const;

private:
  llvm::Expected<int64_t> append(const TensorData& tensor, int64_t bytes, bool isCopy);

  struct Entry {
    const TensorData* tensor;
    int64_t offset;
    bool isCopy;
  };
  std::string name;
  int64_t least;
  int64_t size = 0;
  std::vector<Entry> entries;
  llvm::DenseMap<const TensorData*, int64_t> offsets;
  llvm::StringMap<int64_t> copiedRanges;
};

} // namespace kvopt::ir
