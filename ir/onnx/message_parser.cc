// Parsing of whole messages.
#include "ir/onnx/message_parser.h"

#include "support/diagnostic.h"

#include <google/protobuf/io/coded_stream.h>

#include <limits>

namespace kvopt::ir {
namespace {

/// Maximum nesting of messages; a graph within a graph takes three levels.
constexpr int maxMessageDepth = 256;

} // namespace

bool parseMessage(std::span<const std::byte> bytes, google::protobuf::MessageLite& message) {
  google::protobuf::io::CodedInputStream input(reinterpret_cast<const uint8_t*>(bytes.data()),
                                               static_cast<int>(bytes.size()));
  input.SetTotalBytesLimit(std::numeric_limits<int>::max());
  input.SetRecursionLimit(maxMessageDepth);
  return message.MergePartialFromCodedStream(&input) && input.ConsumedEntireMessage();
}

llvm::Error checkMessageSize(uint64_t bytes) {
  if (bytes > static_cast<uint64_t>(std::numeric_limits<int>::max()))
    return unsupported("the file has {} bytes; an ONNX file cannot have 2 GiB or more", bytes)
        .hint("keep the weights in external data files");
  return llvm::Error::success();
}

} // namespace kvopt::ir
