// Frames of the operator oracle: a stream of requests on stdin, one answer for each on stdout. A
// frame is the length of a JSON text as uint32, the text, and the bytes that its numbers count:
//
//   request   {"model": bytes, "inputs": [{"name", "type": TensorProto.DataType, "dims", "bytes"}]}
//   answer    {"plain": RESULT, "raised": RESULT or null}
//   RESULT    {"error": text} or {"outputs": [the same as inputs]}
#pragma once

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

namespace kvopt {

using Json = nlohmann::json;

/// Bytes at the alignment of tensors.
class Bytes {
public:
  bool read(size_t count) {
    memory.resize(count / sizeof(Block) + 1);
    size = count;
    return std::fread(memory.data(), 1, count, stdin) == count;
  }
  std::byte* data() { return memory.front().bytes; }
  std::span<const std::byte> all() const { return {memory.front().bytes, size}; }

private:
  struct alignas(64) Block {
    std::byte bytes[64];
  };
  std::vector<Block> memory;
  size_t size = 0;
};

struct Request {
  Json header;
  Bytes model;
  std::vector<Bytes> inputs;
};

inline bool read(Request& request) {
  uint32_t length = 0;
  if (std::fread(&length, sizeof length, 1, stdin) != 1)
    return false;
  std::string text(length, ' ');
  if (std::fread(text.data(), 1, length, stdin) != length)
    return false;
  request.header = Json::parse(text);
  if (!request.model.read(request.header["model"].get<size_t>()))
    return false;
  for (const Json& input : request.header["inputs"])
    if (!request.inputs.emplace_back().read(input["bytes"].get<size_t>()))
      return false;
  return true;
}

/// Writes an answer, whose numbers count `bytes`.
inline void write(const Json& header, const std::string& bytes) {
  const std::string text = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  const auto length = static_cast<uint32_t>(text.size());
  std::fwrite(&length, sizeof length, 1, stdout);
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fwrite(bytes.data(), 1, bytes.size(), stdout);
  std::fflush(stdout);
}

} // namespace kvopt
