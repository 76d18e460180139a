// Parsing of whole messages. Private to import and export.
#pragma once

#include "kvopt_onnx.pb.h"

#include "llvm/Support/Error.h"

#include <cstddef>
#include <span>

namespace kvopt::ir {

/// Parses all of `bytes`, and returns whether they are such a message. Malformed input is not
/// reported on the terminal. Requires fewer than 2 GiB.
bool parseMessage(std::span<const std::byte> bytes, google::protobuf::MessageLite& message);

/// The same for a model. The error says what the bytes are instead, as far as that is known.
llvm::Error parseModel(std::span<const std::byte> bytes, onnx::ModelProto& model);

/// Fails for 2 GiB and more, which a message cannot have.
llvm::Error checkMessageSize(uint64_t bytes);

} // namespace kvopt::ir
