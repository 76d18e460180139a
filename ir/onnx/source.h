// Source of a model: the contents of the file from which it was read. Private to import and export.
#pragma once

#include "ir/model.h"
#include "ir/onnx/tensor.h"
#include "support/mapped_file.h"

#include "kvopt_onnx.pb.h"

#include <google/protobuf/arena.h>

#include "llvm/ADT/DenseSet.h"

namespace kvopt::ir {

/// Parsed messages, to which values, nodes and attributes point, and the bytes of the file.
struct Model::Source {
  google::protobuf::Arena arena;
  onnx::ModelProto* message = google::protobuf::Arena::CreateMessage<onnx::ModelProto>(&arena);
  /// Bytes of the file; owned by `file`, or by `owned` if they came from memory.
  std::span<const std::byte> bytes;
  std::shared_ptr<const MappedFile> file;
  std::vector<std::byte> owned;
  std::shared_ptr<ExternalFiles> externalFiles;
  /// Declarations of values that have no definition. Kept, because no edit caused this.
  llvm::DenseSet<const onnx::ValueInfoProto*> danglingDeclarations;
  /// All tensors with external data, collected on first use. Thread-safe.
  const std::vector<const onnx::TensorProto*>& externalTensors();

  /// Held while an export takes messages apart and restores them.
  std::mutex exportMutex;

private:
  std::once_flag externalOnce;
  std::vector<const onnx::TensorProto*> external;
};

} // namespace kvopt::ir
