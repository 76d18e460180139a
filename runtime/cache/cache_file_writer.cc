// Writing of cache files in one pass over the caches, without a copy of them.
#include "runtime/cache/cache_file_layout.h"
#include "runtime/cache/checksum.h"
#include "runtime/cache/contiguous_runs.h"
#include "support/diagnostic.h"
#include "support/output_file.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace kvopt::runtime {

using namespace cache_file;

namespace {

/// Fits into a core's own cache while it is filled, summed and written.
constexpr size_t stagingBytes = size_t{128} << 10;

/// Collects short pieces, so that they are summed and written together.
class SectionWriter {
public:
  explicit SectionWriter(OutputFile& output) : file(output), staging(stagingBytes) {}

  llvm::Error add(const std::byte* data, size_t bytes) {
    while (bytes != 0) {
      size_t taken = std::min(bytes, stagingBytes - used);
      if (used == 0 && bytes >= stagingBytes) {
        if (llvm::Error error = emit({data, stagingBytes}))
          return error;
        taken = stagingBytes;
      } else {
        std::memcpy(staging.data() + used, data, taken);
        used += taken;
        if (used == stagingBytes)
          if (llvm::Error error = flush())
            return error;
      }
      data += taken;
      bytes -= taken;
    }
    return llvm::Error::success();
  }

  /// Ends a section with its checksum.
  llvm::Error finish() {
    if (llvm::Error error = flush())
      return error;
    uint64_t value = checksum.value();
    checksum = Checksum();
    return file.write(std::as_bytes(std::span<const uint64_t>(&value, 1)));
  }

private:
  llvm::Error flush() {
    size_t bytes = std::exchange(used, 0);
    return bytes == 0 ? llvm::Error::success() : emit({staging.data(), bytes});
  }
  llvm::Error emit(std::span<const std::byte> bytes) {
    checksum.add(bytes);
    return file.write(bytes);
  }

  OutputFile& file;
  std::vector<std::byte> staging;
  size_t used = 0;
  Checksum checksum;
};

llvm::Error addElements(SectionWriter& writer, const TensorView& view) {
  llvm::Error failure = llvm::Error::success();
  forEachRun(view, [&](const std::byte* data, size_t bytes) {
    failure = llvm::joinErrors(std::move(failure), writer.add(data, bytes));
    return !failure;
  });
  return failure;
}

template <class T> void append(std::vector<std::byte>& bytes, const T& value) {
  auto raw = std::as_bytes(std::span<const T>(&value, 1));
  bytes.insert(bytes.end(), raw.begin(), raw.end());
}

/// Index and offsets of the sections.
struct Plan {
  std::vector<std::byte> index;
  std::vector<size_t> offsets;
  size_t fileBytes = 0;
};

size_t recordBytes(const CacheFileEntry& entry) {
  return sizeof(RecordHead) + entry.shape.size() * sizeof(int64_t) + sizeof(RecordTail) +
         entry.name.size();
}

llvm::Expected<Plan> planFile(llvm::ArrayRef<int64_t> lengths, llvm::ArrayRef<StoredCache> caches) {
  Plan plan;
  append(plan.index, static_cast<uint32_t>(lengths.size()));
  append(plan.index, static_cast<uint32_t>(caches.size()));
  for (int64_t length : lengths)
    append(plan.index, length);
  size_t indexBytes = plan.index.size();
  for (const StoredCache& cache : caches)
    indexBytes += recordBytes(cache.entry);
  size_t end = sizeof(Header) + indexBytes;
  for (const StoredCache& cache : caches) {
    const CacheFileEntry& entry = cache.entry;
    assert(entry.shape.size() <= UINT8_MAX);
    llvm::Expected<int64_t> bytes = storedBytes(entry, lengths);
    if (!bytes)
      return withNode(bytes.takeError(), entry.name);
    RecordHead head;
    head.element = static_cast<uint32_t>(entry.element);
    head.rank = static_cast<uint8_t>(entry.shape.size());
    head.sequenceAxis = static_cast<uint8_t>(entry.sequenceAxis);
    head.form = entry.batchAxis ? 1 : 0;
    head.batchAxis = static_cast<uint8_t>(entry.batchAxis.value_or(0));
    RecordTail tail;
    tail.offset = alignedUp(end);
    tail.bytes = static_cast<uint64_t>(*bytes);
    tail.nameBytes = entry.name.size();
    append(plan.index, head);
    for (int64_t extent : entry.shape)
      append(plan.index, extent);
    append(plan.index, tail);
    auto name = std::as_bytes(std::span<const char>(entry.name.data(), entry.name.size()));
    plan.index.insert(plan.index.end(), name.begin(), name.end());
    plan.offsets.push_back(tail.offset);
    end = tail.offset + static_cast<size_t>(*bytes) + sizeof(uint64_t);
  }
  assert(plan.index.size() == indexBytes);
  plan.fileBytes = end;
  return plan;
}

} // namespace

llvm::Error writeCacheFile(OutputFile file, const ModelFingerprint& fingerprint,
                           llvm::ArrayRef<int64_t> lengths, llvm::ArrayRef<StoredCache> caches) {
  assert(!lengths.empty());
  llvm::Expected<Plan> plan = planFile(lengths, caches);
  if (!plan)
    return plan.takeError();
  Header header;
  header.fileBytes = plan->fileBytes;
  header.indexBytes = plan->index.size();
  header.fingerprint = fingerprint;
  header.indexChecksum = Checksum::of(plan->index);
  auto headerBytes = std::as_bytes(std::span<const Header>(&header, 1));
  header.headerChecksum = Checksum::of(headerBytes.first(offsetof(Header, headerChecksum)));
  if (llvm::Error error = file.write(headerBytes))
    return error;
  if (llvm::Error error = file.write(plan->index))
    return error;
  size_t end = sizeof(Header) + plan->index.size();
  SectionWriter writer(file);
  constexpr std::array<std::byte, sectionAlignment> zeros{};
  for (size_t i = 0; i < caches.size(); ++i) {
    if (llvm::Error error = file.write({zeros.data(), plan->offsets[i] - end}))
      return error;
    size_t bytes = 0;
    for (const TensorView& part : caches[i].parts) {
      bytes += static_cast<size_t>(part.byteSize());
      if (llvm::Error error = addElements(writer, part))
        return error;
    }
    if (llvm::Error error = writer.finish())
      return error;
    end = plan->offsets[i] + bytes + sizeof(uint64_t);
  }
  assert(end == plan->fileBytes && "parts are what their entries say");
  return file.commit();
}

} // namespace kvopt::runtime
