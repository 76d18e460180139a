// Models in memory whose external data comes from a callback.
#include "kvopt/kvopt.hpp"
#include "tests/api/handles.h"

#include "gmock/gmock.h"

#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <stdexcept>

namespace kvopt::api {
namespace {

using testing::HasSubstr;

using Files = std::map<std::string, std::string>;

/// Numbers and fields of protobuf's wire format.
std::string number(uint64_t value) {
  std::string text;
  for (; value >= 128; value >>= 7)
    text += static_cast<char>(value | 128);
  return text + static_cast<char>(value);
}
std::string field(uint64_t tag, const std::string& contents) {
  return number(tag << 3 | 2) + number(contents.size()) + contents;
}
uint64_t takeNumber(const std::string& text, size_t& at) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<unsigned char>(text.at(at++));
    value |= static_cast<uint64_t>(byte & 127) << shift;
    if (byte < 128)
      return value;
  }
}

/// Copies a message. `replace` gives what is written for the contents of a field with this tag.
std::string edited(const std::string& message, uint64_t tag,
                   const std::function<std::string(const std::string&)>& replace) {
  std::string out;
  for (size_t at = 0; at < message.size();) {
    const size_t start = at;
    const uint64_t key = takeNumber(message, at);
    if ((key & 7) == 2) {
      const uint64_t size = takeNumber(message, at);
      at += size;
      if (key >> 3 == tag) {
        out += replace(message.substr(at - size, size));
        continue;
      }
    } else if ((key & 7) == 0) {
      takeNumber(message, at);
    } else {
      at += (key & 7) == 1 ? 8 : 4;
    }
    out += message.substr(start, at - start);
  }
  return out;
}

std::string entry(const std::string& key, const std::string& value) {
  return field(13, field(1, key) + field(2, value));
}

/// The shipped model with the contents of its initializers in one file.
struct ExternalModel {
  std::string bytes;
  std::string data;
  size_t count = 0;

  explicit ExternalModel(const std::string& location = "weights/all.bin", uint64_t skipped = 0,
                         int64_t more = 0) {
    std::ifstream file(shippedModel(), std::ios::binary);
    const std::string whole{std::istreambuf_iterator<char>(file), {}};
    const auto tensor = [&](const std::string& contents) {
      const uint64_t offset = skipped + data.size();
      int64_t length = 0;
      std::string moved = edited(contents, 9, [&](const std::string& raw) {
        data += raw;
        length = static_cast<int64_t>(raw.size()) + more;
        return std::string();
      });
      if (data.size() + skipped != offset) {
        ++count;
        moved += entry("location", location) + entry("offset", std::to_string(offset)) +
                 entry("length", std::to_string(length)) + number(14 << 3) + number(1);
      }
      return field(5, moved);
    };
    bytes = edited(whole, 7,
                   [&](const std::string& graph) { return field(7, edited(graph, 5, tensor)); });
  }
};

/// Reads from files in memory.
struct MemoryReader {
  Files files;
  size_t calls = 0;

  static int64_t read(void* user, const char* location, uint64_t offset, void* buffer,
                      size_t size) {
    auto* self = static_cast<MemoryReader*>(user);
    ++self->calls;
    const auto file = self->files.find(location);
    if (file == self->files.end())
      return -1;
    if (offset >= file->second.size())
      return 0;
    const size_t count = std::min(size, file->second.size() - offset);
    std::memcpy(buffer, file->second.data() + offset, count);
    return static_cast<int64_t>(count);
  }
};

ErrorHandle opened(const ExternalModel& model, MemoryReader& reader, ModelHandle& made) {
  kvopt_model* raw = nullptr;
  ErrorHandle error = held(kvopt_model_from_reader(model.bytes.data(), model.bytes.size(),
                                                   MemoryReader::read, &reader, nullptr, 0, &raw));
  made = ModelHandle(raw, kvopt_model_free);
  return error;
}

/// Code and text of the error, which must be one.
std::pair<std::string, std::string> failure(const ExternalModel& model, MemoryReader& reader) {
  ModelHandle made(nullptr, kvopt_model_free);
  const ErrorHandle error = opened(model, reader, made);
  EXPECT_EQ(made, nullptr);
  if (!error)
    return {"", ""};
  return {kvopt_error_code(error.get()), kvopt_error_text(error.get())};
}

