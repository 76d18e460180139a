// ExternalData: tensors of a model that are written to a file next to it.
#pragma once

#include "ir/tensor.h"
#include "support/output_file.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"

#include <functional>
#include <string>
#include <vector>

namespace kvopt::ir {

/// Placement, in a written model, of contents that its source stores in other files.
enum class ExternalPlacement {
  Keep,   ///< They stay in their files.
  Copy,   ///< Those that the model uses are copied to one file next to it.
  Inline, ///< They become part of the model's file.
};

/// Places tensors in one file, one after another, and writes them.
class ExternalData {
public:
  /// Offsets are multiples of this, so that tensors of a mapped file are aligned.
  static constexpr int64_t alignment = 4096;

  /// Tensors of at least `leastBytes` are placed in the file; none are without a name.
  ExternalData(std::string fileName, int64_t leastBytes)
      : name(std::move(fileName)), least(leastBytes) {}

  ExternalPlacement placement = ExternalPlacement::Keep;
  /// For Keep: locations that replace those of the source.
  llvm::StringMap<std::string> movedLocations;
  /// Places initializers that are inline in the source in the file, like new ones.
  bool takesInline = false;
  /// Writes a hole of zeros instead of the contents of new tensors.
  bool isHole = false;
  /// Called with the number of bytes that were written since the last call; may be empty.
  std::function<void(size_t bytes)> onWritten;

  /// Whether tensors with external data cannot be written as they are in the source.
  bool movesSource() const {
    return placement != ExternalPlacement::Keep || !movedLocations.empty();
  }

  /// Whether an initializer that is inline in the source is placed in the file.
  bool movesInline(const TensorData& tensor) const {
    return takesInline && !name.empty() && tensor.byteSize().value_or(-1) >= least;
  }

  /// Offset of the tensor's bytes; nullopt if the tensor is not placed in the file. Each tensor has
  /// one offset. It must live until `write`. Fails if the file's size overflows.
  llvm::Expected<std::optional<int64_t>> place(const TensorData& tensor);
  /// The same for a tensor of any size whose contents are in a file of the source. Tensors that
  /// share a range there also share one here.
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
