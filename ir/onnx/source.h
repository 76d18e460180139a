// What a model keeps of the file it was read from. Private to import and export.
#pragma once

#include "ir/model.h"
#include "ir/onnx/tensor.h"
#include "support/mapped_file.h"

#include "kvopt_onnx.pb.h"

#include <google/protobuf/arena.h>

#include "llvm/ADT/DenseSet.h"

namespace kvopt::ir {

/// The parsed messages, which values, nodes and attributes point into, and the bytes they came
/// from.
struct Model::Source {
  google::protobuf::Arena arena;
  onnx::ModelProto* message = google::protobuf::Arena::CreateMessage<onnx::ModelProto>(&arena);
  /// The bytes of the file; in `file`, or in `owned` when they came from memory.
  std::span<const std::byte> bytes;
  std::shared_ptr<const MappedFile> file;
  std::vector<std::byte> owned;
  std::shared_ptr<ExternalFiles> externalFiles;
  /// Declarations of values that nothing defines. Kept, because an edit did not cause that.
  llvm::DenseSet<const onnx::ValueInfoProto*> danglingDeclarations;
  /// All tensors that have external data; gathered when first asked for. Thread-safe.
  const std::vector<const onnx::TensorProto*>& externalTensors();

  /// Held while an export takes messages apart and puts them together again.
  std::mutex exportMutex;

private:
  std::once_flag externalOnce;
  std::vector<const onnx::TensorProto*> external;
};

} // namespace kvopt::ir
