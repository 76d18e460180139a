// ConstantDigests: classes of constants, by contents or by their place in a file.
#pragma once

#include "check/alignment/value_class.h"
#include "ir/model.h"

#include "llvm/ADT/DenseMap.h"

#include <unordered_map>
#include <vector>

namespace kvopt::check {

/// Digests of constants. Contents in a file are identified by file, offset and length. Only
/// readCopies reads those of many elements.
class ConstantDigests {
public:
  /// Identifies constants by their contents where the models name different places of files:
  /// constants of the second model whose places the first one does not name, and those of the
  /// first model with the same type and shape whose places the second one does not name.
  void readCopies(const ir::Model& before, const ir::Model& after);
  ValueClass of(const ir::Model& model, const ir::TensorData& data);
  /// Identifies a constant that is evaluated: by its contents, unless those are many and in a file.
  ValueClass contentsOf(const ir::Model& model, const ir::TensorData& data);
  /// Whether an element is infinite or not a number. Constants with very many elements, and those
  /// with many in a file, are not read: false.
  bool hasInfinite(const ir::TensorData& data);

private:
  ValueClass ofContents(const ir::Model& model, const ir::TensorData& data);

  llvm::DenseMap<const ir::TensorData*, ValueClass> known, contents;
  /// Constants whose contents are different, by a short hash of these.
  struct Contents {
    const ir::TensorData* data = nullptr;
    llvm::StringRef bytes;
    ValueClass digest;
  };
  std::unordered_map<uint64_t, std::vector<Contents>> different;
  llvm::DenseMap<const ir::TensorData*, bool> infinite;
};

} // namespace kvopt::check
