// Cache files with right checksums, loaded into real sessions. The first byte selects a decoder. A
// custom mutator mends sizes, fingerprint and checksums, so that what is mutated is what they
// protect.
#include "runtime/cache/cache_file_layout.h"
#include "runtime/cache/checksum.h"
#include "tests/fuzz/decoders.h"
#include "tests/fuzz/exercise.h"

#include <cmath>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t maxSize);

namespace {

using namespace kvopt;
using namespace kvopt::analysis;
using namespace kvopt::driver;
using namespace kvopt::ir;
using namespace kvopt::passes;
using namespace kvopt::pattern;
using namespace kvopt::runtime;
using namespace kvopt::targets;
using cache_file::Header;

void mustHold(bool holds, const char* what) {
  if (holds)
    return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

std::unique_ptr<Session> sessionOf(size_t index) {
  const fuzz::Decoder& decoder = fuzz::decoders()[index];
  auto session = Session::create(*decoder.model, fuzz::kernels(), decoder.manifest,
                                 fuzz::smallSession(decoder.manifest));
  if (!session)
    fuzz::mustHold(session.takeError(), "a session of a generated decoder");
  return std::move(*session);
}

ModelFingerprint fingerprintOf(size_t index) {
  static const std::vector<ModelFingerprint> all = [] {
    std::vector<ModelFingerprint> found;
    for (size_t i = 0; i < fuzz::decoders().size(); ++i)
      found.push_back(sessionOf(i)->fingerprint());
    return found;
  }();
  return all[index];
}

void store(std::span<uint8_t> file, size_t at, uint64_t value) {
  std::memcpy(file.data() + at, &value, sizeof value);
}

uint64_t checksumOf(std::span<uint8_t> file, size_t from, size_t bytes) {
  return Checksum::of(std::as_bytes(file.subspan(from, bytes)));
}

/// The checksum after each section, as far as records and sections are within the file.
void mendSections(std::span<uint8_t> file, size_t indexEnd) {
  size_t at = sizeof(Header);
  uint32_t rows = 0;
  uint32_t caches = 0;
  if (indexEnd - at < 8)
    return;
  std::memcpy(&rows, file.data() + at, 4);
  std::memcpy(&caches, file.data() + at + 4, 4);
  at += 8;
  if (rows > (indexEnd - at) / 8)
    return;
  at += size_t{rows} * 8;
  for (uint32_t i = 0; i < caches; ++i) {
    cache_file::RecordHead head;
    cache_file::RecordTail tail;
    if (indexEnd - at < cache_file::smallestRecord)
      return;
    std::memcpy(&head, file.data() + at, sizeof head);
    at += sizeof head;
    if (indexEnd - at < size_t{head.rank} * 8 + sizeof tail)
      return;
    at += size_t{head.rank} * 8;
    std::memcpy(&tail, file.data() + at, sizeof tail);
    at += sizeof tail;
    if (tail.nameBytes > indexEnd - at)
      return;
    at += tail.nameBytes;
    if (tail.offset <= file.size() && tail.bytes <= file.size() - tail.offset &&
        file.size() - tail.offset - tail.bytes >= 8)
      store(file, tail.offset + tail.bytes, checksumOf(file, tail.offset, tail.bytes));
  }
}

void mend(std::span<uint8_t> file, const ModelFingerprint& fingerprint) {
  if (file.size() < sizeof(Header))
    return;
  Header header;
  std::memcpy(&header, file.data(), sizeof header);
  const Header fresh;
  header.magicBytes = fresh.magicBytes;
  header.version = fresh.version;
  header.byteOrder = fresh.byteOrder;
  header.fileBytes = file.size();
  header.fingerprint = fingerprint;
  const size_t afterHeader = file.size() - sizeof header;
  if (header.indexBytes <= afterHeader) {
    mendSections(file, sizeof header + header.indexBytes);
    header.indexChecksum = checksumOf(file, sizeof header, header.indexBytes);
  }
  std::memcpy(file.data(), &header, sizeof header);
  store(file, offsetof(Header, headerChecksum),
        checksumOf(file, 0, offsetof(Header, headerChecksum)));
}

/// What was loaded is in range: lengths, and the scales of int8 rows.
void checkState(const Session& session) {
  mustHold(session.length() >= 0 && session.length() <= session.capacity(),
           "a length beyond the capacity");
  for (int64_t length : session.rowLengths())
    mustHold(length >= 0 && length <= session.length(), "a row longer than the longest");
  for (size_t i = 0; i < session.cacheCount(); ++i) {
    const bool isScale = session.cacheInfo(i).role == CacheRole::KeyScale ||
                         session.cacheInfo(i).role == CacheRole::ValueScale;
    if (!isScale || session.length() == 0)
      continue;
    auto rows = session.cacheRows(i);
    mustHold(static_cast<bool>(rows), "scales that cannot be read");
    const TensorView scales = rows->view;
    for (int64_t j = 0; scales.isContiguous() && j < scales.elementCount(); ++j)
      mustHold(std::isfinite(scales.as<float>()[j]) && scales.as<float>()[j] >= 0,
               "a scale that is negative or not finite");
  }
}

} // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t maxSize, unsigned) {
  size = LLVMFuzzerMutate(data, size, maxSize);
  if (size != 0)
    mend({data + 1, size - 1}, fingerprintOf(data[0] % fuzz::decoders().size()));
  return size;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0)
    return 0;
  const int file = ::memfd_create("cache", MFD_CLOEXEC);
  mustHold(file >= 0 && ::write(file, data + 1, size - 1) == static_cast<ssize_t>(size - 1),
           "a file in memory");
  std::unique_ptr<Session> session = sessionOf(data[0] % fuzz::decoders().size());
  if (llvm::Error error = session->load(formatted("/proc/self/fd/{}", file))) {
    fuzz::refused(std::move(error));
    mustHold(session->length() == 0, "a refused file that changed the session");
  } else {
    checkState(*session);
  }
  fuzz::takeSteps(*session);
  ::close(file);
  return 0;
}
