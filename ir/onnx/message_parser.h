// Parsing of whole messages. Private to import and export.
#pragma once

#include "llvm/Support/Error.h"

#include <google/protobuf/message_lite.h>

#include <cstddef>
#include <span>

namespace kvopt::ir {

/// Parses all of `bytes`, and returns whether they are such a message. Malformed input is not
/// reported on the terminal. Requires fewer than 2 GiB.
bool parseMessage(std::span<const std::byte> bytes, google::protobuf::MessageLite& message);

/// Fails for 2 GiB and more, which a message cannot have.
llvm::Error checkMessageSize(uint64_t bytes);

} // namespace kvopt::ir
