// Parsing of whole messages.
#include "ir/onnx/message_parser.h"

#include "support/diagnostic.h"
#include "support/lfs_pointer.h"

#include "llvm/ADT/STLExtras.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <limits>
#include <vector>

namespace kvopt::ir {
namespace {

/// Maximum nesting of messages; a graph within a graph takes three levels.
constexpr int maxMessageDepth = 256;

using google::protobuf::io::CodedInputStream;

/// Messages through which graphs are within graphs.
enum class Holder { Model, Graph, Node, Attribute, Function };

struct HeldField {
  Holder holder;
  uint32_t field;
  Holder held;
};
constexpr HeldField heldFields[] = {
    {Holder::Model, onnx::ModelProto::kGraphFieldNumber, Holder::Graph},
    {Holder::Model, onnx::ModelProto::kFunctionsFieldNumber, Holder::Function},
    {Holder::Function, onnx::FunctionProto::kNodeFieldNumber, Holder::Node},
    {Holder::Graph, onnx::GraphProto::kNodeFieldNumber, Holder::Node},
    {Holder::Node, onnx::NodeProto::kAttributeFieldNumber, Holder::Attribute},
    {Holder::Attribute, onnx::AttributeProto::kGFieldNumber, Holder::Graph},
    {Holder::Attribute, onnx::AttributeProto::kGraphsFieldNumber, Holder::Graph}};

CodedInputStream streamOf(std::span<const std::byte> bytes) {
  return CodedInputStream(reinterpret_cast<const uint8_t*>(bytes.data()),
                          static_cast<int>(bytes.size()));
}

/// Whether graphs are nested more deeply than the parser goes.
bool isNestedTooDeeply(std::span<const std::byte> model) {
  struct Open {
    Holder holder;
    int end;
  };
  CodedInputStream input = streamOf(model);
  std::vector<Open> open{{Holder::Model, static_cast<int>(model.size())}};
  while (!open.empty()) {
    if (input.CurrentPosition() >= open.back().end) {
      open.pop_back();
      continue;
    }
    constexpr uint32_t lengthDelimited = 2;
    const uint32_t tag = input.ReadTag();
    const auto* held = llvm::find_if(heldFields, [&](const HeldField& entry) {
      return entry.holder == open.back().holder && (entry.field << 3 | lengthDelimited) == tag;
    });
    if (held == std::end(heldFields)) {
      if (tag == 0 || !google::protobuf::internal::WireFormatLite::SkipField(&input, tag))
        return false;
      continue;
    }
    int length = 0;
    if (!input.ReadVarintSizeAsInt(&length) || length > open.back().end - input.CurrentPosition())
      return false;
    open.push_back({held->held, input.CurrentPosition() + length});
    if (open.size() > static_cast<size_t>(maxMessageDepth))
      return true;
  }
  return false;
}

} // namespace

llvm::Error parseModel(std::span<const std::byte> bytes, onnx::ModelProto& model) {
  if (llvm::Error error = checkNoLfsPointer(bytes))
    return error;
  if (parseMessage(bytes, model))
    return llvm::Error::success();
  if (isNestedTooDeeply(bytes))
    return unsupported("graphs within graphs are nested too deeply");
  return invalid("not an ONNX model: the file is truncated, corrupt or of another format");
}

bool parseMessage(std::span<const std::byte> bytes, google::protobuf::MessageLite& message) {
  CodedInputStream input = streamOf(bytes);
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
