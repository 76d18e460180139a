// ExternalData: the tensors of a model that are written to a file beside it.
#pragma once

#include "ir/output_file.h"
#include "ir/tensor.h"

#include "llvm/ADT/DenseMap.h"

#include <string>
#include <vector>

namespace kvopt {

/// Gives tensors their places in one file, one after the other, and writes them.
class ExternalData {
public:
  /// Offsets are multiples of this, so that a file that is mapped has aligned tensors.
  static constexpr int64_t alignment = 4096;

  /// Tensors of at least `leastBytes` go to the file; none do without a name.
  ExternalData(std::string fileName, int64_t leastBytes)
      : name(std::move(fileName)), least(leastBytes) {}

  /// Where the tensor's bytes will start; nullopt if they do not belong into the file. One tensor
  /// has one place. It must live until `write`. Fails when the file's size overflows.
  llvm::Expected<std::optional<int64_t>> place(const TensorData& tensor);

  const std::string& fileName() const { return name; }
  int64_t fileBytes() const { return size; }

  /// Writes all tensors to an empty file.
  llvm::Error write(OutputFile& file) const;

private:
  struct Entry {
    const TensorData* tensor;
    int64_t offset;
  };
  std::string name;
  int64_t least;
  int64_t size = 0;
  std::vector<Entry> entries;
  llvm::DenseMap<const TensorData*, int64_t> offsets;
};

} // namespace kvopt