TEST(ApiExternalData, ComesFromTheCallback) {
  const ExternalModel model;
  ASSERT_GT(model.count, 10u);
  MemoryReader reader{{{"weights/all.bin", model.data}}};
  ModelHandle made(nullptr, kvopt_model_free);
  ASSERT_EQ(opened(model, reader, made), nullptr);
  EXPECT_EQ(reader.calls, model.count);
  reader.files.clear();
  const SessionHandle session = sessionOf(made.get());
  EXPECT_EQ(generated(session.get(), {1, 2, 3}, shippedTokens.size()), shippedTokens);
  EXPECT_EQ(reader.calls, model.count);
}

TEST(ApiExternalData, WithoutACallbackThereIsNone) {
  const ExternalModel model;
  kvopt_model* made = nullptr;
  EXPECT_EQ(codeOf(kvopt_model_from_reader(model.bytes.data(), model.bytes.size(), nullptr, nullptr,
                                           nullptr, 0, &made)),
            "usage");
  EXPECT_EQ(
      codeOf(kvopt_model_from_reader(nullptr, 1, MemoryReader::read, nullptr, nullptr, 0, &made)),
      "usage");
  EXPECT_EQ(made, nullptr);
}

TEST(ApiExternalData, MissingFilesAndShortDataAreErrors) {
  const ExternalModel model;
  MemoryReader missing;
  const auto [code, text] = failure(model, missing);
  EXPECT_EQ(code, "io");
  EXPECT_THAT(text, HasSubstr("weights/all.bin"));
  EXPECT_EQ(missing.calls, 1u);

  MemoryReader shortened{{{"weights/all.bin", model.data.substr(0, model.data.size() - 1)}}};
  const auto [shortCode, shortText] = failure(model, shortened);
  EXPECT_EQ(shortCode, "invalid");
  EXPECT_THAT(shortText, HasSubstr("at offset"));
  EXPECT_EQ(shortened.calls, model.count);
}

TEST(ApiExternalData, OffsetsBeyondTheEndAreErrors) {
  const ExternalModel beyond("weights/all.bin", 1 << 30);
  MemoryReader reader{{{"weights/all.bin", beyond.data}}};
  const auto [code, text] = failure(beyond, reader);
  EXPECT_EQ(code, "invalid");
  EXPECT_THAT(text, HasSubstr("has 0 bytes at offset 1073741824"));

  const ExternalModel overflowing("weights/all.bin", UINT64_MAX - 1);
  MemoryReader unused;
  EXPECT_EQ(failure(overflowing, unused).first, "invalid");
  EXPECT_EQ(unused.calls, 0u);
}

TEST(ApiExternalData, NothingIsReadForAModelThatIsWrong) {
  for (const std::string location : {"/etc/passwd", "../all.bin", "a/../../all.bin"}) {
    const ExternalModel escaping(location);
    MemoryReader reader{{{location, escaping.data}}};
    const auto [code, text] = failure(escaping, reader);
    EXPECT_EQ(code, "invalid") << location;
    EXPECT_THAT(text, HasSubstr(location));
    EXPECT_EQ(reader.calls, 0u);
  }
  const ExternalModel longer("weights/all.bin", 0, 4);
  MemoryReader reader{{{"weights/all.bin", longer.data}}};
  EXPECT_EQ(failure(longer, reader).first, "invalid");
  EXPECT_EQ(reader.calls, 0u);
}

TEST(ApiExternalData, ExceptionsOfACallbackReachTheCaller) {
  const ExternalModel model;
  MemoryReader reader{{{"weights/all.bin", model.data}}};
  const Model made =
      Model::fromReader(model.bytes.data(), model.bytes.size(),
                        [&](const char* location, uint64_t offset, void* buffer, size_t size) {
                          return MemoryReader::read(&reader, location, offset, buffer, size);
                        });
  EXPECT_THAT(inspect(made), HasSubstr("kvopt/inspect/1"));
  EXPECT_THROW(Model::fromReader(model.bytes.data(), model.bytes.size(),
                                 [](const char*, uint64_t, void*, size_t) -> int64_t {
                                   throw std::out_of_range("no such file");
                                 }),
               std::out_of_range);
}

} // namespace
} // namespace kvopt::api
